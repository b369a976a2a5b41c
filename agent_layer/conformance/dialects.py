"""Requests and answers of each dialect, written from the providers' published references, not from our gateway.

A conversation is a list of turns in the dialect's own shape. An answer is read into one record, whatever the dialect:
what its client would understand, and why it is no whole answer, if it is none.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

import msgspec

from agent_layer.schema import JsonObject, as_json_object, as_json_objects, parse_json_text

TOOL_NAME: Final = "look_up"
_TOOL_HELP: Final = "Looks a word up."
_PARAMETERS: Final[JsonObject] = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
_ENDS: Final = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
"""Finish reasons of chat completions by the messages dialect's stop reasons."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as a client reads it."""

    call_id: str
    name: str
    arguments: str
    """JSON text."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a client received for one request, or as one of several choices."""

    status: int
    """HTTP status; 0: the connection ended before one came."""
    text: str = ""
    calls: list[ToolCall] = []
    end: str | None = None
    """Finish reason in the words of chat completions; None: the answer has none."""
    usage: tuple[int, int] | None = None
    """(prompt tokens, sampled tokens); None: the answer does not count them."""
    fault: str | None = None
    """Why it is no whole answer; None: it is one."""
    turns: list[JsonObject] = []
    """What a client sends back as this turn."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One request, in no dialect yet except for its turns."""

    turns: Sequence[JsonObject]
    system: str | None = None
    has_tools: bool = False
    max_tokens: int = 4096
    num_choices: int = 1
    more: JsonObject = {}
    """Members that are added to the body."""


class Dialect(ABC):
    """One way to ask a model: an address, a request body, and two shapes of an answer."""

    name: ClassVar[str]
    path: ClassVar[str] = ""

    def address(self, door: str, model: str, *, is_streamed: bool) -> str:
        """Return where a question is sent; ``door`` ends with ``/v1``."""
        del model, is_streamed  # the body names them
        return f"{door}{self.path}"

    def user(self, text: str) -> list[JsonObject]:
        """Return the turn of a user."""
        return [{"role": "user", "content": text}]

    @abstractmethod
    def results(self, results: Iterable[tuple[str, str]]) -> list[JsonObject]:
        """Return the turns that hand over (call id, result of the tool)."""

    @abstractmethod
    def body(self, question: Question, model: str) -> JsonObject:
        """Return the body of a request, for a whole answer."""

    @abstractmethod
    def read_whole(self, body: JsonObject) -> list[Answer]:
        """Read an answer that came in one piece; [num_choices]."""

    @abstractmethod
    def read_events(self, events: Sequence[JsonObject], *, is_closed: bool) -> list[Answer]:
        """Read a stream.

        Args:
            events: JSON of each event, in order.
            is_closed: ``[DONE]`` came at the end.
        """

    def is_refusal(self, body: JsonObject) -> bool:
        """Whether this is the dialect's shape of an error."""
        return isinstance(as_json_object(body.get("error")).get("message"), str)

    def stream_options(self) -> JsonObject:
        """Return the members that ask for a stream."""
        return {"stream": True}


class Chat(Dialect):
    """OpenAI's chat completions."""

    name, path = "chat", "/chat/completions"

    def results(self, results: Iterable[tuple[str, str]]) -> list[JsonObject]:
        """See Dialect."""
        return [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in results]

    def body(self, question: Question, model: str) -> JsonObject:
        """See Dialect."""
        system = [{"role": "system", "content": question.system}] if question.system else []
        body: JsonObject = {"model": model, "messages": [*system, *question.turns], "max_tokens": question.max_tokens}
        if question.num_choices > 1:
            body["n"] = question.num_choices
        if question.has_tools:
            function = {"name": TOOL_NAME, "description": _TOOL_HELP, "parameters": _PARAMETERS}
            body["tools"] = [{"type": "function", "function": function}]
        return body | question.more

    def stream_options(self) -> JsonObject:
        """See Dialect."""
        return {"stream": True, "stream_options": {"include_usage": True}}

    def read_whole(self, body: JsonObject) -> list[Answer]:
        """See Dialect."""
        usage = _usage(body.get("usage"), "prompt_tokens", "completion_tokens")
        choices = as_json_objects(body.get("choices"))
        found = [_chat_answer(as_json_object(one.get("message")), one.get("finish_reason"), usage) for one in choices]
        return found or [Answer(status=200, fault="it has no choices")]

    def read_events(self, events: Sequence[JsonObject], *, is_closed: bool) -> list[Answer]:
        """See Dialect."""
        deltas: dict[object, list[JsonObject]] = {}
        ends: dict[object, object] = {}
        usage = None
        for event in events:
            if event.get("error"):
                return [Answer(status=200, fault="it ends with an error")]
            usage = _usage(event.get("usage"), "prompt_tokens", "completion_tokens") or usage
            for choice in as_json_objects(event.get("choices")):
                index = choice.get("index")
                deltas.setdefault(index, []).append(as_json_object(choice.get("delta")))
                ends[index] = choice.get("finish_reason") or ends.get(index)
        found = [_chat_answer(_join_deltas(deltas[index]), ends[index], usage) for index in sorted(deltas, key=str)]
        if not is_closed:
            found = [msgspec.structs.replace(one, fault="the stream does not end with [DONE]") for one in found]
        return found or [Answer(status=200, fault="it has no choices")]


