"""One check in one dialect and style: its requests, and what its client saw.

Requests are sent with a plain HTTP client, because an SDK would try again by itself and hide what came.
"""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import aiohttp
import msgspec

from agent_layer.conformance.adapters import Door
from agent_layer.conformance.dialects import Answer, Dialect, Question
from agent_layer.conformance.engine import KitEngine, Sample
from agent_layer.schema import JsonObject

_POLL_SECONDS = 0.002
_PATIENCE = 10.0
"""Seconds in which an engine's call ends after its client went away, if its endpoint ends such calls."""
_LINE_ENDS = re.compile("\r\n|\n|\r")
"""Line ends of event streams; Python's own list has more."""
RETRY_HEADER = "x-stainless-retry-count"
"""Header in which the SDKs of OpenAI and Anthropic count their tries."""


@dataclass(kw_only=True)
class Session:
    """Sends the requests of one check, and keeps their answers."""

    mark: str
    """Word by which the engine knows the check."""
    dialect: Dialect
    is_streamed: bool
    door: Door
    model: str
    engine: KitEngine
    http: aiohttp.ClientSession
    answers: list[Answer] = field(default_factory=list[Answer])
    """Answers and errors that a client waited for, in the order of their arrival."""

    def user(self, text: str) -> list[JsonObject]:
        """Return a user's turn that has the check's mark."""
        return self.dialect.user(f"{self.mark} {text}")

    def samples(self) -> list[Sample]:
        """Return what the engine sampled for this check so far."""
        return self.engine.samples(self.mark)

    async def ask(self, question: Question, headers: dict[str, str] | None = None) -> list[Answer]:
        """Ask and wait for the answer, one for each choice; errors are answers, too."""
        found = await self._post(question, headers or {})
        self.answers += found
        return found

    async def leave(self, question: Question, headers: dict[str, str] | None = None) -> None:
        """Ask, and close the connection in the middle of the answer, which the engine holds until ``end_left``."""
        self.engine.hold(self.mark)
        before = len(self.samples())
        asking = asyncio.create_task(self._post(question, headers or {}))
        await self.wait(lambda: any(len(one.token_ids) > 2 for one in self.samples()[before:]) or asking.done())
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking

    async def end_left(self, num_more: int = 1) -> None:
        """Wait until the engine's call of a client that left has ended, or another call began; let all answers end.

        Args:
            num_more: calls that the engine has when another one began.
        """
        await self.wait(
            lambda: any(one.is_ended for one in self.samples()) or len(self.samples()) > num_more, _PATIENCE
        )
        self.engine.release(self.mark)

    async def wait(self, is_so: Callable[[], bool], seconds: float = 60.0) -> bool:
        """Wait until a condition holds; False: it does not in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not is_so():  # noqa: ASYNC110  # the engine's book changes in another thread
                    await asyncio.sleep(_POLL_SECONDS)
        return is_so()

    async def _post(self, question: Question, headers: dict[str, str]) -> list[Answer]:
        body = self.dialect.body(question, self.model)
        body |= self.dialect.stream_options() if self.is_streamed else {}
        keys = {"Authorization": f"Bearer {self.door.key}", "x-api-key": self.door.key}
        if self.dialect.name == "google":
            keys = {"x-goog-api-key": self.door.key}
        versions = {"anthropic-version": "2023-06-01"} if self.dialect.name == "messages" else {}
        url = self.dialect.address(self.door.url, self.model, is_streamed=self.is_streamed)
        try:
            async with self.http.post(url, data=json.dumps(body), headers=keys | versions | headers) as reply:
                return self._read(reply.status, await reply.read(), question.num_choices)
        except (aiohttp.ClientError, TimeoutError) as error:
            return [Answer(status=0, fault=f"the connection broke: {type(error).__name__}")]

    def _read(self, status: int, body: bytes, num_choices: int) -> list[Answer]:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return [Answer(status=status, fault="it is no UTF-8")]
        if status != 200:
            return [Answer(status=status, fault=self._describe_refusal(status, text))]
        if not self.is_streamed:
            found = _decode(text)
            return [Answer(status=status, fault="it is no JSON")] if found is None else self.dialect.read_whole(found)
        lines = [line.removeprefix("data:").strip() for line in _LINE_ENDS.split(text) if line.startswith("data:")]
        events = [_decode(line) for line in lines if line != "[DONE]"]
        if None in events:
            return [Answer(status=status, fault="an event is no JSON")]
        answers = self.dialect.read_events(cast("Sequence[JsonObject]", events), is_closed="[DONE]" in lines)
        return (
            answers if len(answers) <= num_choices else [msgspec.structs.replace(answers[0], fault="too many choices")]
        )

    def _describe_refusal(self, status: int, text: str) -> str:
        is_shaped = self.dialect.is_refusal(_decode(text) or {})
        return f"{status} in the dialect's shape" if is_shaped else f"{status} in no shape of the dialect: {text:.80}"


def _decode(text: str) -> JsonObject | None:
    """Return a JSON object; None: the text is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("JsonObject", found) if isinstance(found, dict) else None
