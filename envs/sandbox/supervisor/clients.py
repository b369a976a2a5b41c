"""One connected client of the supervisor: agents, scorers and commands, each with a capability."""

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import assert_never

import msgspec
from msgspec.structs import replace

from agent_layer.errors import AgentLayerError, BadInputError, BoxExhaustedError, SandboxError
from agent_layer.schema.sandbox import ExecResult, Sandbox, SandboxSpec
from envs.channel import MAX_MESSAGE_LENGTH, Channel
from envs.sandbox.requests import CloseBox, Exec, Fork, ListFolder, Open, Pack, Read, Unpack, Write
from envs.sandbox.supervisor.live import LiveStdio
from envs.sandbox.supervisor.messages import (
    MAX_HELLO_LENGTH,
    Answer,
    BoxCall,
    Call,
    Cancel,
    ClientRequest,
    Failure,
    FlowControl,
    Hello,
    Kill,
    StdinChunk,
    TakeFresh,
    ToSupervisor,
    Welcome,
    make_failure,
)
from envs.sandbox.supervisor.owners import Grant, describe_box, find_place

_HELLO_SECONDS = 10.0
"""Seconds for a client to present its capability."""
_MAX_CALLS = 256
"""Calls of one client at the same time; one more ends the connection."""
_MAX_CALLS_OF_ALL = 1024
"""The same for all clients with one capability."""
_MAX_CLIENTS = 64
"""Connections of one attempt at the same time; one more is refused."""
_MAX_RESULT_LENGTH = MAX_MESSAGE_LENGTH >> 1
_MAX_LIST_LENGTH = 16 << 20
_FULL = frozenset(
    (errno.EAGAIN, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC)
)
"""Errors of a box that is full."""
_NO_FILE = frozenset(
    (
        *(errno.EACCES, errno.EEXIST, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENXIO),
        *(errno.EPERM, errno.EROFS, errno.ETXTBSY, errno.EXDEV),
    )
)
"""Errors of what commands put in the place of a file. Who reads what they should make has to expect its absence."""
_COMMANDS_WRITE = ("/tmp", "/dev/shm", "/run")
"""Folders where commands can put something, beside the work directory."""
_FROM_CLIENT: msgspec.msgpack.Decoder[ToSupervisor] = msgspec.msgpack.Decoder(ToSupervisor)
_NOTHING = msgspec.Raw(msgspec.msgpack.encode(None))
_log = logging.getLogger(__name__)