class Messages(Dialect):
    """Anthropic's messages."""

    name, path = "messages", "/messages"

    def results(self, results: Iterable[tuple[str, str]]) -> list[JsonObject]:
        """See Dialect."""
        blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": text} for call_id, text in results]
        return [{"role": "user", "content": blocks}]

    def body(self, question: Question, model: str) -> JsonObject:
        """See Dialect."""
        body: JsonObject = {"model": model, "messages": list(question.turns), "max_tokens": question.max_tokens}
        if question.system:
            body["system"] = question.system
        if question.has_tools:
            body["tools"] = [{"name": TOOL_NAME, "description": _TOOL_HELP, "input_schema": _PARAMETERS}]
        return body | question.more

    def is_refusal(self, body: JsonObject) -> bool:
        """See Dialect."""
        return body.get("type") == "error" and super().is_refusal(body)

    def read_whole(self, body: JsonObject) -> list[Answer]:
        """See Dialect."""
        blocks = as_json_objects(body.get("content"))
        end = body.get("stop_reason")
        calls = [
            ToolCall(call_id=str(one.get("id")), name=str(one.get("name")), arguments=json.dumps(one.get("input")))
            for one in blocks
            if one.get("type") == "tool_use"
        ]
        answer = Answer(
            status=200,
            text="".join(str(one.get("text")) for one in blocks if one.get("type") == "text"),
            calls=calls,
            end=None if end is None else _ENDS.get(str(end), str(end)),
            usage=_usage(body.get("usage"), "input_tokens", "output_tokens"),
            fault=None if body.get("type") == "message" and isinstance(body.get("content"), list) else "no message",
            turns=[{"role": "assistant", "content": blocks}],
        )
        return [answer]

    def read_events(self, events: Sequence[JsonObject], *, is_closed: bool) -> list[Answer]:
        """See Dialect."""
        del is_closed  # the dialect's own last event says it
        if any(one.get("type") == "error" for one in events):
            return [Answer(status=200, fault="it ends with an error")]
        message: JsonObject = {}
        for event in events:
            if event.get("type") == "message_start":
                message = dict(as_json_object(event.get("message")))
            elif event.get("type") == "message_delta":
                counts = {**as_json_object(message.get("usage")), **as_json_object(event.get("usage"))}
                message |= {**as_json_object(event.get("delta")), "usage": counts}
        (answer,) = self.read_whole({**message, "content": _join_blocks(events)})
        is_ended = any(one.get("type") == "message_stop" for one in events)
        return [answer if is_ended else msgspec.structs.replace(answer, fault="the stream has no message_stop")]


