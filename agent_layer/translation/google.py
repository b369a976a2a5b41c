"""Google's Gemini API in the words of chat completions.

Several contents of the model in a row are one answer, as clients keep one for each piece of a stream. Results name
their call by an id, by the name of the tool, or by their order alone.

A signature that clients send back with a part holds what Google's own hold: the thoughts, which few clients are shown,
and the call as the model wrote it. So the answer is known as it was sampled, without any memory.
"""

import json
from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import UNREADABLE, JsonObject, Usage, as_json_object
from agent_layer.translation.answer import Answer, read_as, read_events
from agent_layer.translation.finishes import find_reason
from agent_layer.translation.google_names import rename_members, to_camel_case, to_json_schema
from agent_layer.translation.request import Losses, Pieces, Translation, encoded, read_pieces
from agent_layer.translation.sealed import parse_arguments, read_signature
from agent_layer.translation.tools import HOSTED, ToolSet
from agent_layer.translation.turns import (
    Format,
    assistant_message,
    continue_last,
    function_tool,
    image_part,
    join_answer,
    join_content,
    named_choice,
    text_part,
    tool_call,
)

_TRANSLATED: Final = ("contents", "systemInstruction", "tools", "toolConfig", "generationConfig")
_NO_PLACE: Final = frozenset({"safetySettings", "labels", "serviceTier", "store", "model", "stream"})
"""What an engine has no use for; recorded with the sampling asked, and left out."""
_UNSUPPORTED: Final = ("cachedContent", "continuationToken")
"""What only Google's own servers remember."""
_NOT_SAMPLING: Final = frozenset(
    {"contents", "systemInstruction", "tools", "model", "stream", "labels", "store", "return_token_ids"}
)
_CONFIG: Final = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "candidateCount": "n",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
    "seed": "seed",
    "logprobs": "top_logprobs",
}
"""Names of generationConfig in chat completions."""
_CONFIG_READ: Final = frozenset(
    {"responseMimeType", "responseSchema", "responseJsonSchema", "thinkingConfig", "responseLogprobs"}
)
_FUNCTIONS: Final = "functionDeclarations"
"""All that is a tool of the agent's own; Google's servers run the others."""
_DECLARED: Final = frozenset({"name", "description", "parameters", "parametersJsonSchema"})
_MODES: Final = {"AUTO": "auto", "VALIDATED": "auto", "ANY": "required", "NONE": "none"}
_EMPTY: Final[tuple[object, ...]] = (None, False, "", [], {})
_NO_SIGNATURES: Final = (
    *("skip_thought_signature_validator", "context_engineering_is_the_way_to_go"),
    *("c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=", "Y29udGV4dF9lbmdpbmVlcmluZ19pc190aGVfd2F5X3RvX2dv"),
)
"""Signatures that Google documents for calls that no model of its own made, plain and in base64."""
_GOOGLES_FILES: Final = ("gs://", "https://generativelanguage.googleapis.com/")


def translate_google(body: bytes, model: str, *, is_streamed: bool = False) -> Translation:
    """Translate a client's body.

    Args:
        body: JSON text.
        model: named by the address.
        is_streamed: the address asks for a stream.

    Raises: BadInputError: it is no such request.
    """
    try:
        return _translate(_cut(body) | {"model": encoded(model)}, is_streamed=is_streamed)
    except (*UNREADABLE, KeyError, ValueError) as error:  # the last: text that is no base64
        raise BadInputError(
            f"generateContent request: expected a body of Google's Gemini API, found {error}; see its reference"
        ) from error


def find_counted(body: bytes) -> bytes:
    """Return the request within a body of ``countTokens``: contents, or a whole request."""
    try:
        whole = _cut(body).get("generateContentRequest")
    except UNREADABLE:
        whole = None  # the reader says what is wrong
    return body if whole is None else bytes(whole)


def _cut(body: bytes) -> Pieces:
    """Cut a body into the JSON texts of its members. Google takes its names in snake case, too."""
    known = {*_TRANSLATED, *_UNSUPPORTED, *_NO_PLACE, "generateContentRequest"}
    found = {to_camel_case(name): (name, piece) for name, piece in read_pieces(body).items()}
    return {name if name in known else sent: piece for name, (sent, piece) in found.items()}


