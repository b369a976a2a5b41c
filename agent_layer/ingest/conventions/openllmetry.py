"""Convention of OpenLLMetry (Traceloop): numbered prompts and completions, entities around them.

Its newer releases write model calls by the GenAI conventions (``genai``), and entities as before.
"""

from agent_layer import otel_names as names
from agent_layer.ingest.conventions.genai import requested_sampling
from agent_layer.ingest.spans import (
    AgentRun,
    ModelCall,
    ReceivedSpan,
    SpanMeaning,
    ToolCall,
    first_text,
    numbered_objects,
    token_usage,
    unflatten,
)
from agent_layer.schema import MEDIA, Action, JsonObject, as_json_objects, parse_json_text

__all__ = ["SESSIONS", "read"]

SESSIONS = ("traceloop.association.properties.session_id", "traceloop.association.properties.thread_id")

_CALLS = ("chat", "completion")
_PARTS = frozenset(MEDIA) | {"text", "input_text", "output_text", "refusal", "image", "document", "file", "input_file"}
"""Types of the parts of contents, in the dialects that its instrumentations see."""


def read(span: ReceivedSpan) -> SpanMeaning | None:
    """Interpret a span; None if it does not follow this convention."""
    attributes = span.attributes
    name = first_text(attributes, "traceloop.entity.name") or span.name
    match first_text(attributes, "traceloop.span.kind"):
        case "tool":
            prompt, answered = (
                parse_json_text(attributes.get(f"traceloop.entity.{end}")) for end in ("input", "output")
            )
            return ToolCall(name=name, arguments=prompt, output=answered)
        case "agent":
            return AgentRun(name=name)
        case _:
            is_call = first_text(attributes, "llm.request.type") in _CALLS and names.INPUT_MESSAGES not in attributes
            return _model_call(attributes) if is_call else None


def _model_call(attributes: JsonObject) -> ModelCall:
    messages = [_message(item, "user") for item in unflatten(attributes, "gen_ai.prompt")]
    tools = [_tool(item) for item in unflatten(attributes, "llm.request.functions")]
    return ModelCall(
        messages=messages or None,
        tools=tools or None,
        sampling=requested_sampling(attributes),
        model=first_text(attributes, names.RESPONSE_MODEL, names.REQUEST_MODEL),
        actions=[_action(item) for item in unflatten(attributes, "gen_ai.completion")] or None,
        usage=token_usage(
            attributes,
            (names.INPUT_TOKENS, "gen_ai.usage.prompt_tokens"),
            (names.OUTPUT_TOKENS, "gen_ai.usage.completion_tokens"),
        ),
    )


def _action(item: JsonObject) -> Action:
    return Action(message=_message(item, "assistant"), finish_reason=first_text(item, "finish_reason"))


def _message(item: JsonObject, role: str) -> JsonObject:
    message: JsonObject = {"role": item.get("role", role), "content": _content(item.get("content"))}
    if calls := numbered_objects(item.get("tool_calls")):
        message["tool_calls"] = [_call(one) for one in calls]
    return message | {name: item[name] for name in ("tool_call_id",) if name in item}


def _content(content: object) -> object:
    """Return the parts of a content, which are written as JSON text; other text stays text."""
    parts = parse_json_text(content) if isinstance(content, str) and content.startswith("[") else None
    objects = as_json_objects(parts)
    is_parts = bool(objects) and all(one.get("type") in _PARTS for one in objects)
    return parts if is_parts and objects == parts else content


def _call(call: JsonObject) -> JsonObject:
    function = {"name": call.get("name"), "arguments": call.get("arguments")}
    return {"id": call.get("id"), "type": "function", "function": function}


def _tool(item: JsonObject) -> JsonObject:
    return {"type": "function", "function": item | {"parameters": parse_json_text(item.get("parameters"))}}
