"""This file holds a host as the worker sees it: requests go there, answers come back, and it may die at any time."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from agent_layer.errors import AgentFailedError
from envs.hosts.channel import Channel
from envs.hosts.protocol import Active, FromHost, Ready, Reply, Request, Save, Started, Stopping, ToHost

FROM_HOST: msgspec.msgpack.Decoder[FromHost] = msgspec.msgpack.Decoder(FromHost)

Hear: TypeAlias = Callable[[Started | Active | Stopping | Save], None]


class HostDiedError(AgentFailedError):
    """The process died that was to answer.

    Args:
        message: how.
        num_beside: requests that died beside this one.
        was_ended: for the sake of one of those.
    """

    def __init__(self, message: str, num_beside: int, was_ended: bool) -> None:  # noqa: FBT001  # pickled by position
        super().__init__(message, num_beside, was_ended)
        self.num_beside = num_beside
        self.was_ended = was_ended

    def __str__(self) -> str:
        return str(self.args[0])


class Host:
    """Where requests are sent.

    Args:
        name: for errors.
        kill: ends the process.
    """

    def __init__(self, name: str, kill: Callable[[], None]) -> None:
        self._name = name
        self._kill = kill
        self.is_dead = False
        """Or about to be: nothing more is to be asked here."""
        self._death: str | None = None
        """How it died; None: it has not, as far as is known."""
        self._channel: Channel[FromHost] | None = None
        self._is_left = False
        """Nothing is asked any more."""
        self._why_killed = ""
        self._asked: dict[str, asyncio.Future[Reply]] = {}
        self._hearers: dict[str, Hear] = {}

    @property
    def num_asked(self) -> int:
        """Requests that wait for an answer."""
        return len(self._asked)

    def speak(self, channel: Channel[FromHost]) -> None:
        """Speak with the process over this channel."""
        self._channel = channel
        channel.closed.add_done_callback(lambda _: self._hung_up())

    def ask(self, request: Request, hear: Hear | None = None) -> asyncio.Future[Reply]:
        """Send a request; gives its answer, which is HostDiedError when the process dies before.

        Args:
            request: with a token of its own.
            hear: told what the process says of it before the answer.
        """
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if self._death is not None:  # between its start and this
            answer.set_exception(HostDiedError(f"{self._name}: {self._death}", 0, bool(self._why_killed)))
            return answer
        self._asked[request.token] = answer
        if hear is not None:
            self._hearers[request.token] = hear
        answer.add_done_callback(lambda _: self._forget(request.token))
        self.tell(request)
        return answer

    def tell(self, message: ToHost) -> None:
        """Say something that has no answer."""
        if self._channel is not None:
            self._channel.send(message)

    def hear(self, message: FromHost) -> None:
        """Hand on what the process says."""
        match message:
            case Active(tokens=tokens):
                for token in tokens:
                    self._hand_on(token, message)
            case Started() | Stopping() | Save():
                self._hand_on(message.token, message)
            case Ready():
                return
            case _:
                answer = self._asked.get(message.token)
                if answer is not None and not answer.done():
                    answer.set_result(message)

    def die(self, how: str) -> None:
        """Take note that the process is dead."""
        how = self._why_killed or how
        self.is_dead, self._death = True, how
        lost = [answer for answer in self._asked.values() if not answer.done()]
        for answer in lost:
            answer.set_exception(HostDiedError(f"{self._name}: {how}", len(lost) - 1, bool(self._why_killed)))
            answer.exception()  # whoever asked may be gone
        self.hang_up()

    def die_when_silent(self, how: str) -> None:
        """Take note that the process is dead, once all that it said has been heard."""
        if self._channel is None:
            self.die(how)
        else:
            self._channel.closed.add_done_callback(lambda _: self.die(how))

    def kill(self, why: str = "") -> None:
        """End the process, and all that it started; why, for those whose requests end with it."""
        self.is_dead = True
        self._why_killed = self._why_killed or why
        self._kill()

    def hang_up(self) -> None:
        """Say that nothing more is asked."""
        self._is_left = True
        if self._channel is not None:
            self._channel.close()

    def _hung_up(self) -> None:
        """A process that is needed and speaks no more is dead, or an agent in it closed what it had not opened."""
        if not self._is_left:
            self.kill()

    def _hand_on(self, token: str, message: Started | Active | Stopping | Save) -> None:
        if (hear := self._hearers.get(token)) is not None:
            hear(message)

    def _forget(self, token: str) -> None:
        self._asked.pop(token, None)
        self._hearers.pop(token, None)
