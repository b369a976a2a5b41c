"""Pool of boxes: some wait ready, each is used once and replaced, never reset.

A start belongs to the pool, not to the caller who needed it: a caller that gives up leaves a ready box behind. At most
``max_starts`` boxes start at the same time, however many run.
"""

import asyncio
import os
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import msgspec

from agent_layer.errors import AgentLayerError, SandboxError
from agent_layer.infra import quantile
from agent_layer.schema.sandbox import EndOfBox, Process, Sandbox, SandboxSpec, Snapshot, check_spec
from envs.sandbox.kind import SandboxKind
from envs.sandbox.registry import choose_kind, list_kind_names, make_kind
from envs.sandbox.requests import BoxRequest, ForwardingSandbox, Open, R

TAKE_SECONDS = 60.0
_RECENT = 512
"""Starts and takes whose durations ``stats`` reports."""
_UNOWNED = "pool"
_REFILL_SECONDS = 0.02
"""Between a take and the start of the box that replaces it: most snippets have ended by then."""


class PoolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a pool."""

    max_running: int = 512
    """Boxes that are taken and not closed; further takes wait."""
    max_starts: int = max(2, os.cpu_count() or 2)
    ready_per_spec: int = 1
    """Boxes that wait for the next take of a spec that was taken before."""
    max_ready: int = 16
    """Boxes that wait, of all specs; beyond it, those of the spec that was taken longest ago are closed."""


class PoolStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a pool since it was opened; ``ready``, ``starting``, ``running`` and ``waiting`` are those of now."""

    ready: int
    starting: int
    running: int
    waiting: int
    """Takes without a box yet."""
    hits: int
    """Takes that found a box ready."""
    misses: int
    dead_at_hand_out: int
    """Boxes that had died while they waited."""
    failed_starts: int
    start_seconds_p50: float | None
    start_seconds_p99: float | None
    take_seconds_p50: float | None
    take_seconds_p99: float | None


class _SpecQueue:
    """Boxes of one spec that wait, and takes that wait for one."""

    def __init__(self, spec: SandboxSpec, kind: SandboxKind) -> None:
        self.spec = spec
        self.kind = kind
        self.ready: deque[Sandbox] = deque()
        self.waiting: deque[asyncio.Future[Sandbox]] = deque()
        self.num_starting = 0
        self.target = 0
        """Ready boxes to keep."""

        self._is_wanted = asyncio.Event()

    @property
    def num_missing(self) -> int:
        return len(self.waiting) + self.target - len(self.ready) - self.num_starting

    def add_waiter(self) -> asyncio.Future[Sandbox]:
        """Return the box that a take waits for."""
        waiter: asyncio.Future[Sandbox] = asyncio.get_running_loop().create_future()
        self.waiting.append(waiter)
        self._is_wanted.set()
        return waiter

    async def wait_for_quiet(self) -> None:
        """Let the box that was just taken run first, unless a take waits for the next one already."""
        if not self.waiting:
            self._is_wanted.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_wanted.wait(), _REFILL_SECONDS)


