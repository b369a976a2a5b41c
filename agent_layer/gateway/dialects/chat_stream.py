"""This file holds streamed chat completions: events are passed on as they come, and add up to one answer."""

from dataclasses import dataclass, field
from itertools import chain
from typing import Final, cast

import msgspec

from agent_layer.gateway.dialects.chat import (
    ChatAnswer,
    ChatRequest,
    LogprobPiece,
    Pieces,
    action_of,
    logprobs_of,
    token_ids_of,
    visible,
)
from agent_layer.schema.record import JsonObject, TokenIds
from agent_layer.schema.step import Action

__all__ = ["ChatStream", "merge_deltas"]

_PIECES: Final = msgspec.json.Decoder(Pieces)
_CHOICES: Final = msgspec.json.Decoder(list[Pieces])
_DELTAS: Final = msgspec.json.Decoder(list[JsonObject])
_ID_LISTS: Final = msgspec.json.Decoder(list[list[int] | None])
_LOGPROB_LISTS: Final = msgspec.json.Decoder(list[LogprobPiece | None])
_NULL = msgspec.Raw(b"null")


@dataclass(slots=True)
class _Growing:
    """One choice, as raw pieces of its chunks."""

    deltas: list[msgspec.Raw] = field(default_factory=list[msgspec.Raw])
    token_ids: list[msgspec.Raw] = field(default_factory=list[msgspec.Raw])
    logprobs: list[msgspec.Raw] = field(default_factory=list[msgspec.Raw])
    finish_reason: str | None = None

    def take(self, choice: Pieces) -> None:
        self.deltas.append(choice.get("delta", _NULL))
        for pieces, name in ((self.token_ids, "token_ids"), (self.logprobs, "logprobs")):
            if (piece := choice.get(name, _NULL)) != _NULL:
                pieces.append(piece)
        if (reason := choice.get("finish_reason", _NULL)) != _NULL:
            self.finish_reason = msgspec.json.decode(reason, type=str)

    def action(self, version: int) -> Action:
        ids = chain.from_iterable(part or () for part in _ID_LISTS.decode(_listed(self.token_ids)))
        return action_of(
            merge_deltas(_DELTAS.decode(_listed([delta for delta in self.deltas if delta != _NULL]))),
            ids=TokenIds(ids) if self.token_ids else None,
            logprobs=logprobs_of(_LOGPROB_LISTS.decode(_listed(self.logprobs))),
            finish_reason=self.finish_reason,
            version=version,
        )


@dataclass(slots=True)
class ChatStream:
    """An answer that is still coming. Chunks are kept as raw pieces and decoded once, when the answer is asked for."""

    request: ChatRequest
    is_done: bool = False
    """The closing event has been seen."""
    error: str | None = None
    """What the engine said went wrong in the middle."""
    _rest: bytes = b""
    _prompt: msgspec.Raw | None = None
    _choices: dict[int, _Growing] = field(default_factory=dict[int, _Growing])

    @property
    def is_complete(self) -> bool:
        """Every choice has said why it ended."""
        return bool(self._choices) and all(choice.finish_reason is not None for choice in self._choices.values())

    def feed(self, received: bytes) -> bytes:
        """Take bytes of the engine; give those that the client is to see now. Half a line waits for its other half."""
        complete, newline, self._rest = (self._rest + received).rpartition(b"\n")
        return b"\n".join(map(self._pass_on, complete.split(b"\n"))) + newline if newline else b""

    def answer(self, version: int) -> ChatAnswer:
        """What was received so far."""
        return ChatAnswer(
            body=b"",
            prompt_token_ids=token_ids_of(self._prompt),
            actions=[self._choices[index].action(version) for index in sorted(self._choices)],
        )

    def _pass_on(self, line: bytes) -> bytes:
        if not line.startswith(b"data:"):
            return line
        payload = line[5:].strip()
        if payload == b"[DONE]":
            self.is_done = True
            return line
        try:
            return self._take(payload) or line
        except (msgspec.DecodeError, ValueError) as error:
            self.error = f"the engine sent {error!r}"
            return line

    def _take(self, payload: bytes) -> bytes | None:
        top = _PIECES.decode(payload)
        if "error" in top:
            self.error = bytes(top["error"]).decode("utf-8", "replace")
        choices = _CHOICES.decode(top.get("choices", b"[]"))
        if self._prompt is None and (prompt := top.get("prompt_token_ids", _NULL)) != _NULL:
            self._prompt = prompt
        for choice in choices:
            self._choices.setdefault(int(bytes(choice.get("index", b"0"))), _Growing()).take(choice)
        seen = visible(top, choices, self.request)
        return b"data: " + seen if seen else None


def merge_deltas(deltas: list[JsonObject]) -> JsonObject:
    """Add chunks up to the message that they make: texts are joined, tool calls are joined by index."""
    message: JsonObject = {"role": "assistant", "content": None}
    texts: dict[str, list[str]] = {}
    calls: dict[object, JsonObject] = {}
    for delta in deltas:
        for name, value in delta.items():
            if name == "tool_calls":
                _add_calls(calls, cast("list[JsonObject]", value or []))
            elif isinstance(value, str) and name != "role":
                texts.setdefault(name, []).append(value)
            elif value is not None:
                message[name] = value
    message |= {name: "".join(parts) for name, parts in texts.items()}
    return message | {"tool_calls": list(calls.values())} if calls else message


def _add_calls(calls: dict[object, JsonObject], deltas: list[JsonObject]) -> None:
    for delta in deltas:
        index = delta.get("index", len(calls))
        call = calls.setdefault(index, {"function": {}})
        function = cast("dict[str, str]", call["function"])
        for name, value in cast("dict[str, str | None]", delta.get("function") or {}).items():
            function[name] = function.get(name, "") + (value or "") if name == "arguments" else value or ""
        call |= {
            name: value for name, value in delta.items() if name not in ("index", "function") and value is not None
        }


def _listed(pieces: list[msgspec.Raw]) -> bytes:
    return b"[" + b",".join(pieces) + b"]"