class Responses(Dialect):
    """OpenAI's responses, with the whole conversation in each request."""

    name, path = "responses", "/responses"

    def results(self, results: Iterable[tuple[str, str]]) -> list[JsonObject]:
        """See Dialect."""
        return [{"type": "function_call_output", "call_id": call_id, "output": text} for call_id, text in results]

    def body(self, question: Question, model: str) -> JsonObject:
        """See Dialect."""
        body: JsonObject = {"model": model, "input": list(question.turns), "max_output_tokens": question.max_tokens}
        if question.system:
            body["instructions"] = question.system
        if question.has_tools:
            tool = {"type": "function", "name": TOOL_NAME, "description": _TOOL_HELP, "parameters": _PARAMETERS}
            body["tools"] = [tool]
        return body | question.more

    def read_whole(self, body: JsonObject) -> list[Answer]:
        """See Dialect."""
        items = as_json_objects(body.get("output"))
        calls = [
            ToolCall(
                call_id=str(one.get("call_id")), name=str(one.get("name")), arguments=str(one.get("arguments") or "")
            )
            for one in items
            if one.get("type") == "function_call"
        ]
        reason = as_json_object(body.get("incomplete_details")).get("reason")
        ends = {"completed": "tool_calls" if calls else "stop"}
        ends["incomplete"] = "length" if reason == "max_output_tokens" else str(reason)
        end = ends.get(str(body.get("status")))
        answer = Answer(
            status=200,
            text="".join(_output_texts(items)),
            calls=calls,
            end=end,
            usage=_usage(body.get("usage"), "input_tokens", "output_tokens"),
            fault=None if end and isinstance(body.get("output"), list) else f"its status is {body.get('status')!r}",
            turns=list(items),
        )
        return [answer]

    def read_events(self, events: Sequence[JsonObject], *, is_closed: bool) -> list[Answer]:
        """See Dialect."""
        del is_closed  # the dialect's own last event says it
        text = "".join(str(one.get("delta")) for one in events if one.get("type") == "response.output_text.delta")
        for event in events:
            match event.get("type"):
                case "response.completed" | "response.incomplete":
                    (answer,) = self.read_whole(as_json_object(event.get("response")))
                    differs = answer.text != text
                    return [msgspec.structs.replace(answer, fault="its deltas say another text") if differs else answer]
                case "response.failed" | "error":
                    return [Answer(status=200, fault="it ends with an error")]
                case _:
                    pass
        return [Answer(status=200, text=text, fault="the stream has no response.completed")]


class Google(Dialect):
    """Google's ``generateContent``: the address names the model and whether the answer is streamed."""

    name = "google"

    def address(self, door: str, model: str, *, is_streamed: bool) -> str:
        """See Dialect."""
        method = "streamGenerateContent?alt=sse" if is_streamed else "generateContent"
        return f"{door.removesuffix('/v1')}/v1beta/models/{model}:{method}"

    def user(self, text: str) -> list[JsonObject]:
        """See Dialect."""
        return [{"role": "user", "parts": [{"text": text}]}]

    def results(self, results: Iterable[tuple[str, str]]) -> list[JsonObject]:
        """See Dialect."""
        parts = [
            {
                "functionResponse": {
                    **({"id": call_id} if call_id else {}),
                    "name": TOOL_NAME,
                    "response": {"output": text},
                }
            }
            for call_id, text in results
        ]
        return [{"role": "user", "parts": parts}]

    def body(self, question: Question, model: str) -> JsonObject:
        """See Dialect."""
        del model  # the address names it
        config = {name: value for name, value in question.more.items() if name == "temperature"}
        body: JsonObject = {
            "contents": list(question.turns),
            "generationConfig": {"maxOutputTokens": question.max_tokens, **config},
        }
        if question.system:
            body["systemInstruction"] = {"parts": [{"text": question.system}]}
        if question.has_tools:
            function = {"name": TOOL_NAME, "description": _TOOL_HELP, "parameters": _PARAMETERS}
            body["tools"] = [{"functionDeclarations": [function]}]
        return body | {name: value for name, value in question.more.items() if name not in config}

    def stream_options(self) -> JsonObject:
        """See Dialect."""
        return {}

    def read_whole(self, body: JsonObject) -> list[Answer]:
        """See Dialect."""
        return self.read_events([body], is_closed=True)

    def read_events(self, events: Sequence[JsonObject], *, is_closed: bool) -> list[Answer]:
        """See Dialect."""
        del is_closed  # the finish reason says it
        if any(one.get("error") for one in events):
            return [Answer(status=200, fault="it ends with an error")]
        first = [one for event in events for one in as_json_objects(event.get("candidates"))[:1]]
        parts = [part for one in first for part in as_json_objects(as_json_object(one.get("content")).get("parts"))]
        reason = next((str(one["finishReason"]) for one in reversed(first) if one.get("finishReason")), None)
        called = [as_json_object(part["functionCall"]) for part in parts if "functionCall" in part]
        calls = [
            ToolCall(
                call_id=str(one.get("id") or ""), name=str(one.get("name")), arguments=json.dumps(one.get("args") or {})
            )
            for one in called
        ]
        ends = {"STOP": "tool_calls" if calls else "stop", "MAX_TOKENS": "length"}
        counts = [_with_thoughts(as_json_object(one["usageMetadata"])) for one in events if one.get("usageMetadata")]
        answer = Answer(
            status=200,
            text="".join(str(part.get("text") or "") for part in parts if not part.get("thought")),
            calls=calls,
            end=None if reason is None else ends.get(reason, reason),
            usage=_usage(counts[-1], "promptTokenCount", "candidatesTokenCount") if counts else None,
            fault=None if reason else "it has no finishReason",
            turns=[{"role": "model", "parts": parts}],
        )
        return [answer]


