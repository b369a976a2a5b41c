"""Sandboxes as clients of a supervisor see them: the protocol of a box, over a connection."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.schema.sandbox import (
    EXEC_SECONDS,
    MAX_FILE,
    MAX_OUTPUT,
    Entry,
    ExecResult,
    Process,
    Sandbox,
    SandboxSpec,
    Snapshot,
)
from envs.channel import Channel
from envs.sandbox import TAKE_SECONDS
from envs.sandbox.supervisor.calls import PendingCalls, decoder
from envs.sandbox.supervisor.messages import (
    BoxCall,
    BoxFacts,
    Call,
    ClientRequest,
    CloseBox,
    Exec,
    Fork,
    FromSupervisor,
    Hello,
    ListFolder,
    Open,
    Output,
    Pack,
    Ping,
    Read,
    StdinAck,
    TakeFresh,
    Unpack,
    Welcome,
    Write,
)
from envs.sandbox.supervisor.remote_process import RemoteProcess

T = TypeVar("T")

_FROM_SUPERVISOR: msgspec.msgpack.Decoder[FromSupervisor] = msgspec.msgpack.Decoder(FromSupervisor)
_GONE = "sandbox: its supervisor is gone, or the attempt has ended"
_CONNECT_SECONDS = 20.0
_CLOSE_SECONDS = 5.0
_MARGIN_SECONDS = 60.0
"""An answer that takes this much longer than its own limit will not come."""
_FILE_SECONDS = 120.0
_MAX_PROCESS_SECONDS = 7 * 24 * 3600.0
_RESULT = decoder(ExecResult)
_FACTS = decoder(BoxFacts)
_BYTES = decoder(bytes)
_ENTRIES = decoder(tuple[Entry, ...])
_YES = decoder(bool)
_NOTHING = decoder(type(None))


class Link:
    """A connection to a supervisor, made at the first call.

    Args:
        address: path of the socket, and capability.
    """

    def __init__(self, address: str) -> None:
        path, mark, capability = address.rpartition("#")
        if not (path and mark and capability):
            raise BadInputError("sandbox: expected an address such as PATH#CAPABILITY; take it from the attempt")
        self._path = path
        self._capability = capability
        self._channel: Channel[FromSupervisor] | None = None
        self._connecting = asyncio.Lock()
        self._welcome: asyncio.Future[Welcome] | None = None
        self._calls = PendingCalls(_GONE)
        self._live: dict[int, RemoteProcess] = {}

    async def open(self) -> Welcome:
        """Connect, unless that was done.

        Raises: SandboxError: the supervisor is gone, or the capability opens nothing.
        """
        async with self._connecting:
            if self._welcome is None:
                self._welcome = await self._connect()
        return self._welcome.result()

    async def call(self, request: ClientRequest, kind: Callable[[msgspec.Raw], T], seconds: float) -> T:
        """Carry out a call; raises what it raised there."""
        await self.open()
        assert self._channel is not None
        number = self._calls.next_number()
        return await self._calls.send(self._channel, number, Call(number=number, request=request), kind, seconds)

    @asynccontextmanager
    async def run_live(self, request: Open) -> AsyncGenerator[RemoteProcess]:
        """Run a live process; it is killed at the end of the context."""
        await self.open()
        assert self._channel is not None
        number = self._calls.next_number()
        process = self._live[number] = RemoteProcess(number, self._channel, pty=request.pty)
        call = Call(number=number, request=request)
        ended = asyncio.create_task(self._calls.send(self._channel, number, call, _RESULT, _MAX_PROCESS_SECONDS))
        try:
            await process.start(ended)
            yield process
        finally:
            try:
                await process.end()
            finally:
                del self._live[number]
                ended.cancel()

    async def close(self) -> None:
        """Close the connection; a scorer's boxes end with it."""
        if self._channel is not None:
            self._channel.close()
            await asyncio.wait({self._channel.closed}, timeout=_CLOSE_SECONDS)
            self._channel.abort()

    async def _connect(self) -> asyncio.Future[Welcome]:
        welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()

        def on_message(message: FromSupervisor) -> None:
            if isinstance(message, Welcome):
                welcome.set_result(message)
            else:
                self._on_message(message)

        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, channel = await asyncio.get_running_loop().create_unix_connection(
                    lambda: Channel(_FROM_SUPERVISOR, on_message), self._path
                )
                channel.closed.add_done_callback(lambda _: self._on_closed(welcome))
                channel.send(Hello(capability=self._capability))
                await welcome
        except OSError as error:  # a time-out too
            raise SandboxError(f"{_GONE}: {error or 'no answer'}") from error
        self._channel = channel
        return welcome

    def _on_message(self, message: FromSupervisor) -> None:
        match message:
            case Welcome():
                return
            case Output() | StdinAck():
                if (live := self._live.get(message.number)) is not None:
                    live.on_message(message)
            case _:
                self._calls.on_answer(message)

    def _on_closed(self, welcome: asyncio.Future[Welcome]) -> None:
        if not welcome.done():
            welcome.set_exception(SandboxError(f"{_GONE}; or the capability is wrong"))
        self._calls.fail_all()
        for live in self._live.values():
            live.on_gone()