def _translate(pieces: Pieces, *, is_streamed: bool) -> Translation:
    losses = Losses()
    lost = losses.names
    for name in _UNSUPPORTED:
        if name in pieces and msgspec.json.decode(pieces[name]):
            losses.refused[name] = (
                f"generateContent request: expected no {name}, which only Google's own servers know; send the whole"
                " conversation"
            )
    values = {name: rename_members(msgspec.json.decode(pieces[name])) for name in _TRANSLATED if name in pieces}
    turns = _Turns(losses)
    for content in _objects_in(values["contents"], "contents"):
        turns.take(content)
    turns.close()
    config = as_json_object(values.get("generationConfig"))
    if config:
        pieces = pieces | {"generationConfig": encoded(config)}  # as the answer's writer reads it
    system = [_part(part, losses) for part in _find_parts(values.get("systemInstruction"), "systemInstruction")]
    given = _objects_in(values.get("tools"), "tools")
    hosted = {name for tool in given for name, value in tool.items() if name != _FUNCTIONS and value is not None}
    tools = ToolSet(list(_list_functions(given, lost)), [f"{HOSTED}{name}" for name in sorted(hosted)])
    fields: JsonObject = {
        **{name: piece for name, piece in pieces.items() if name not in _NO_PLACE.union(_TRANSLATED, _UNSUPPORTED)},
        **_read_config(config, lost),
        **continue_last(turns.messages),
        "tools": tools.functions or None,
        "tool_choice": tools.restrict(_read_choice(as_json_object(values.get("toolConfig")), lost)),
        "stream": is_streamed or None,
    }
    lost |= dict.fromkeys(tools.dropped)
    return Translation(
        client_fields=pieces,
        system=[{"role": "system", "content": join_content(system)}] if system else [],
        messages=[encoded(message) for message in turns.messages],
        fields=fields,
        losses=losses,
        not_sampling=_NOT_SAMPLING,
        shows_logprobs=config.get("responseLogprobs") is True,
    )


class _Call(msgspec.Struct, frozen=True):
    """A call whose result has not come."""

    given_id: object
    """Id under which the client knows it; None: it knows none."""
    name: str
    call_id: str
    """Id that the model gave it."""


@dataclass(slots=True)
class _Turns:
    """Builds chat messages from contents."""

    losses: Losses
    messages: list[JsonObject] = field(default_factory=list[JsonObject])
    _is_answer: bool = False
    _thoughts: list[str] = field(default_factory=list[str])
    _signed: str = ""
    """Thoughts that a signature holds."""
    _texts: list[str] = field(default_factory=list[str])
    _calls: list[JsonObject] = field(default_factory=list[JsonObject])
    _open: list[_Call] = field(default_factory=list[_Call])
    _num_calls: int = 0

    def take(self, content: JsonObject) -> None:
        """Add a content."""
        parts = _find_parts(content, "contents")
        if content.get("role") == "model":
            self._is_answer = True
            for part in parts:
                self._take_answered(part)
            return
        self.close()
        shown: list[JsonObject] = []
        for part in parts:
            if "functionResponse" not in part:
                shown.append(_part(part, self.losses))
                continue
            if shown:
                self.messages.append({"role": "user", "content": join_content(shown)})
                shown = []
            self.messages.append(self._result(as_json_object(part["functionResponse"])))
        if shown or not parts:
            self.messages.append({"role": "user", "content": join_content(shown)})

    def close(self) -> None:
        """End the model's turn, if it is one."""
        if self._is_answer:
            thoughts = [self._signed] if self._signed else self._thoughts
            self.messages.append(assistant_message(self._texts, thoughts, self._calls))
        self._is_answer, self._signed = False, ""
        self._thoughts, self._texts, self._calls = [], [], []

    def _take_answered(self, part: JsonObject) -> None:
        signature = read_signature(sent := part.get("thoughtSignature"))
        if signature is None and sent not in (*_EMPTY, *_NO_SIGNATURES):
            self.losses.names["contents.parts.thoughtSignature"] = None
        if signature is not None:
            self._signed = signature.thought or self._signed
        match part:
            case {"functionCall": dict()}:
                call = as_json_object(part["functionCall"])
                args, name, written = (
                    as_json_object(call.get("args")),
                    str(call["name"]),
                    signature and signature.arguments,
                )
                if written is None or parse_arguments(written) != args:  # the client changed them
                    written = json.dumps(args, ensure_ascii=False)
                call_id = (signature and signature.call_id) or call.get("id") or f"call_{self._num_calls}"
                self._num_calls += 1
                self._open.append(_Call(call.get("id"), name, str(call_id)))
                self._calls.append(tool_call(str(call_id), name, written))
            case {"text": str(text)}:
                (self._thoughts if part.get("thought") is True else self._texts).append(text)
            case _:
                self.losses.refused["contents.parts.model"] = (
                    f"generateContent request: expected text or functionCall of the model, found {sorted(part)}; leave"
                    " it out"
                )

    def _result(self, response: JsonObject) -> JsonObject:
        given, name = response.get("id"), str(response["name"])
        by_id = (call for call in self._open if given and call.given_id == given)
        found = next(by_id, None) or next((call for call in self._open if call.name == name), None)
        if found is not None:
            self._open.remove(found)
        media = [_part(part, self.losses) for part in _objects_in(response.get("parts"), "parts")]
        content = join_content([text_part(_written_result(response.get("response"))), *media])
        return {"role": "tool", "tool_call_id": found.call_id if found else str(given or name), "content": content}


