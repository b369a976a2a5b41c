"""A host process as the worker sees it: requests go out, answers come back, and it may die at any time."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from agent_layer.errors import AgentFailedError
from envs.channel import Channel
from envs.hosts.protocol import Active, FromHost, Ready, Reply, Request, Save, Started, Stopping, ToHost

FROM_HOST: msgspec.msgpack.Decoder[FromHost] = msgspec.msgpack.Decoder(FromHost)

OnProgress: TypeAlias = Callable[[Started | Active | Stopping | Save], None]


class HostDiedError(AgentFailedError):
    """The process died before it answered.

    Args:
        message: how it died.
        num_beside: other requests that died with it.
        was_ended: whether the worker killed it because of one of those.
    """

    def __init__(self, message: str, num_beside: int, was_ended: bool) -> None:  # noqa: FBT001  # pickled by position
        super().__init__(message, num_beside, was_ended)
        self.num_beside = num_beside
        self.was_ended = was_ended

    def __str__(self) -> str:
        return str(self.args[0])


class Host:
    """A process that answers requests.

    Args:
        name: its name in errors.
        kill: kills the process.
    """

    def __init__(self, name: str, kill: Callable[[], None]) -> None:
        self._name = name
        self._kill = kill
        self.is_dead = False
        """Dead or being killed: it gets no further requests."""
        self._death: str | None = None
        """How it died; None: no death is known."""
        self._channel: Channel[FromHost] | None = None
        self._is_closed = False
        """The worker sends nothing more."""
        self._why_killed = ""
        self._stuck: set[str] = set()
        """Requests that were given up because they got no answer in time: any of them may have blocked the others."""
        self._pending: dict[str, asyncio.Future[Reply]] = {}
        self._listeners: dict[str, OnProgress] = {}

    @property
    def num_pending(self) -> int:
        """Requests that wait for an answer."""
        return len(self._pending)

    def attach(self, channel: Channel[FromHost]) -> None:
        """Talk to the process over this channel."""
        self._channel = channel
        channel.closed.add_done_callback(lambda _: self._on_channel_closed())

    def ask(self, request: Request, on_progress: OnProgress | None = None) -> asyncio.Future[Reply]:
        """Send a request; return its answer, which is HostDiedError when the process dies first.

        Args:
            request: a request with a unique token.
            on_progress: called with what the process sends before the answer.
        """
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if self._death is not None:  # before this request
            answer.set_exception(HostDiedError(f"{self._name}: {self._death}", 0, bool(self._why_killed)))
            return answer
        self._pending[request.token] = answer
        if on_progress is not None:
            self._listeners[request.token] = on_progress
        answer.add_done_callback(lambda _: self._drop_request(request.token))
        self.send(request)
        return answer

    def send(self, message: ToHost) -> None:
        """Send a message that has no answer."""
        if self._channel is not None:
            self._channel.send(message)

    def on_message(self, message: FromHost) -> None:
        """Dispatch a message of the process to its request."""
        match message:
            case Active(tokens=tokens):
                for token in tokens:
                    self._notify(token, message)
            case Started() | Stopping() | Save():
                self._notify(message.token, message)
            case Ready():
                return
            case _:
                answer = self._pending.get(message.token)
                if answer is not None and not answer.done():
                    answer.set_result(message)

    def mark_dead(self, how: str) -> None:
        """Fail all pending requests: the process is dead."""
        how = self._why_killed or how
        self.is_dead, self._death = True, how
        lost = [answer for answer in self._pending.values() if not answer.done()]
        for answer in lost:
            num_beside = len(lost) - 1 + len(self._stuck)
            answer.set_exception(HostDiedError(f"{self._name}: {how}", num_beside, bool(self._why_killed)))
            answer.exception()  # the caller may be gone
        self.close()

    def mark_dead_when_closed(self, how: str) -> None:
        """As ``mark_dead``, once every message of the process has been received."""
        if self._channel is None:
            self.mark_dead(how)
        else:
            self._channel.closed.add_done_callback(lambda _: self.mark_dead(how))

    def kill(self, why: str = "") -> None:
        """Kill the process and its descendants; requests that end with it report this reason."""
        self.is_dead = True
        self._why_killed = self._why_killed or why
        self._kill()

    def give_up(self, token: str) -> int:
        """Kill the process because a request got no answer in time; return how many requests end beside it.

        Any of them may have blocked the process.
        """
        self._stuck.add(token)
        self.kill()
        return len((self._pending.keys() | self._stuck) - {token})

    def close(self) -> None:
        """Close the channel: the worker sends nothing more."""
        self._is_closed = True
        if self._channel is not None:
            self._channel.close()

    def _on_channel_closed(self) -> None:
        """Kill a process whose channel closed unexpectedly; an agent may have closed a foreign descriptor."""
        if not self._is_closed:
            self.kill()

    def _notify(self, token: str, message: Started | Active | Stopping | Save) -> None:
        if (on_progress := self._listeners.get(token)) is not None:
            on_progress(message)

    def _drop_request(self, token: str) -> None:
        self._pending.pop(token, None)
        self._listeners.pop(token, None)