class Client:
    """A connection, from its capability to its end.

    Args:
        find_grant: returns what a capability opens.
        take: makes a fresh box: spec, owner, seconds.
    """

    def __init__(
        self,
        find_grant: Callable[[str], Grant | None],
        take: Callable[[SandboxSpec, str, float], Coroutine[object, object, Sandbox]],
    ) -> None:
        self._find_grant = find_grant
        self._take = take
        self.channel: Channel[ToSupervisor] = Channel(_FROM_CLIENT, self._on_message, MAX_HELLO_LENGTH)
        self._grant: Grant | None = None
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._answered: set[int] = set()
        """Calls whose answer the client has not read."""
        self._live: dict[int, LiveStdio] = {}
        self._fresh: set[str] = set()
        """Boxes that end with this connection."""
        self.channel.closed.add_done_callback(lambda _: self._on_closed())
        self._deadline = asyncio.get_running_loop().call_later(_HELLO_SECONDS, self.channel.abort)

    def _on_message(self, message: ToSupervisor) -> None:
        if isinstance(message, Hello):
            self._open(message.capability)
        elif self._grant is None or self._grant.is_revoked:
            self.channel.abort()
        else:
            self._on_request(message, self._grant)

    def _on_request(self, message: Call | Cancel | Kill | StdinChunk | FlowControl, grant: Grant) -> None:
        match message:
            case Call(number=number):
                is_full = len(self._calls) >= _MAX_CALLS or grant.num_calls >= _MAX_CALLS_OF_ALL
                if is_full or number in self._calls:
                    raise ValueError("too many calls at the same time")
                held = self.channel.take_held()
                task = self._calls[number] = grant.run(self._answer(message, grant))
                task.add_done_callback(lambda _: self._calls.pop(number, None))
                task.add_done_callback(lambda _: grant.owner.requests.release(held))
            case Cancel(number=number):
                if (task := self._calls.get(number)) is not None and number not in self._answered:
                    task.cancel()
            case Kill() | StdinChunk() | FlowControl():
                if (live := self._live.get(message.number)) is not None:
                    _on_live_message(live, message, grant)
            case _:
                assert_never(message)

    def _open(self, capability: str) -> None:
        """Find out what the client may reach; a wrong capability ends the connection."""
        self._deadline.cancel()
        grant = self._find_grant(capability)
        if grant is None or self._grant is not None or grant.owner.num_clients >= _MAX_CLIENTS:
            self.channel.abort()
            return
        self._grant = grant
        grant.owner.num_clients += 1
        grant.watch(self.channel.close)
        self.channel.longest, self.channel.room = MAX_MESSAGE_LENGTH, grant.owner.requests
        box = grant.owner.box if grant.role == "agent" else None
        self.channel.send(Welcome(box=None if box is None else describe_box(box)))

    def _on_closed(self) -> None:
        self._deadline.cancel()
        for task in list(self._calls.values()):
            task.cancel()
        if self._grant is not None:
            self._grant.owner.num_clients -= 1
            self._grant.unwatch(self.channel.close)
            for box_id in self._fresh & set(self._grant.boxes):
                self._grant.run(self._grant.remove_box(box_id))

    async def _answer(self, call: Call, grant: Grant) -> None:
        """Carry out a call when there is room for its result, and send what it returned or raised."""
        async with grant.owner.results.share(_max_result_length(call.request)):
            await self._answer_now(call, grant)

    async def _answer_now(self, call: Call, grant: Grant) -> None:
        try:
            request = call.request
            if isinstance(request, Open):
                await self._run_live(call.number, request, grant)
                return
            value = await self._carry_out(request, grant)
            raw = _NOTHING if value is None else msgspec.Raw(msgspec.msgpack.encode(value))
            await self._send(Answer(number=call.number, value=raw))
        except (AgentLayerError, OSError, ValueError) as error:
            await self._fail(call, error)
        except Exception as error:  # noqa: BLE001  # the client waits for an answer
            _log.exception("a call of a sandbox failed")
            await self._fail(call, error)

    async def _fail(self, call: Call, error: Exception) -> None:
        await self._send(make_failure(call.number, error))

    async def _send(self, answer: Answer | Failure) -> None:
        """Send an answer. Until it is read its call goes on, cancelled or not, so that its room is not free."""
        self.channel.send(answer)
        self._answered.add(answer.number)
        try:
            await self.channel.drain()  # a client that does not read runs out of calls
        finally:
            self._answered.discard(answer.number)

    async def _carry_out(self, request: BoxCall | TakeFresh, grant: Grant) -> object:
        if isinstance(request, TakeFresh):
            return describe_box(await self._take_fresh(request, grant))
        box = grant.boxes.get(request.box)
        if box is None:
            raise BadInputError("sandbox: this capability does not reach that box, or it was closed; take another")
        grant.note_request(box, request)
        try:
            return await self._use(box, request, grant)
        except SandboxError as error:
            if box.id in grant.boxes and not await box.is_alive():
                grant.owner.note_end(box, grant, str(error))
            raise
        except OSError as error:
            if _is_self_inflicted(error.errno, request, box, grant):
                raise error from BoxExhaustedError(error.errno, error.strerror)
            raise

    async def _use(self, box: Sandbox, request: BoxCall, grant: Grant) -> object:
        match request:
            case Exec():
                bounded = replace(request, max_output=min(request.max_output, _MAX_RESULT_LENGTH))
                with grant.owner.running_command(grant.role):
                    return self._note_result(box, grant, await bounded.perform(box))
            case Read():
                return await replace(request, max_bytes=min(request.max_bytes, _MAX_RESULT_LENGTH)).perform(box)
            case Pack():
                archive = await request.perform(box)
                if len(archive) > _MAX_RESULT_LENGTH:
                    raise BadInputError(
                        f"sandbox {box.id}: a snapshot of {len(archive) >> 20} MB is larger than"
                        f" {_MAX_RESULT_LENGTH >> 20} MB; name fewer paths"
                    )
                return archive
            case Fork():
                fork = await self._add_box(grant, request.perform(box))
                grant.note_fork(box.id, fork.id)
                return describe_box(fork)
            case CloseBox():
                if box is not grant.owner.box:  # that one ends with the attempt, which takes its artifacts first
                    self._fresh.discard(box.id)
                    await grant.remove_box(box.id)
                return None
            case _:
                return await request.perform(box)

    async def _take_fresh(self, request: TakeFresh, grant: Grant) -> Sandbox:
        if grant.role != "scorer":
            raise BadInputError("sandbox: an agent has its own box only; fork it, or have the task ask for another")
        spec = request.spec or grant.spec
        if spec is None:
            raise BadInputError("sandbox: the attempt had no box, so there is no spec to repeat; name one")
        return await self._add_box(grant, self._take(spec, grant.owner.token, request.seconds))

    async def _add_box(self, grant: Grant, make: Coroutine[object, object, Sandbox]) -> Sandbox:
        box = await grant.add_box(make)
        if grant.role == "scorer":
            grant.owner.count_scoring_box()
            self._fresh.add(box.id)
            if self.channel.closed.done():
                await grant.remove_box(box.id)
        return box

    def _note_result(self, box: Sandbox, grant: Grant, result: ExecResult) -> ExecResult:
        grant.owner.count_exec(grant.role, result)
        if (result.status == "gone" or box.ended is not None) and box.id in grant.boxes:
            grant.owner.note_end(box, grant, f"sandbox {box.id}: the box was lost while a command ran")
        return result

    async def _run_live(self, number: int, request: Open, grant: Grant) -> None:
        """Run a live process; its result goes out when it has ended, the rest of its output after that."""
        box = grant.boxes.get(request.box)
        if box is None:
            raise BadInputError("sandbox: this capability does not reach that box, or it was closed; take another")
        grant.touched.add(box.id)
        async with request.perform(box) as process:
            live = self._live[number] = LiveStdio(process, number, self.channel)
            live.start()
            try:
                with nullcontext() if request.is_service else grant.owner.running_command(grant.role):
                    result = self._note_result(box, grant, await live.wait())
                self.channel.send(Answer(number=number, value=msgspec.Raw(msgspec.msgpack.encode(result))))
                await live.wait_for_output()
            finally:
                del self._live[number]
                await live.stop()