def _written_result(response: object) -> str:
    """Return what a tool returned: as Google says, ``output`` alone is all of it."""
    fields = as_json_object(response)
    output = fields["output"] if fields.keys() == {"output"} else fields
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


def _objects_in(value: object, name: str) -> list[JsonObject]:
    """Return a repeated field as a list; Google takes a single object for a list of one."""
    if value is None:
        return []
    try:
        return msgspec.convert([value] if isinstance(value, dict) else value, list[JsonObject])
    except msgspec.ValidationError as error:
        raise BadInputError(
            f"generateContent request: expected {name} as a list of objects, found {error}; see Google's reference"
        ) from error


def _find_parts(content: object, name: str) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"text": content}]
    return _objects_in(as_json_object(content).get("parts"), f"{name}.parts")


def _part(part: JsonObject, losses: Losses) -> JsonObject:
    losses.names |= {f"contents.parts.{name}": None for name in ("videoMetadata", "mediaResolution") if part.get(name)}
    match part:
        case {"text": str(text)}:
            return text_part(text)
        case {"inlineData": {"mimeType": str(kind), "data": str(data)}}:
            data = data.replace("-", "+").replace("_", "/")  # Google's Python client writes the URL's alphabet
            if kind.startswith("text/"):
                return text_part(b64decode(data + "==").decode("utf-8", "replace"))
            return _media(kind, f"data:{kind};base64,{data}")
        case {"fileData": {"fileUri": str(url)}} if not url.startswith(_GOOGLES_FILES):
            return _media(str(as_json_object(part["fileData"]).get("mimeType", "")), url)
        case _:
            losses.refused[f"contents.parts.{'.'.join(sorted(part))}"] = (
                f"generateContent request: expected parts of text, inlineData, fileData at an address of one's own,"
                f" functionCall or functionResponse, found {sorted(part)}, which only Google's own servers can read;"
                " send the data itself"
            )
            return part


def _media(kind: str, url: str) -> JsonObject:
    match kind.partition("/")[0]:
        case "image":
            return image_part(url)
        case "audio" | "video" as name:
            return {"type": f"{name}_url", f"{name}_url": {"url": url}}
        case _:
            return {"type": "file", "file": {"file_data": url}}


def _list_functions(tools: Iterable[JsonObject], lost: dict[str, None]) -> Iterator[JsonObject]:
    for tool in tools:
        for declared in _objects_in(tool.get(_FUNCTIONS), _FUNCTIONS):
            names = [name for name, value in declared.items() if name not in _DECLARED and value not in _EMPTY]
            lost |= {f"functionDeclarations.{name}": None for name in names}
            schema = declared.get("parametersJsonSchema") or to_json_schema(declared.get("parameters"))
            yield function_tool(declared["name"], {"description": declared.get("description"), "parameters": schema})


def _read_choice(config: JsonObject, lost: dict[str, None]) -> object:
    """Return which tools may or must be called, in the words of chat completions; None: it is not said."""
    lost |= {f"toolConfig.{name}": None for name in config if name != "functionCallingConfig" and config[name]}
    calling = as_json_object(config.get("functionCallingConfig"))
    if calling.get("streamFunctionCallArguments"):
        lost["toolConfig.streamFunctionCallArguments"] = None
    named = calling.get("mode", "MODE_UNSPECIFIED")
    if named == "VALIDATED":
        lost["toolConfig.mode.VALIDATED"] = None
    mode = _MODES.get(str(named))
    names = msgspec.convert(calling.get("allowedFunctionNames") or [], list[str])
    if not names or mode == "none":
        return mode
    if mode == "required" and len(names) == 1:
        return named_choice(names[0])
    return {
        "type": "allowed_tools",
        "allowed_tools": {"mode": mode or "auto", "tools": [named_choice(name) for name in names]},
    }