class SandboxPool:
    """Hands out boxes; ``open_pool`` opens one."""

    def __init__(self, kinds: Iterable[SandboxKind], options: PoolOptions) -> None:
        self._kinds = list(kinds)
        self._options = options
        self._queues: OrderedDict[str, _SpecQueue] = OrderedDict()
        """By hash of the spec, taken longest ago first."""
        self._taken: set[PooledSandbox] = set()
        self._room = asyncio.Semaphore(options.max_running)
        self._start_gate = asyncio.Semaphore(options.max_starts)
        self._tasks: set[asyncio.Task[None]] = set()
        self._choices: dict[str, asyncio.Task[None]] = {}
        """Choices of a kind that are under way, by hash of the spec."""
        self._is_closing = False
        self._hits = self._misses = self._dead = self._failed = self._num_waiting = 0
        self._start_seconds: deque[float] = deque(maxlen=_RECENT)
        self._take_seconds: deque[float] = deque(maxlen=_RECENT)

    async def take(
        self, spec: SandboxSpec, *, owner: str, snapshot: Snapshot | None = None, seconds: float = TAKE_SECONDS
    ) -> Sandbox:
        """Return a box that nothing has run in; close it after use.

        Args:
            spec: what it has to be.
            owner: lease token, or another name, of its only user.
            snapshot: files to begin with.
            seconds: longest wait for it.

        Raises:
            BadInputError: no box can be made of this spec.
            SandboxError: the machine could not make one, or not in time.
        """
        began = time.monotonic()
        check_spec(spec)
        self._num_waiting += 1
        try:
            async with asyncio.timeout(seconds):
                box = await self._take(spec, owner)
        except TimeoutError as error:
            raise SandboxError(
                f"sandbox: none was ready within {seconds:g} s, {len(self._taken)} of at most"
                f" {self._options.max_running} are taken; close some, or wait longer"
            ) from error
        finally:
            self._num_waiting -= 1
        self._take_seconds.append(time.monotonic() - began)
        if snapshot is not None:
            try:
                await box.restore(snapshot)
            except BaseException:
                await box.close()
                raise
        return box

    async def expect(self, wanted: Iterable[tuple[SandboxSpec, int]]) -> None:
        """Keep this many boxes of each spec ready, and none of the specs that are not named."""
        targets = {spec.hash(): (check_spec(spec), number) for spec, number in wanted}
        for spec, _ in targets.values():
            await self._find_queue(spec)
        for key, queue in self._queues.items():
            queue.target = targets[key][1] if key in targets else 0
            self._fill(queue)
        self._evict()

    def stats(self) -> PoolStats:
        """Return counts and durations."""
        shelves = self._queues.values()
        return PoolStats(
            ready=sum(len(queue.ready) for queue in shelves),
            starting=sum(queue.num_starting for queue in shelves),
            running=len(self._taken),
            waiting=self._num_waiting,
            hits=self._hits,
            misses=self._misses,
            dead_at_hand_out=self._dead,
            failed_starts=self._failed,
            start_seconds_p50=quantile(self._start_seconds, 0.5),
            start_seconds_p99=quantile(self._start_seconds, 0.99),
            take_seconds_p50=quantile(self._take_seconds, 0.5),
            take_seconds_p99=quantile(self._take_seconds, 0.99),
        )

    async def close(self) -> None:
        """End every box and every kind; nothing of them is left when this returns."""
        self._is_closing = True
        for queue in self._queues.values():
            while queue.waiting:
                if not (waiter := queue.waiting.popleft()).done():
                    waiter.set_exception(SandboxError("sandbox: the pool was closed; open another"))
        while self._tasks:
            await asyncio.wait(self._tasks)
        boxes = [box for queue in self._queues.values() for box in queue.ready]
        await asyncio.gather(*(box.close() for box in (*boxes, *self._taken)), return_exceptions=True)
        await asyncio.gather(*(kind.close() for kind in self._kinds))

    async def fork(self, box: Sandbox, owner: str) -> Sandbox:
        """Fork a taken box when there is room for one more."""
        await self._room.acquire()
        try:
            other = await box.fork()
        except BaseException:
            self._room.release()
            raise
        other.owner = owner
        return self._lend(other, owner)

    def release(self, box: "PooledSandbox") -> None:
        """Make room for another one."""
        if box in self._taken:
            self._taken.remove(box)
            self._room.release()

    async def _take(self, spec: SandboxSpec, owner: str) -> Sandbox:
        queue = await self._find_queue(spec)
        queue.target = max(queue.target, self._options.ready_per_spec)
        self._queues.move_to_end(spec.hash())
        await self._room.acquire()
        try:
            return self._lend(await self._next_box(queue), owner)
        except BaseException:
            self._room.release()
            raise
        finally:
            self._fill(queue)

    async def _next_box(self, queue: _SpecQueue) -> Sandbox:
        while queue.ready:
            box = queue.ready.popleft()
            try:
                is_alive = await box.is_alive()
            except asyncio.CancelledError:
                queue.ready.appendleft(box)
                raise
            if is_alive:
                self._hits += 1
                return box
            self._dead += 1
            await box.close()
        self._misses += 1
        if self._is_closing:
            raise SandboxError("sandbox: the pool is closed; open another")
        waiter = queue.add_waiter()
        self._fill(queue)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                queue.ready.append(waiter.result())
            raise

    def _lend(self, box: Sandbox, owner: str) -> "PooledSandbox":
        lent = PooledSandbox(box, owner, self)
        self._taken.add(lent)
        return lent

    async def _find_queue(self, spec: SandboxSpec) -> _SpecQueue:
        """Return the queue of a spec. Its kind is chosen once, whatever becomes of the take that needed it."""
        key = spec.hash()
        if key not in self._queues:
            if key not in self._choices:
                self._choices[key] = self._run(self._choose(key, spec))
            await asyncio.shield(self._choices[key])
        return self._queues[key]

    async def _choose(self, key: str, spec: SandboxSpec) -> None:
        try:
            self._queues[key] = _SpecQueue(spec, await choose_kind(spec, self._kinds))
        finally:
            del self._choices[key]

    def _run(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run work that belongs to the pool."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # who waits for it gets it too

    def _fill(self, queue: _SpecQueue) -> None:
        """Start the boxes that are missing."""
        while queue.num_missing > 0 and not self._is_closing:
            queue.num_starting += 1
            self._run(self._start(queue))

    async def _start(self, queue: _SpecQueue) -> None:
        box = error = None
        try:
            await queue.wait_for_quiet()
            async with self._start_gate:
                began = time.monotonic()
                box = await queue.kind.start(queue.spec, owner=_UNOWNED)
                self._start_seconds.append(time.monotonic() - began)
        except AgentLayerError as failure:
            self._failed += 1
            error = failure
            queue.target = 0  # until the next take
        finally:
            queue.num_starting -= 1
        while queue.waiting:
            waiter = queue.waiting.popleft()
            if waiter.done():
                continue
            if error is not None:
                waiter.set_exception(error)
            elif box is not None:
                waiter.set_result(box)
            return
        if box is not None:
            queue.ready.append(box)
            self._evict()

    def _evict(self) -> None:
        """Close ready boxes beyond what is to be kept."""
        for queue in self._queues.values():
            while len(queue.ready) > max(queue.target, 0):
                self._discard(queue)
        for queue in self._queues.values():
            while queue.ready and sum(len(one.ready) for one in self._queues.values()) > self._options.max_ready:
                queue.target = min(queue.target, len(queue.ready) - 1)
                self._discard(queue)

    def _discard(self, queue: _SpecQueue) -> None:
        self._run(queue.ready.popleft().close())


class PooledSandbox(ForwardingSandbox):
    """A taken box; closing it makes room for another take."""

    def __init__(self, box: Sandbox, owner: str, pool: SandboxPool) -> None:
        super().__init__(box.id, box.kind, box.spec, owner)
        self._box = box
        self._pool = pool

    @property
    def ended(self) -> EndOfBox | None:
        """Why it ended before it was closed; None: it has not, or its kind does not tell."""
        return getattr(self._box, "ended", None)

    async def _call(self, request: BoxRequest[R]) -> R:
        return await request.perform(self._box)

    def _open(self, request: Open) -> AbstractAsyncContextManager[Process]:
        return request.perform(self._box)

    async def fork(self) -> Sandbox:
        """Return another box with the same work directory, which the pool counts as taken."""
        return await self._pool.fork(self._box, self.owner)

    async def close(self) -> None:
        """End the box."""
        try:
            await self._box.close()
        finally:
            self._pool.release(self)


@asynccontextmanager
async def open_pool(
    options: PoolOptions | None = None, *, kinds: Iterable[SandboxKind] | None = None
) -> AsyncGenerator[SandboxPool]:
    """Open a pool; at the end of the context all of its boxes end.

    Args:
        options: its bounds.
        kinds: to choose from; None: all that are registered.
    """
    pool = SandboxPool(
        [make_kind(name) for name in list_kind_names()] if kinds is None else kinds, options or PoolOptions()
    )
    try:
        yield pool
    finally:
        await pool.close()