class RemoteSandbox:
    """A box behind a supervisor. Contract: ``Sandbox``.

    An attempt's own box that is closed is closed for this client; the worker takes its artifacts, and ends it.

    Args:
        link: connection to the supervisor.
        facts: what is known of the box.
    """

    def __init__(self, link: Link, facts: BoxFacts) -> None:
        self.id = facts.id
        self.kind = facts.kind
        self.spec = facts.spec
        self.owner = facts.owner
        self._link = link
        self._is_closed = False

    async def exec(  # the protocol's own signature
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        seconds: float = EXEC_SECONDS,
        max_output: int = MAX_OUTPUT,
    ) -> ExecResult:
        """Run a command to its end."""
        request = Exec(
            box=self.id,
            argv=_arguments(argv),
            stdin=stdin,
            cwd=cwd,
            env=None if env is None else dict(env),
            seconds=seconds,
            max_output=max_output,
        )
        began = time.monotonic()
        try:
            return await self._call(request, _RESULT, seconds + _MARGIN_SECONDS)
        except SandboxError:  # it may have run in part
            return ExecResult(status="gone", truncated=True, seconds=time.monotonic() - began)

    @asynccontextmanager
    async def open(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None, pty: bool = False
    ) -> AsyncGenerator[Process]:
        """Start a command with live stdio."""
        variables = None if env is None else dict(env)
        request = Open(box=self.id, argv=_arguments(argv), cwd=cwd, env=variables, pty=pty)
        self._check_open()
        async with self._link.run_live(request) as process:
            yield process

    async def read(self, path: str, *, max_bytes: int = MAX_FILE) -> bytes:
        """Return the content of a regular file."""
        return await self._call(Read(box=self.id, path=path, max_bytes=max_bytes), _BYTES, _FILE_SECONDS)

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file."""
        await self._call(Write(box=self.id, path=path, content=data, mode=mode), _NOTHING, _FILE_SECONDS)

    async def list(self, path: str = ".") -> Sequence[Entry]:
        """Return what a directory contains."""
        return await self._call(ListFolder(box=self.id, path=path), _ENTRIES, _FILE_SECONDS)

    async def snapshot(self, paths: Sequence[str] = (".",)) -> Snapshot:
        """Return files below the work directory."""
        return Snapshot(archive=await self._call(Pack(box=self.id, paths=[*paths]), _BYTES, _FILE_SECONDS))

    async def restore(self, snapshot: Snapshot) -> None:
        """Add the files of a snapshot to the work directory."""
        await self._call(Unpack(box=self.id, archive=snapshot.archive), _NOTHING, _FILE_SECONDS)

    async def fork(self) -> Sandbox:
        """Return another box with the same work directory."""
        return RemoteSandbox(self._link, await self._call(Fork(box=self.id), _FACTS, _FILE_SECONDS))

    async def is_alive(self) -> bool:
        """Whether the box still answers."""
        try:
            return await self._call(Ping(box=self.id), _YES, _MARGIN_SECONDS)
        except (SandboxError, BadInputError):
            return False

    async def close(self) -> None:
        """End the box."""
        if self._is_closed:
            return
        try:
            await self._call(CloseBox(box=self.id), _NOTHING, _FILE_SECONDS)
        except (SandboxError, BadInputError):  # it has ended
            return
        finally:
            self._is_closed = True

    async def _call(self, request: BoxCall, kind: Callable[[msgspec.Raw], T], seconds: float) -> T:
        self._check_open()
        return await self._link.call(request, kind, seconds)

    def _check_open(self) -> None:
        if self._is_closed:
            raise SandboxError(f"sandbox {self.id}: the box was closed; take another")


class SandboxConnection:
    """What a capability reaches.

    Args:
        link: an open connection.
        facts: of the attempt's box; None: there is none to reach.
    """

    def __init__(self, link: Link, facts: BoxFacts | None) -> None:
        self._link = link
        self._box = None if facts is None else RemoteSandbox(link, facts)

    @property
    def box(self) -> Sandbox:
        """The attempt's box.

        Raises: BadInputError: this is a scorer's connection.
        """
        if self._box is None:
            raise BadInputError("sandbox: a scorer does not reach the agent's box; take a fresh one")
        return self._box

    async def take(self, spec: SandboxSpec | None = None, *, seconds: float = TAKE_SECONDS) -> Sandbox:
        """Return a fresh box, for scorers; it ends with the connection at the latest.

        Args:
            spec: None: that of the attempt's own box.
            seconds: longest wait for it.

        Raises:
            BadInputError: this is an agent's connection, or it has as many boxes as it may.
            SandboxError: the machine could not make one, or not in time.
        """
        request = TakeFresh(spec=spec, seconds=seconds)
        return RemoteSandbox(self._link, await self._link.call(request, _FACTS, seconds + _MARGIN_SECONDS))


@asynccontextmanager
async def connect_sandbox(address: str) -> AsyncGenerator[SandboxConnection]:
    """Connect to a supervisor.

    Args:
        address: socket and capability, as the worker gives them to an attempt or a scorer.

    Raises: SandboxError: the supervisor is gone, or the capability opens nothing.
    """
    link = Link(address)
    try:
        yield SandboxConnection(link, (await link.open()).box)
    finally:
        await link.close()


class AttemptSandbox(RemoteSandbox):
    """The box of an attempt, whose connection is made at the first use.

    Args:
        facts: what is known of the box.
        address: socket and capability.
    """

    def __init__(self, facts: BoxFacts, address: str) -> None:
        super().__init__(Link(address), facts)
        self.facts = facts
        self.address = address

    async def disconnect(self) -> None:
        """Close the connection, if there is one."""
        await self._link.close()


def _arguments(argv: Sequence[str]) -> list[str]:
    """Return a command as a list. Raises: ValueError: it is one text."""
    if isinstance(argv, str):
        raise ValueError(f"sandbox: expected a command as a list of program and arguments, found {argv!r}")  # noqa: TRY004  # as boxes do
    return list(argv)