def _read_config(config: JsonObject, lost: dict[str, None]) -> JsonObject:
    fields: JsonObject = {_CONFIG[name]: _as_integer(value) for name, value in config.items() if name in _CONFIG}
    fields["stop"] = fields.get("stop") or None
    if config.get("responseModalities") not in (*_EMPTY, ["TEXT"]):
        lost["generationConfig.responseModalities"] = None
    unread = config.keys() - _CONFIG.keys() - _CONFIG_READ - {"responseModalities"}
    lost |= {f"generationConfig.{name}": None for name in sorted(unread) if config[name] not in _EMPTY}
    return fields | _read_format(config, lost) | _read_thinking(as_json_object(config.get("thinkingConfig")), lost)


def _as_integer(value: object) -> object:
    """Return a number without a fraction as an integer: Google's Python client writes top_k as a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _read_format(config: JsonObject, lost: dict[str, None]) -> JsonObject:
    kind = config.get("responseMimeType") or ""
    schema = config.get("responseJsonSchema") or to_json_schema(config.get("responseSchema"))
    if kind == "text/x.enum" and schema:
        return {"structured_outputs": {"choice": as_json_object(schema).get("enum")}}
    if kind == "application/json" or (schema and not kind):
        wanted = Format("json_schema", schema=as_json_object(schema)) if schema else Format("json_object")
        return {"response_format": wanted.to_chat()}
    if kind not in ("", "text/plain"):
        lost["generationConfig.responseMimeType"] = None
    return {}


def _read_thinking(thinking: JsonObject, lost: dict[str, None]) -> JsonObject:
    """Express how much to think in vLLM's words."""
    read = ("includeThoughts", "thinkingBudget", "thinkingLevel")
    lost |= {f"thinkingConfig.{name}": None for name in thinking if name not in read}
    level = str(thinking.get("thinkingLevel") or "THINKING_LEVEL_UNSPECIFIED")
    effort = None if level == "THINKING_LEVEL_UNSPECIFIED" else level.lower()
    match thinking.get("thinkingBudget"):
        case 0:
            return {"reasoning_effort": "none"}
        case int(budget) if budget > 0:
            return {"reasoning_effort": effort, "thinking_token_budget": budget}
        case _:
            return {"reasoning_effort": effort}


class _Usage(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None

    def count(self) -> Usage:
        """Return it with the thoughts among the answer's tokens, as others count."""
        sampled = (self.candidates_token_count, self.thoughts_token_count)
        response = None if sampled == (None, None) else sum(one or 0 for one in sampled)
        return Usage(
            prompt_tokens=self.prompt_token_count,
            response_tokens=response,
            cached_tokens=self.cached_content_token_count,
        )


class _Candidate(msgspec.Struct, rename="camel"):
    content: JsonObject | None = None
    finish_reason: str | None = None
    index: int = 0


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None


class _Answer(msgspec.Struct, rename="camel"):
    """An answer, or a piece of one that is streamed."""

    candidates: list[_Candidate] = []
    usage_metadata: _Usage | None = None
    model_version: str | None = None
    prompt_feedback: _Feedback | None = None


def read_content(body: bytes) -> Answer:
    """Read a whole answer.

    Raises: msgspec.DecodeError: it is none.
    """
    return _find_answer([read_as(body, _Answer)])


def join_content_pieces(events: Iterable[str], unread: list[str]) -> Answer:
    """Join the pieces of an answer, see ``read_events``."""
    return _find_answer(list(read_events(events, _Answer, unread)))


def _find_answer(pieces: list[_Answer]) -> Answer:
    losses, reasons, turns = Losses(), dict[int, str | None](), dict[int, _Turns]()
    for candidate in (one for piece in pieces for one in piece.candidates):
        turn = turns.setdefault(candidate.index, _Turns(losses))
        turn.take({**(candidate.content or {}), "role": "model"})
        reasons[candidate.index] = candidate.finish_reason or reasons.get(candidate.index)
    for turn in turns.values():
        turn.close()
    blocked = next((one.block_reason for piece in pieces if (one := piece.prompt_feedback) and one.block_reason), None)
    usage = next((piece.usage_metadata for piece in reversed(pieces) if piece.usage_metadata), None)
    return Answer(
        actions=[
            join_answer(turn.messages, find_reason("google_reason", reasons[index]))
            for index, turn in sorted(turns.items())
        ],
        losses=losses,
        model=next((piece.model_version for piece in pieces if piece.model_version), None),
        usage=usage and usage.count(),
        failure=blocked and f"the prompt was blocked: {blocked}",
        is_complete=bool(reasons) and None not in reasons.values(),
    )