def _max_result_length(request: ClientRequest) -> int:
    """Return how much memory the answer to a request may take."""
    match request:
        case Exec():
            return min(request.max_output, _MAX_RESULT_LENGTH)
        case Read():
            return min(request.max_bytes, _MAX_RESULT_LENGTH)
        case Pack() | Fork():
            return _MAX_RESULT_LENGTH
        case ListFolder():
            return _MAX_LIST_LENGTH
        case _:
            return 0


def _is_self_inflicted(number: int | None, request: BoxCall, box: Sandbox, grant: Grant) -> bool:
    """Whether the attempt's own commands, or the files that it left, led to an error of a file operation."""
    if box.id not in grant.touched:
        return number in _FULL and grant.role == "scorer" and isinstance(request, Write)  # of what is judged
    if number in _FULL:
        return True
    path = find_place(box, getattr(request, "path", ""))
    is_place = any(path.startswith(f"{one}/") for one in (box.spec.workdir, *_COMMANDS_WRITE))
    if number == errno.ENOENT:  # a link into nothing, or what was there was removed
        return is_place if isinstance(request, Write) else grant.has_placed(box, path)
    return number in _NO_FILE and (is_place or isinstance(request, Pack | Unpack))


def _on_live_message(
    live: LiveStdio, message: Kill | StdinChunk | FlowControl, grant: Grant
) -> None:  # kept: its caller's limit
    match message:
        case Kill():
            grant.run(live.kill())
        case StdinChunk():
            live.take_stdin(message)
        case FlowControl():
            live.take_flow_control(message)
        case _:
            assert_never(message)
