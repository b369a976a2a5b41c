"""Calls over a channel: the caller's side, where answers find who waits for them."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TypeVar

import msgspec

from agent_layer.errors import SandboxError
from envs.channel import Channel
from envs.sandbox.supervisor.messages import Answer, Cancel, Failure, raise_failure

T = TypeVar("T")
M = TypeVar("M")


class PendingCalls:
    """Calls that wait for their answers.

    Args:
        gone: what an error says when the supervisor is gone.
        on_hang: called when it gives no answer in time.
    """

    def __init__(self, gone: str, on_hang: Callable[[], object] = lambda: None) -> None:
        self._gone = gone
        self._on_hang = on_hang
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[msgspec.Raw]] = {}

    def next_number(self) -> int:
        """Return the number of a new call."""
        return next(self._numbers)

    async def send(
        self, channel: Channel[M], number: int, call: msgspec.Struct, kind: Callable[[msgspec.Raw], T], seconds: float
    ) -> T:
        """Send a call, and wait for its answer.

        Args:
            channel: to the supervisor.
            number: of the call.
            call: the message.
            kind: decodes the answer.
            seconds: longest wait, which only a supervisor that hangs exceeds.

        Raises: what the call raised there. SandboxError: the supervisor is gone, or hangs.
        """
        if channel.closed.done():
            raise SandboxError(self._gone)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            channel.send(call)
            async with asyncio.timeout(seconds):
                return kind(await answer)
        except TimeoutError as error:
            channel.send(Cancel(number=number))
            self._on_hang()
            raise SandboxError(f"sandbox: its supervisor gave no answer within {seconds:g} s; it hangs") from error
        except asyncio.CancelledError:
            with suppress(ValueError):
                channel.send(Cancel(number=number))
            raise
        finally:
            del self._waiting[number]

    def on_answer(self, message: Answer | Failure) -> None:
        """Report an answer to the call that waits for it."""
        waiting = self._waiting.get(message.number)
        if waiting is None or waiting.done():
            return
        if isinstance(message, Answer):
            waiting.set_result(message.value)
            return
        try:
            raise_failure(message)
        except Exception as error:  # noqa: BLE001  # whatever the call raised there
            waiting.set_exception(error)

    def fail_all(self) -> None:
        """Fail every call: the supervisor is gone."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(SandboxError(self._gone))
                waiting.exception()  # its caller may be gone


def decoder(kind: type[T]) -> Callable[[msgspec.Raw], T]:
    """Return what decodes an answer of this type."""
    return msgspec.msgpack.Decoder(kind).decode
