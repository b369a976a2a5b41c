"""Owners of boxes: what the supervisor holds for one attempt, and what a capability of it reaches."""

import asyncio
import errno
import hashlib
import hmac
import posixpath
import secrets
import tarfile
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Literal, TypeAlias, TypeVar

import msgspec

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.infra import BusyClock
from agent_layer.schema.sandbox import EndOfBox, ExecResult, Sandbox, SandboxSpec, SandboxUsage
from envs.channel import MAX_MESSAGE_LENGTH
from envs.sandbox.patterns import expand_patterns
from envs.sandbox.requests import Exec, Unpack, Write
from envs.sandbox.supervisor.budget import ByteBudget, RequestRoom
from envs.sandbox.supervisor.messages import BoxCall, BoxFacts, CollectedFiles, CommandTime

T = TypeVar("T")
Role: TypeAlias = Literal["agent", "scorer"]

_CAPABILITY_BYTES = 16
_MAX_FORKS = 8
"""Boxes that an agent may have beside its own."""
_EMPTY_ARCHIVE = bytes(tarfile.RECORDSIZE)
_ALIVE_TRIES = 5
"""A box that is starved of CPU may miss the second that ``is_alive`` waits."""


class Grant:
    """What one capability reaches.

    Args:
        owner: the attempt that it belongs to.
        role: an agent reaches its own box and the forks of it, a scorer takes fresh ones.
        spec: of a scorer's boxes that name none.
        max_boxes: boxes that it may have at the same time.
    """

    def __init__(self, owner: "Owner", role: Role, spec: SandboxSpec | None, max_boxes: int) -> None:
        self.owner = owner
        self.role: Role = role
        self.spec = spec
        self.boxes: dict[str, Sandbox] = {}
        self.touched: set[str] = set()
        """Boxes where a command began, or that got what is judged."""
        self._placed: set[tuple[str, str]] = set()
        self._made_at: dict[str, float] = {}
        self._box_seconds = 0.0
        self.num_starting = 0
        self.max_boxes = max_boxes
        self.is_revoked = False
        self._calls: set[asyncio.Task[None]] = set()
        self._on_revoked: set[Callable[[], None]] = set()

    def note_request(self, box: Sandbox, request: BoxCall) -> None:
        """Remember what a request says of the files of its box."""
        if isinstance(request, Exec) or (self.role == "scorer" and isinstance(request, Unpack)):
            self.touched.add(box.id)
        elif isinstance(request, Write):
            self.note_file(box, request.path)

    def note_file(self, box: Sandbox, path: str) -> None:
        """Remember a file that no command of the box made."""
        self._placed.add((box.id, find_place(box, path)))

    def note_fork(self, box_id: str, fork_id: str) -> None:
        """Remember what a fork began with."""
        self.touched.add(fork_id)
        self._placed |= {(fork_id, path) for one, path in self._placed if one == box_id}

    def has_placed(self, box: Sandbox, path: str) -> bool:
        """Whether the file, or folder of its work, was there whatever commands did."""
        place = find_place(box, path)
        return place == box.spec.workdir or (box.id, place) in self._placed

    def run(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a call, which ends with the grant."""
        task = asyncio.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    def watch(self, on_revoked: Callable[[], None]) -> None:
        """Call this when the grant is revoked."""
        self._on_revoked.add(on_revoked)

    def unwatch(self, on_revoked: Callable[[], None]) -> None:
        """End a ``watch``."""
        self._on_revoked.discard(on_revoked)

    @property
    def num_calls(self) -> int:
        """Calls that run now, of all its clients."""
        return len(self._calls)

    async def add_box(self, make: Coroutine[object, object, Sandbox]) -> Sandbox:
        """Make a box that the capability reaches from now on.

        Raises: BadInputError: there are as many as it may have. SandboxError: the grant was revoked meanwhile.
        """
        if len(self.boxes) + self.num_starting >= self.max_boxes:
            make.close()
            raise BadInputError(f"sandbox: at most {self.max_boxes} boxes at the same time; close one before")
        self.num_starting += 1
        try:
            box = await make
        finally:
            self.num_starting -= 1
        if self.is_revoked:
            await box.close()
            raise SandboxError("sandbox: its attempt has ended")
        self.boxes[box.id] = box
        self._made_at[box.id] = time.monotonic()
        return box

    async def remove_box(self, box_id: str) -> None:
        """End a box."""
        if (box := self.boxes.pop(box_id, None)) is not None:
            self._box_seconds += time.monotonic() - self._made_at.pop(box_id)
            await box.close()

    async def revoke(self) -> None:
        """Accept no further call, and end those that run; commands are killed."""
        self.is_revoked = True
        for task in list(self._calls):
            task.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
        for on_revoked in list(self._on_revoked):
            on_revoked()

    async def close(self) -> None:
        """Revoke it, and end its boxes."""
        await self.revoke()
        await asyncio.gather(*map(self.remove_box, list(self.boxes)))

    def box_seconds(self) -> float:
        """Return how long its boxes have existed so far, summed."""
        return self._box_seconds + sum(time.monotonic() - made_at for made_at in self._made_at.values())


class Owner:
    """One attempt, by its lease token.

    Args:
        token: the lease token.
        task: id of its task, for people.
        on_lost: called once when its box ends before the attempt has.
        requests: memory that long requests of all attempts share.
    """

    def __init__(self, token: str, task: str, on_lost: Callable[["Owner"], None], requests: ByteBudget) -> None:
        self.token = token
        self.task = task
        self.requests = RequestRoom(requests)
        self.results = ByteBudget(MAX_MESSAGE_LENGTH)
        self.num_clients = 0
        self.agent: Grant | None = None
        self.box: Sandbox | None = None
        self.scorers: set[Grant] = set()
        self._ended_scorers: list[Grant] = []
        self.lost: EndOfBox | None = None
        """None: the box is there, or has ended with the agent."""
        self.taken_at = time.time()
        self.timer: asyncio.TimerHandle | None = None
        self._on_lost = on_lost
        self._kind: str | None = None
        self._spec_hash: str | None = None
        self._boot_seconds: float | None = None
        self._agent_meter, self._scorer_meter = _Meter(), _Meter()
        self._num_scoring_boxes = 0
        self._commands = BusyClock()
        self._ends: dict[str, EndOfBox] = {}
        """By box."""

    def give_box(self, box: Sandbox, grant: Grant, boot_seconds: float) -> None:
        """Make this the attempt's box."""
        self.box, self.agent = box, grant
        self._kind, self._spec_hash, self._boot_seconds = box.kind, box.spec.hash(), boot_seconds

    def count_scoring_box(self) -> None:
        """Count a box of a scorer."""
        self._num_scoring_boxes += 1

    def count_exec(self, role: Role, result: ExecResult) -> None:
        """Count what a command used."""
        (self._agent_meter if role == "agent" else self._scorer_meter).add(result)

    @contextmanager
    def running_command(self, role: Role) -> Generator[None]:
        """Context manager for a command, whose time counts if it is the agent's."""
        with self._commands.running() if role == "agent" else nullcontext():
            yield

    def command_time(self) -> CommandTime:
        """Return how the commands of the agent spend its time."""
        clock = self._commands
        return CommandTime(seconds=clock.busy_seconds, quiet_seconds=clock.quiet_seconds)

    def note_end(self, box: Sandbox, grant: Grant, why: str) -> None:
        """Note that a box has ended; that of the agent ends its attempt.

        Args:
            box: the box, which may know why.
            grant: that reached it.
            why: what was seen, if it does not.
        """
        end = box.ended or make_loss(box.id, why)
        self._ends.setdefault(box.id, msgspec.structs.replace(end, role=grant.role))
        if grant.role == "agent":
            self.lose(end)

    def lose(self, end: EndOfBox) -> None:
        """Note that the attempt's box has ended."""
        if self.lost is None and self.agent is not None and not self.agent.is_revoked:
            self.lost = end
            self._on_lost(self)

    async def collect(self, paths: Iterable[str], max_bytes: int) -> CollectedFiles:
        """Freeze the box, take files out of it, and end it.

        Raises: SandboxError: the machine lost it; what it held is not known.
        """
        if self.agent is None or self.box is None:
            raise SandboxError("sandbox: the attempt has no box any more")
        await self.agent.revoke()
        try:
            wanted = list(paths)
            why = f"sandbox {self.box.id}: the box was lost"
            if self.lost is None and await _is_alive(self.box):
                try:
                    return await self._take_files(self.box, wanted, max_bytes)
                except SandboxError as error:
                    why = str(error)
            if self.lost is None:
                self.note_end(self.box, self.agent, why)
            end = self.lost or self._ends[self.box.id]
            if end.cause != "policy":
                raise SandboxError(end.why)
            archive = _EMPTY_ARCHIVE if wanted else None
            return CollectedFiles(archive=archive, missing=wanted, end=end, usage=self.usage())
        finally:
            await self.close_agent()

    async def close_agent(self) -> None:
        """End the agent's boxes."""
        if self.timer is not None:
            self.timer.cancel()
        if self.agent is not None:
            await self.agent.close()
        self.box = None

    async def close_scorers(self) -> None:
        """End the boxes of scorers."""
        grants, self.scorers = list(self.scorers), set()
        self._ended_scorers += grants
        await asyncio.gather(*(grant.close() for grant in grants))

    def usage(self) -> SandboxUsage:
        """Return what its boxes have used."""
        agent, scorer = self._agent_meter, self._scorer_meter
        scorers = [*self._ended_scorers, *self.scorers]
        return SandboxUsage(
            kind=self._kind,
            spec_hash=self._spec_hash,
            boot_seconds=self._boot_seconds,
            exec_seconds=agent.seconds,
            num_execs=agent.num,
            cpu_seconds=agent.cpu_seconds,
            peak_memory_mb=agent.peak_memory_mb,
            output_bytes=agent.output_bytes,
            scoring_seconds=scorer.seconds if self._num_scoring_boxes else None,
            num_scoring_boxes=self._num_scoring_boxes,
            box_seconds=None if self.agent is None else self.agent.box_seconds(),
            scoring_box_seconds=sum(one.box_seconds() for one in scorers) if self._num_scoring_boxes else None,
            command_seconds=self._commands.busy_seconds,
            ends=[*self._ends.values()],
        )

    async def _take_files(self, box: Sandbox, paths: list[str], max_bytes: int) -> CollectedFiles:
        if not paths:
            return CollectedFiles(usage=self.usage())
        left, missing = await expand_patterns(box.list, paths)
        try:
            archive = await _pack(box, left)
        except OSError:  # the agent left what its own user cannot read, or a tree that is too deep for paths
            readable = [path for path in left if await _is_readable(box, path)]
            archive = await _pack(box, readable)
            missing += [path for path in left if path not in readable]
        if archive is None or len(archive) > max_bytes:
            return CollectedFiles(archive=_EMPTY_ARCHIVE, too_large=True, usage=self.usage())
        return CollectedFiles(archive=archive, missing=missing, usage=self.usage())


class _Meter:
    """What commands have used."""

    def __init__(self) -> None:
        self.num = 0
        self.seconds = 0.0
        self.cpu_seconds: float | None = None
        self.peak_memory_mb: float | None = None
        self.output_bytes = 0

    def add(self, result: ExecResult) -> None:
        self.num += 1
        self.seconds += result.seconds
        self.output_bytes += len(result.stdout) + len(result.stderr)
        if result.cpu_seconds is not None:
            self.cpu_seconds = (self.cpu_seconds or 0.0) + result.cpu_seconds
        if result.peak_memory_mb is not None:
            self.peak_memory_mb = max(self.peak_memory_mb or 0.0, result.peak_memory_mb)


class Capabilities:
    """Capabilities that open something, by their hash, so that how long a search takes tells nothing of them."""

    def __init__(self) -> None:
        self._grants: dict[bytes, tuple[str, Grant]] = {}

    def mint(self, grant: Grant) -> str:
        """Return a new capability, of 128 random bits."""
        capability = secrets.token_hex(_CAPABILITY_BYTES)
        self._grants[_hash(capability)] = capability, grant
        return capability

    def find(self, capability: str) -> Grant | None:
        """Return what a capability opens; None: nothing."""
        known, grant = self._grants.get(_hash(capability), (None, None))
        if known is None or grant is None or grant.is_revoked:
            return None
        return grant if hmac.compare_digest(known.encode(), capability.encode()) else None

    def forget(self, owner: Owner) -> None:
        """Forget the capabilities of an attempt."""
        self._grants = {key: one for key, one in self._grants.items() if one[1].owner is not owner}


def find_place(box: Sandbox, path: str) -> str:
    """Return the absolute path of a file of a box."""
    return posixpath.normpath(posixpath.join(box.spec.workdir, path))


def make_agent_grant(owner: Owner) -> Grant:
    """Return what an agent reaches."""
    return Grant(owner, "agent", None, 1 + _MAX_FORKS)


def make_loss(box_id: str, why: str) -> EndOfBox:
    """Return the end of a box that the machine lost."""
    return EndOfBox(box=box_id, cause="infra", reason="gone", why=why, ended_at=time.time())


def describe_box(box: Sandbox) -> BoxFacts:
    """Return what a client knows of a box."""
    return BoxFacts(id=box.id, kind=box.kind, spec=box.spec, owner=box.owner)


def _hash(capability: str) -> bytes:
    return hashlib.sha256(capability.encode()).digest()


async def _is_alive(box: Sandbox) -> bool:
    for _ in range(_ALIVE_TRIES):
        began = time.monotonic()
        if await box.is_alive():
            return True
        if time.monotonic() - began < 0.5:  # it refused rather than missed the second
            return False
    return False


async def _pack(box: Sandbox, paths: Sequence[str]) -> bytes | None:
    """Return an archive; None: it is larger than a box should be. Raises: OSError: a path cannot be read."""
    if not paths:
        return _EMPTY_ARCHIVE
    try:
        return (await box.snapshot(paths)).archive
    except OSError as error:
        if error.errno == errno.EFBIG:
            return None
        raise


async def _is_readable(box: Sandbox, path: str) -> bool:
    with suppress(OSError):
        await _pack(box, [path])
        return True
    return False