DIALECTS: Final[tuple[Dialect, ...]] = (Chat(), Messages(), Responses(), Google())


def _chat_answer(message: JsonObject, end: object, usage: tuple[int, int] | None) -> Answer:
    calls = [
        ToolCall(
            call_id=str(one.get("id")),
            name=str(as_json_object(one.get("function")).get("name")),
            arguments=str(as_json_object(one.get("function")).get("arguments")),
        )
        for one in as_json_objects(message.get("tool_calls"))
    ]
    return Answer(
        status=200,
        text=str(message.get("content") or ""),
        calls=calls,
        end=None if end is None else str(end),
        usage=usage,
        fault=None if message else "it has no message",
        turns=[{"role": "assistant", **message}],
    )


def _join_deltas(deltas: Iterable[JsonObject]) -> JsonObject:
    """Join the pieces of a message as the reference says: texts by concatenation, tool calls by their index."""
    content, calls = "", dict[object, dict[str, str]]()
    for delta in deltas:
        content += str(delta.get("content") or "")
        for piece in as_json_objects(delta.get("tool_calls")):
            call = calls.setdefault(piece.get("index"), {"id": "", "name": "", "arguments": ""})
            function = as_json_object(piece.get("function"))
            call["id"] = call["id"] or str(piece.get("id") or "")
            call["name"] += str(function.get("name") or "")
            call["arguments"] += str(function.get("arguments") or "")
    made = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": call["arguments"]},
        }
        for call in calls.values()
    ]
    return {"content": content, **({"tool_calls": made} if made else {})}


def _join_blocks(events: Iterable[JsonObject]) -> list[JsonObject]:
    """Join the content blocks of a message: texts, and the pieces of JSON that are a tool's input."""
    blocks: dict[object, JsonObject] = {}
    inputs: dict[object, str] = {}
    for event in events:
        index = event.get("index")
        if event.get("type") == "content_block_start":
            blocks[index] = dict(as_json_object(event.get("content_block")))
        elif event.get("type") == "content_block_delta":
            delta, block = as_json_object(event.get("delta")), blocks.setdefault(index, {})
            if delta.get("type") == "text_delta":
                block["text"] = f"{block.get('text', '')}{delta.get('text')}"
            inputs[index] = inputs.get(index, "") + str(delta.get("partial_json") or "")
    for index, text in inputs.items():
        if text:
            blocks[index]["input"] = parse_json_text(text)
    return list(blocks.values())


def _output_texts(items: Iterable[JsonObject]) -> Iterable[str]:
    for item in items:
        if item.get("type") == "message":
            yield from (str(one.get("text") or "") for one in as_json_objects(item.get("content")))


def _with_thoughts(counts: JsonObject) -> JsonObject:
    """Return Google's counts with thoughts among the sampled tokens, as all other dialects count."""
    spoken, thought = counts.get("candidatesTokenCount"), counts.get("thoughtsTokenCount")
    if not isinstance(spoken, int) or not isinstance(thought, int):
        return counts
    return {**counts, "candidatesTokenCount": spoken + thought}


def _usage(usage: object, prompt: str, sampled: str) -> tuple[int, int] | None:
    counts = as_json_object(usage)
    found = counts.get(prompt), counts.get(sampled)
    return (found[0], found[1]) if isinstance(found[0], int) and isinstance(found[1], int) else None
