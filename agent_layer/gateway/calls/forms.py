"""The form that an agent asks its answer to have, where no grammar may force it: in words, and whether it has it.

A grammar that was left out is the policy's to keep, and so are the tools that it is offered. An agent that fails on an
answer without the form that it asked for, or on a call that its tools do not allow, fails because of the policy, as one
whose prompt no longer fits does; an agent that fails on an answer that has it, fails by itself. So the last answer is
compared with all that a grammar would have forced: a call of a tool, its name and arguments, the text. A form that only
a grammar can read (a regular expression, a grammar, a tag) counts as missed.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, cast

import msgspec

from agent_layer.engines import GRAMMARS, NEUTRALISED, find_unreproducible
from agent_layer.gateway.calls.sampling import STRICT_TOOLS
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.schema import UNREADABLE, JsonObject, as_json_object, as_json_objects, find_misfit, parse_json_text
from agent_layer.translation import TextMemo

_TOOL_CHOICE: Final = "tool_choice"
_GAP: Final = "\n\n"
_FREED: Final = frozenset(f"{NEUTRALISED}:{name}" for name in (*GRAMMARS, STRICT_TOOLS))
_KINDS: Final = {
    "json": "guided_json",
    "json_object": "json_object",
    "choice": "guided_choice",
    "regex": "guided_regex",
    "grammar": "guided_grammar",
    "structural_tag": "structural_tag",
}
"""Kinds of vLLM's ``structured_outputs``, by the fields of one kind each."""
_NO_JSON: Final = object()
_BYTES_DECODED: Final = 4
"""What a byte of JSON takes when it is decoded, at most about."""


def describe_form(sampling: JsonObject, *, with_tools: bool) -> str | None:
    """Return in words which form of answer is asked; None: any.

    Args:
        sampling: of one call, in the words of chat completions.
        with_tools: the answer may be the call of a tool instead.
    """
    begin = "Unless you call a tool, answer with" if with_tools else "Answer with"
    return _GAP.join(f"{begin} {_describe(kind, value)}" for kind, value in _list_forms(sampling)) or None


def is_set_free(findings: Sequence[str]) -> bool:
    """Whether a grammar of a call was left out."""
    return not _FREED.isdisjoint(findings)


class AskedForms:
    """What a request asks of its answer, and a grammar would force.

    Args:
        sampling: asked by the agent, with the overrides of its task.
        request: whose tools may be called.
    """

    def __init__(self, sampling: JsonObject, request: ChatRequest) -> None:
        self._forms = list(_list_forms(sampling))
        is_forced = _TOOL_CHOICE in find_unreproducible(sampling)
        self._choice = as_json_object(sampling[_TOOL_CHOICE]) if is_forced else None
        tools, facts = request.tools, request.tool_facts
        self._tools = _FUNCTIONS.find(facts.hash, tools).by_name if tools is not None and facts is not None else {}

    def fit(self, message: JsonObject) -> bool:
        """Whether an answer has the forms that were asked."""
        calls = [as_json_object(call.get("function")) for call in as_json_objects(message.get("tool_calls"))]
        if self._choice is not None and not self._is_chosen(calls):
            return False
        if not all(self._fits_tool(call) for call in calls):
            return False
        return bool(calls) or all(_fits(kind, value, message.get("content")) for kind, value in self._forms)

    def _is_chosen(self, calls: list[JsonObject]) -> bool:
        choice = self._choice or {}
        listed = as_json_objects(as_json_object(choice.get("allowed_tools")).get("tools"))
        allowed = {_read_function(one).get("name") for one in (choice, *listed)} - {None}
        return bool(calls) and all(not allowed or call.get("name") in allowed for call in calls)

    def _fits_tool(self, call: JsonObject) -> bool:
        tool = self._tools.get(str(call.get("name")))
        arguments = _read(call.get("arguments"))
        is_object = isinstance(arguments, dict)
        return is_object and tool is not None and _is_fit(tool.get("parameters"), cast("object", arguments))


class _Functions(NamedTuple):
    by_name: dict[str, JsonObject]
    num_bytes: int


def _read_functions(name: str, tools: msgspec.Raw) -> _Functions:  # noqa: ARG001  # what a memo calls it with
    listed = map(_read_function, as_json_objects(msgspec.json.decode(tools)))
    return _Functions({str(one.get("name")): one for one in listed}, memoryview(tools).nbytes)


_FUNCTIONS: Final = TextMemo(_read_functions, measure=lambda found: _BYTES_DECODED * found.num_bytes)


def _read_function(tool: JsonObject) -> JsonObject:
    """Return the function of a tool, whose fields may stand beside its type."""
    return as_json_object(tool["function"]) if "function" in tool else tool


def _list_forms(sampling: JsonObject) -> Iterator[tuple[str, object]]:
    for name in find_unreproducible(sampling):
        if name in GRAMMARS and name != _TOOL_CHOICE:
            yield from _forms_in(name, sampling[name])


def _forms_in(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield kind and value of each form in a field."""
    fields = as_json_object(value)
    match name, fields.get("type"):
        case "structured_outputs", _:
            for kind in sorted(_KINDS.keys() & fields.keys()):
                if fields[kind]:
                    yield from _forms_in(_KINDS[kind], fields[kind])
        case ("json_object", _) | ("response_format", "json_object"):
            yield "json_object", None
        case "response_format", "json_schema":
            wanted = as_json_object(fields.get("json_schema"))
            yield "json_schema", wanted.get("schema") or {}
        case (("guided_json" | "json_schema"), _):
            yield "json_schema", value
        case _:
            yield name.removeprefix("guided_"), value


def _describe(kind: str, value: object) -> str:
    match kind:
        case "json_object":
            return "one JSON object and nothing else."
        case "json_schema":
            return f"JSON and nothing else, by this schema:\n{_as_json(value)}"
        case "choice":
            return f"one of these and nothing else:\n{_as_json(value)}"
        case _:
            return f"what this {kind} describes, and nothing else:\n{_as_json(value)}"


def _fits(kind: str, value: object, content: object) -> bool:
    match kind:
        case "json_object":
            return isinstance(_read(content), dict)
        case "json_schema":
            found = _read(content)
            return found is not _NO_JSON and _is_fit(value, found)
        case "choice":
            return isinstance(value, list) and content in cast("list[object]", value)
        case _:
            return False


def _is_fit(schema: object, value: object) -> bool:
    return find_misfit(as_json_object(parse_json_text(schema)), value) is None


def _read(text: object) -> object:
    """Return the value that a text is as JSON, or ``_NO_JSON``."""
    try:
        return msgspec.json.decode(text) if isinstance(text, str) else _NO_JSON
    except (*UNREADABLE, UnicodeEncodeError):
        return _NO_JSON


def _as_json(value: object) -> str:
    """Return text as it is, other values as JSON; the same value gives the same text."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
