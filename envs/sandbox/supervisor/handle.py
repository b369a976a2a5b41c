"""The worker's side of its supervisor: started at the first need, started again when it has died."""

import asyncio
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from agent_layer.errors import SandboxError
from agent_layer.infra import Backoff, RestartHistory, RestartPolicy, hold_owned_directory
from agent_layer.schema.sandbox import EndOfBox, SandboxSpec, SandboxUsage
from agent_layer.settings import Settings, program_environment
from agent_layer.state import TakenSandbox, make_supervisor_directory
from envs.channel import Channel, connect
from envs.sandbox.pool import PoolOptions, PoolStats
from envs.sandbox.spec import PATH
from envs.sandbox.supervisor.calls import PendingCalls, decoder
from envs.sandbox.supervisor.messages import (
    AllowScoring,
    Begin,
    BoxLost,
    Collect,
    CollectedFiles,
    CommandTime,
    EndOwner,
    EndScoring,
    Expect,
    GetCommandTime,
    GetStats,
    GetUsage,
    ListBoxes,
    ListOffers,
    OwnerCall,
    OwnerRequest,
    SupervisorToOwner,
    TakeBox,
    TakenBox,
    Welcome,
)
from envs.sandbox.supervisor.owners import make_loss

T = TypeVar("T")

_PASSED_ON: Final = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "TMPDIR", "LANG", "VIRTUAL_ENV")
"""Variables without which the supervisor might not find its own code; it gets no others, and so no keys."""
_GONE: Final = "sandbox: its supervisor has ended, and all boxes with it"
_RESTARTS: Final = RestartPolicy(healthy_seconds=10.0, backoff=Backoff(0.1, 10.0))
_START_SECONDS = 60.0
_COLLECT_SECONDS = 180.0
_END_SECONDS = 15.0
_FROM_SUPERVISOR: msgspec.msgpack.Decoder[SupervisorToOwner] = msgspec.msgpack.Decoder(SupervisorToOwner)
_TAKEN = decoder(TakenBox)
_COLLECTED = decoder(CollectedFiles)
_USAGE = decoder(SandboxUsage)
_TIME = decoder(CommandTime)
_STATS = decoder(PoolStats)
_ROWS = decoder(list[TakenSandbox])
_TEXT = decoder(str)
_TEXTS = decoder(list[str])
_NOTHING = decoder(type(None))


class _SupervisorProcess:
    """A supervisor that runs.

    Args:
        process: the process.
        control: the worker's end of the socket to it.
        directory: with its socket.
    """

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket, directory: Path) -> None:
        self.process = process
        self.control = control
        self.directory = directory
        self.calls = PendingCalls(_GONE, self.kill)
        self.welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.channel: Channel[SupervisorToOwner]
        self.began = time.monotonic()

    def kill(self) -> None:
        """Kill the process: it hangs; the keepers end the boxes."""
        with suppress(ProcessLookupError):
            self.process.kill()

    async def end(self) -> None:
        """Close the connection, and wait until the process has ended its boxes; kill it when it does not."""
        self.channel.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self.process.wait()
        except TimeoutError:
            self.kill()
            await self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


