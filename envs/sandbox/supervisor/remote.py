"""Sandboxes as clients of a supervisor see them: the protocol of a box, over a connection."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import msgspec

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.schema.sandbox import Entry, ExecResult, Process, Sandbox, SandboxSpec
from envs.channel import Channel
from envs.sandbox.pool import TAKE_SECONDS
from envs.sandbox.requests import (
    BoxRequest,
    CloseBox,
    Exec,
    Fork,
    ForwardingSandbox,
    ListFolder,
    Open,
    Pack,
    Ping,
    Read,
    Unpack,
    Write,
)
from envs.sandbox.supervisor.calls import PendingCalls, decoder
from envs.sandbox.supervisor.messages import (
    BoxCall,
    BoxFacts,
    Call,
    ClientRequest,
    FromSupervisor,
    Hello,
    Output,
    StdinAck,
    TakeFresh,
    Welcome,
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
_NOT_STARTED = 125
"""Exit code of a command that could not be started."""
_MAX_PROCESS_SECONDS = 7 * 24 * 3600.0
_RESULT = decoder(ExecResult)
_FACTS = decoder(BoxFacts)
_YES = decoder(bool)
_BYTES, _NOTHING = decoder(bytes), decoder(type(None))
_ANSWERS: Mapping[type[BoxRequest[Any]], Callable[[msgspec.Raw], Any]] = {
    Read: _BYTES,
    Write: _NOTHING,
    ListFolder: decoder(tuple[Entry, ...]),
    Pack: _BYTES,
    Unpack: _NOTHING,
    CloseBox: _NOTHING,
}


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
            match message:
                case Welcome():
                    welcome.set_result(message)
                case Output() | StdinAck():
                    if (live := self._live.get(message.number)) is not None:
                        live.on_message(message)
                case _:
                    self._calls.on_answer(message)

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

    def _on_closed(self, welcome: asyncio.Future[Welcome]) -> None:
        if not welcome.done():
            welcome.set_exception(SandboxError(f"{_GONE}; or the capability is wrong"))
        self._calls.fail_all()
        for live in self._live.values():
            live.on_gone()


class RemoteSandbox(ForwardingSandbox):
    """A box behind a supervisor.

    An attempt's own box that is closed is closed for this client; the worker takes its artifacts, and ends it.

    Args:
        link: connection to the supervisor.
        facts: what is known of the box.
    """

    def __init__(self, link: Link, facts: BoxFacts) -> None:
        super().__init__(facts.id, facts.kind, facts.spec, facts.owner)
        self._link = link
        self._is_closed = False

    async def _call(self, request: BoxRequest[T]) -> T:
        return await self._send(cast("BoxCall", request), _ANSWERS[type(request)], _FILE_SECONDS)

    async def _exec(self, request: Exec) -> ExecResult:
        began = time.monotonic()
        try:
            return await self._send(request, _RESULT, request.seconds + _MARGIN_SECONDS)
        except UnicodeEncodeError as error:  # half a surrogate pair, which no program can receive
            return ExecResult(status="exited", exit_code=_NOT_STARTED, stderr=f"sandbox: {error}".encode())
        except SandboxError:  # it may have run in part
            return ExecResult(status="gone", truncated=True, seconds=time.monotonic() - began)

    @asynccontextmanager
    async def _open(self, request: Open) -> AsyncGenerator[Process]:
        self._check_open()
        async with self._link.run_live(request) as process:
            yield process

    async def fork(self) -> Sandbox:
        """Return another box with the same work directory."""
        return RemoteSandbox(self._link, await self._send(Fork(box=self.id), _FACTS, _FILE_SECONDS))

    async def is_alive(self) -> bool:
        """Whether the box still answers."""
        try:
            return await self._send(Ping(box=self.id), _YES, _MARGIN_SECONDS)
        except (SandboxError, BadInputError):
            return False

    async def close(self) -> None:
        """End the box."""
        if self._is_closed:
            return
        try:
            await super().close()
        except (SandboxError, BadInputError):  # it has ended
            return
        finally:
            self._is_closed = True

    async def _send(self, request: ClientRequest, kind: Callable[[msgspec.Raw], T], seconds: float) -> T:
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
