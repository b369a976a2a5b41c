"""The engine behind the endpoint under test, and its book: what was sampled for which check.

It is the scripted engine, so token ids and log-probabilities are functions of its words. Each check has a word of its
own, its mark, in the first message of its conversations. The engine finds it in a prompt, and answers as the check
plans.
"""

import itertools
import json
import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias, cast

import msgspec
from aiohttp import web

from agent_layer.local import ReceivedCall, ScriptedEngine, ScriptPrompt, serve_in_thread, token_logprob
from agent_layer.schema import JsonObject, as_json_object, as_json_objects

_MARK: Final = re.compile(r"kit-[0-9a-z]+-mark")
_WORD_SECONDS: Final = 0.004


class Turn(NamedTuple):
    """A request that a check's plan answers."""

    number: int
    """Place among the engine's answers of the whole run, so that no two texts are equal."""
    turn: int
    """Answers of the model that the conversation has already."""
    attempt: int
    """Requests of this check before this one."""
    is_held: Callable[[], bool]
    """Whether answers of this check go on until the check has done something in the meantime."""


class HeldWords:
    """Words of an answer that goes on while its check holds it, so that a client can go away in the middle."""

    def __init__(self, first: str, is_held: Callable[[], bool]) -> None:
        self.spoken: list[str] = []
        self._first, self._is_held = first, is_held

    def __iter__(self) -> Iterator[str]:
        """Yield words, and remember them."""
        for word in self._first.split():
            self.spoken.append(word)
            yield word
        while self._is_held():
            self.spoken.append("on")
            yield "on"


Plan: TypeAlias = Callable[[Turn], JsonObject]
"""Writes an answer: a chat message, with ``finish_reason`` or ``error`` as the scripted engine reads them."""
Rewrite: TypeAlias = Callable[[JsonObject, int], JsonObject]
"""Changes (an answer or event that leaves the engine, its place in its answer)."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One answer as the engine sampled it."""

    text: str
    calls: list[tuple[str, str]]
    """(name, arguments) of each tool call."""
    end: str
    prompt: list[JsonObject]
    """Messages of the request."""
    request: JsonObject
    prompt_token_ids: list[int]
    token_ids: list[int]
    num_sampled: int
    """Tokens of all choices of its request."""
    is_finished: bool
    """False: it still runs, or the engine was left before it had sent all."""
    is_ended: bool

    @property
    def logprobs(self) -> list[float]:
        """Log-probability of each sampled token."""
        return [token_logprob(one) for one in self.token_ids]


class KitEngine:
    """A scripted engine with a plan for each check; safe to read from another thread."""

    def __init__(self, model: str) -> None:
        self.engine = ScriptedEngine(
            script=self._write, model=model, rewrite=self._send, token_seconds=_WORD_SECONDS, root=model
        )
        self._plans: dict[str, tuple[Plan, Rewrite | None]] = {}
        self._attempts: dict[str, itertools.count[int]] = {}
        self._numbers = itertools.count(1)
        self._written: list[tuple[JsonObject, int, JsonObject]] = []
        self._events: dict[int, int] = {}
        self._lock = threading.Lock()
        self._held: set[str] = set()

    def plan(self, mark: str, plan: Plan, rewrite: Rewrite | None) -> None:
        """Answer requests with this mark so."""
        self._plans[mark] = plan, rewrite
        self._attempts[mark] = itertools.count()

    def hold(self, mark: str) -> None:
        """Let answers under a mark go on until ``release``."""
        self._held.add(mark)

    def release(self, mark: str) -> None:
        """Let answers under a mark end."""
        self._held.discard(mark)

    def samples(self, mark: str) -> list[Sample]:
        """Return what was sampled under a mark, in the order in which requests came."""
        calls = [call for call in list(self.engine.calls) if _find_mark(call.body) == mark]
        written = {(id(body), choice): message for body, choice, message in list(self._written)}
        return [
            _sample(call, choice, written[id(call.body), choice])
            for call in calls
            for choice in range(len(call.token_ids))
            if (id(call.body), choice) in written
        ]

    def _write(self, prompt: ScriptPrompt) -> JsonObject:
        mark = _find_mark(prompt.body)
        if mark not in self._plans:
            return {"content": "this question belongs to no check"}
        with self._lock:
            turn = Turn(next(self._numbers), prompt.turn, next(self._attempts[mark]), lambda: mark in self._held)
            message = self._plans[mark][0](turn)
            self._written.append((prompt.body, prompt.choice, message))
        return message

    def _send(self, call: ReceivedCall, sent: JsonObject) -> JsonObject:
        """Put an id of its own into each answer, as engines do, and then the oddity that its check plans."""
        place = self._events[id(call)] = self._events.get(id(call), -1) + 1
        sent = {**sent, "id": f"chatcmpl-{id(call):x}"}
        rewrite = self._plans.get(_find_mark(call.body), (None, None))[1]
        return rewrite(sent, place) if rewrite else sent


@contextmanager
def serve_kit_engine(model: str, port: int = 0) -> Generator[KitEngine]:
    """Serve an engine on loopback during the block; port 0 means a free one."""
    kit = KitEngine(model)
    with serve_in_thread(kit.engine, port):
        yield kit


def refuse(status: int) -> JsonObject:
    """Let the engine refuse a request, in the shape that vLLM has for it."""
    kinds: Mapping[int, type[web.HTTPException]] = {
        429: web.HTTPTooManyRequests,
        500: web.HTTPInternalServerError,
        503: web.HTTPServiceUnavailable,
    }
    error = {"error": {"message": "planned by the check", "type": "planned", "code": status}}
    raise kinds[status](text=json.dumps(error), content_type="application/json")


def join_words(content: object) -> str:
    """Return the text of planned words; a text stays."""
    words = content.spoken if isinstance(content, HeldWords) else content
    return " ".join(cast("list[str]", words)) if isinstance(words, list) else str(words or "")


def _sample(call: ReceivedCall, choice: int, message: JsonObject) -> Sample:
    functions = [as_json_object(one.get("function")) for one in as_json_objects(message.get("tool_calls"))]
    return Sample(
        text=join_words(message.get("content")),
        calls=[(str(one.get("name")), str(one.get("arguments"))) for one in functions],
        end=str(message.get("finish_reason") or ("tool_calls" if functions else "stop")),
        prompt=as_json_objects(call.body.get("messages")),
        request=call.body,
        prompt_token_ids=list(call.prompt_token_ids),
        token_ids=list(call.token_ids[choice]),
        num_sampled=sum(map(len, call.token_ids)),
        is_finished=call.finished,
        is_ended=call.ended,
    )


def _find_mark(body: JsonObject) -> str:
    """Return the first mark in a request; empty: there is none."""
    found = _MARK.search(json.dumps(body.get("messages")))
    return found[0] if found else ""