class SupervisorHandle:
    """The supervisor of one worker.

    Args:
        settings: of the worker; the supervisor gets those that kinds of sandbox need.
        options: bounds of its pool.
    """

    def __init__(self, settings: Settings | None = None, options: PoolOptions | None = None) -> None:
        self._variables = {} if settings is None else {"AGENT_LAYER_DOCKER_HOST": settings.docker_host}
        self._options = options or PoolOptions()
        self._running: _SupervisorProcess | None = None
        self._starting = asyncio.Lock()
        self._history = RestartHistory(_RESTARTS)
        self._on_lost: dict[str, Callable[[EndOfBox], None]] = {}
        self.answer_seconds = 60.0
        """An answer that takes this much longer than its own limit will not come: the supervisor is killed."""
        self._is_closed = False
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def is_running(self) -> bool:
        """Whether there is a supervisor now."""
        return self._running is not None

    @property
    def process_id(self) -> int | None:
        """Of the running supervisor."""
        return None if self._running is None else self._running.process.pid

    async def take_box(self, request: TakeBox, on_lost: Callable[[EndOfBox], None]) -> TakenBox:
        """Take the box of an attempt.

        Args:
            request: what it has to be, and for whom.
            on_lost: called with the reason when it ends before the attempt has.

        Raises:
            BadInputError: no box can be made of this spec, or a file has no place in it.
            SandboxError: the machine could not make one, or not in time.
        """
        self._on_lost[request.owner] = on_lost
        try:
            return await self._call(request, _TAKEN, request.seconds + self.answer_seconds)
        except BaseException:
            await self.end_owner(request.owner)
            raise

    async def collect(self, owner: str, paths: Iterable[str], max_bytes: int) -> CollectedFiles:
        """Freeze the box of an attempt, take files out of it, and end it.

        Raises: SandboxError: it was lost.
        """
        self._on_lost.pop(owner, None)
        return await self._call(Collect(owner=owner, paths=[*paths], max_bytes=max_bytes), _COLLECTED, _COLLECT_SECONDS)

    async def allow_scoring(self, owner: str, task: str, spec: SandboxSpec | None, max_boxes: int) -> str:
        """Return the address at which a scorer of this attempt gets fresh boxes."""
        request = AllowScoring(owner=owner, task=task, spec=spec, max_boxes=max_boxes)
        return await self._call(request, _TEXT, self.answer_seconds)

    async def end_scoring(self, owner: str) -> SandboxUsage | None:
        """End the boxes of an attempt's scorers; return what all of its boxes have used, None: the supervisor died."""
        with suppress(SandboxError):
            await self._call_running(EndScoring(owner=owner), _NOTHING)
            return await self._call_running(GetUsage(owner=owner), _USAGE)
        return None

    async def end_owner(self, owner: str) -> None:
        """End everything that an attempt has, if there is anything left."""
        self._on_lost.pop(owner, None)
        with suppress(SandboxError):  # it is gone, and its boxes too
            await self._call_running(EndOwner(owner=owner), _NOTHING)

    async def command_time(self, owner: str) -> CommandTime:
        """Return how the commands of an attempt's agent spend its time; nothing where its supervisor died."""
        with suppress(SandboxError):
            return await self._call_running(GetCommandTime(owner=owner), _TIME)
        return CommandTime()

    async def expect(self, wanted: Iterable[tuple[SandboxSpec, int]]) -> None:
        """Keep this many boxes of each spec ready; a machine that cannot make one has no effect here."""
        with suppress(SandboxError):
            await self._call_running(Expect(wanted=[*wanted]), _NOTHING)

    async def require(self, spec: SandboxSpec) -> None:
        """Start, and have a box of this spec ready soon.

        Raises:
            BadInputError: no kind is as the spec asks.
            SandboxError: none of them works on this machine.
        """
        await self._call(Expect(wanted=[(spec, 1)]), _NOTHING, _COLLECT_SECONDS)

    async def stats(self) -> PoolStats:
        """Return the counts of the pool."""
        return await self._call(GetStats(), _STATS, self.answer_seconds)

    async def list_boxes(self) -> list[TakenSandbox]:
        """Return the boxes that are taken."""
        return await self._call_running(ListBoxes(), _ROWS) if self.is_running else []

    async def list_offers(self) -> list[str]:
        """Return the needs of tasks that this machine's kinds meet; it tries each kind."""
        return await self._call(ListOffers(), _TEXTS, _COLLECT_SECONDS)

    async def close(self) -> None:
        """End the supervisor and all boxes."""
        self._is_closed = True
        self._on_lost.clear()
        async with self._starting:
            running = self._running
        if running is not None:
            await running.end()
        if self._ending:
            await asyncio.wait(self._ending)

    async def _call(self, request: OwnerRequest, kind: Callable[[msgspec.Raw], T], seconds: float) -> T:
        running = await self._ensure_running()
        return await _send(running, request, kind, seconds)

    async def _call_running(self, request: OwnerRequest, kind: Callable[[msgspec.Raw], T]) -> T:
        if self._running is None:
            raise SandboxError(_GONE)
        return await _send(self._running, request, kind, self.answer_seconds)

    async def _ensure_running(self) -> _SupervisorProcess:
        async with self._starting:
            if self._is_closed:
                raise SandboxError("sandbox: the worker ends")
            if self._running is None:
                await asyncio.sleep(self._history.delay_seconds)
                self._running = await self._start()
            return self._running

    async def _start(self) -> _SupervisorProcess:
        """Start a supervisor, and wait until it accepts clients."""
        running = await _spawn(self._variables)

        def on_message(message: SupervisorToOwner) -> None:
            match message:
                case Welcome():
                    running.welcome.set_result(None)
                case BoxLost(owner=owner, end=end):
                    if (on_lost := self._on_lost.pop(owner, None)) is not None:
                        on_lost(end)
                case _:
                    running.calls.on_answer(message)

        running.channel = await connect(running.control, _FROM_SUPERVISOR, on_message)
        running.channel.closed.add_done_callback(lambda _: self._on_gone(running))
        running.channel.send(Begin(options=self._options))
        try:
            async with asyncio.timeout(_START_SECONDS):
                await running.welcome
        except BaseException as error:
            await running.end()
            if isinstance(error, TimeoutError):
                raise SandboxError(f"sandbox: its supervisor was not up within {_START_SECONDS:g} s") from error
            raise
        return running

    def _on_gone(self, running: _SupervisorProcess) -> None:
        """Note that a supervisor is gone; its boxes are too."""
        if not running.welcome.done():
            running.welcome.set_exception(SandboxError("sandbox: its supervisor ended when it started"))
            running.welcome.exception()  # the start may have been given up
        running.calls.fail_all()
        shutil.rmtree(running.directory, ignore_errors=True)
        task = asyncio.create_task(running.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        if self._running is running:
            self._running = None
        if not self._is_closed:
            self._history.record_exit(time.monotonic() - running.began)
        lost, self._on_lost = self._on_lost, {}
        for on_lost in lost.values():
            on_lost(make_loss("", _GONE))


async def _send(
    running: _SupervisorProcess, request: OwnerRequest, kind: Callable[[msgspec.Raw], T], seconds: float
) -> T:
    number = running.calls.next_number()
    call = OwnerCall(number=number, request=request)
    return await running.calls.send(running.channel, number, call, kind, seconds)


async def _spawn(variables: Mapping[str, str]) -> _SupervisorProcess:
    """Start the process, with a directory for its socket that shows by a lock whether either side is alive.

    Args:
        variables: what it gets of the worker's settings.
    """
    with ExitStack() as stack:
        undo = stack.enter_context(ExitStack())
        directory = make_supervisor_directory()
        undo.callback(shutil.rmtree, directory, ignore_errors=True)
        lock = hold_owned_directory(directory)
        stack.callback(os.close, lock)
        ours, theirs = socket.socketpair()
        undo.callback(ours.close)
        stack.callback(theirs.close)
        number = str(theirs.fileno())
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "envs.sandbox.supervisor"),
                *(number, str(directory / "socket"), str(os.getpid())),
                env={"PATH": PATH}
                | {name: value for name, value in program_environment().items() if name in _PASSED_ON}
                | {**variables},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), lock],
                start_new_session=True,  # Ctrl-C is for the worker
            )
        except OSError as error:
            raise SandboxError(
                f"sandbox: its supervisor does not start, {error}; look at the machine's limits"
            ) from error
        undo.pop_all()
    return _SupervisorProcess(process, ours, directory)
