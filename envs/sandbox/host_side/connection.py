"""Connection to the server of a box: requests as packets, replies as futures."""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from agent_layer.errors import SandboxError
from envs.sandbox.guest.packets import send_packet

_MAX_REPLY_LENGTH = 1 << 16


class BoxReply(msgspec.Struct, frozen=True):
    """What the server of a box reports."""

    id: int | None = None
    status: int = 0
    """Status as ``waitpid`` reports it."""
    oom: bool = False
    """The server killed it, because the box used too much memory."""
    cpu_seconds: float = 0.0
    peak_memory_kb: int = 0
    error: int | str | None = None
    """Why no child could be started, or no box."""
    ready: list[str] | None = None
    """The box is up; what the kernel has no means for."""
    pong: bool = False


class BoxConnection:
    """Requests to the server of a box, and its replies."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._end.setblocking(False)  # noqa: FBT003  # its only argument
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int | Literal["ready", "pong"], asyncio.Future[BoxReply]] = {}
        self._last_id = 0
        self.is_lost = False
        self.on_lost: Callable[[], object] = lambda: None
        """Called once, unless this side closed it."""
        self._loop.add_reader(end, self._on_readable)

    def request(self, fields: Mapping[str, object], descriptors: Sequence[int]) -> tuple[int, asyncio.Future[BoxReply]]:
        """Send a job; return its number and its reply, which raises ``SandboxError`` when the box is lost."""
        self._last_id += 1
        reply = self._expect(self._last_id)
        self.send({"id": self._last_id, **fields}, descriptors)
        return self._last_id, reply

    def ask(self, what: Literal["ready", "pong"], fields: Mapping[str, object]) -> asyncio.Future[BoxReply]:
        """Send a question; return its answer, which all who ask at the same time share: shield it."""
        if (pending := self._waiting.get(what)) is not None and not pending.done():
            return pending
        reply = self._expect(what)
        self.send(fields)
        return reply

    def send(self, fields: Mapping[str, object], descriptors: Sequence[int] = ()) -> None:
        """Send a packet; a box that does not read its packets is lost."""
        try:
            if not self.is_lost:
                send_packet(self._end, fields, descriptors)
        except OSError:
            self._lose()

    def close(self) -> None:
        """Close the connection; every open request fails."""
        if self.is_lost:
            return
        self.is_lost = True
        self._loop.remove_reader(self._end)
        self._end.close()
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(SandboxError("sandbox: the box is gone; its exec may have run in part"))
                reply.exception()  # it may have no reader any more
        self._waiting.clear()

    def _lose(self) -> None:
        if not self.is_lost:
            self.on_lost()
            self.close()

    def _expect(self, key: int | Literal["ready", "pong"]) -> asyncio.Future[BoxReply]:
        reply = self._loop.create_future()
        if self.is_lost:
            reply.set_exception(SandboxError("sandbox: the box is gone; take another"))
            reply.exception()
        else:
            self._waiting[key] = reply
        return reply

    def _on_readable(self) -> None:
        try:
            packet = self._end.recv(_MAX_REPLY_LENGTH)  # descriptors that a box might send are dropped
            reply = msgspec.json.decode(packet, type=BoxReply)
        except BlockingIOError:
            return
        except (OSError, msgspec.DecodeError):
            self._lose()
            return
        is_start = reply.ready is not None or (reply.id is None and reply.error is not None)
        key = "pong" if reply.pong else "ready" if is_start else reply.id
        waiting = None if key is None else self._waiting.pop(key, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)


def check_ready(reply: BoxReply, *, advise: Callable[[str], str] = "sandbox: {}".format) -> Sequence[str]:
    """Return what the kernel of a box that is up has no means for.

    Args:
        reply: to the first request.
        advise: makes a message of what failed in the box.

    Raises: SandboxError: it is not up.
    """
    if reply.ready is None:
        raise SandboxError(advise(str(reply.error)))
    return reply.ready
