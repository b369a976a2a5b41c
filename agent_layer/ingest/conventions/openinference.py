"""Convention of OpenInference (Arize Phoenix): lists are spread over numbered attributes."""

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
from agent_layer.schema import Action, JsonObject, as_json_object, as_json_objects, parse_json_text

__all__ = ["SESSIONS", "read"]

SESSIONS = ("session.id",)

_NO_SAMPLING = ("model", "messages", "tools", "stream", "stream_options", "extra_headers")


def read(span: ReceivedSpan) -> SpanMeaning | None:
    """Interpret a span; None if it does not follow this convention."""
    attributes = span.attributes
    match first_text(attributes, "openinference.span.kind"):
        case "LLM":
            return _model_call(attributes)
        case "TOOL":
            return ToolCall(
                name=first_text(attributes, "tool.name") or span.name,
                arguments=parse_json_text(attributes.get("input.value", attributes.get("tool.parameters"))),
                output=parse_json_text(attributes.get("output.value")),
                call_id=first_text(attributes, "tool.id", "tool_call.id"),
            )
        case "AGENT":
            return AgentRun(name=first_text(attributes, "agent.name", "graph.node.name") or span.name)
        case _:
            return None


def _model_call(attributes: JsonObject) -> ModelCall:
    messages = [_message(item) for item in unflatten(attributes, "llm.input_messages")]
    answers = [_message(item) for item in unflatten(attributes, "llm.output_messages")]
    tools = [
        parse_json_text(as_json_object(item.get("tool")).get("json_schema"))
        for item in unflatten(attributes, "llm.tools")
    ]
    sampling = as_json_object(parse_json_text(attributes.get("llm.invocation_parameters")))
    return ModelCall(
        messages=messages or None,
        tools=tools or None,
        sampling={name: value for name, value in sampling.items() if name not in _NO_SAMPLING},
        model=first_text(attributes, "llm.model_name", "llm.response.model_name") or first_text(sampling, "model"),
        actions=_actions(attributes, answers) or None,
        usage=token_usage(attributes, ("llm.token_count.prompt",), ("llm.token_count.completion",)),
    )


def _actions(attributes: JsonObject, answers: list[JsonObject]) -> list[Action]:
    """Return choices, each with the finish reason of the raw answer where present."""
    raw = as_json_object(parse_json_text(attributes.get("output.value")))
    each = [choice.get("finish_reason") for choice in as_json_objects(raw.get("choices"))]
    reasons = each if len(each) == len(answers) else [attributes.get("llm.finish_reason")] * len(answers)
    return [
        Action(message=message, finish_reason=reason if isinstance(reason, str) else None)
        for message, reason in zip(answers, reasons, strict=True)
    ]


def _message(item: JsonObject) -> JsonObject:
    fields = as_json_object(item.get("message"))
    message: JsonObject = {"role": fields.get("role", "assistant"), "content": fields.get("content")}
    if contents := numbered_objects(fields.get("contents")):
        message["content"] = [_content(as_json_object(one.get("message_content"))) for one in contents]
    if calls := numbered_objects(fields.get("tool_calls")):
        message["tool_calls"] = [_call(as_json_object(one.get("tool_call"))) for one in calls]
    return message | {name: fields[name] for name in ("tool_call_id", "name") if name in fields}


def _content(part: JsonObject) -> JsonObject:
    if part.get("type") == "image":
        return {
            "type": "image_url",
            "image_url": {"url": as_json_object(as_json_object(part.get("image")).get("image")).get("url")},
        }
    return {"type": part.get("type", "text"), "text": part.get("text")}


def _call(call: JsonObject) -> JsonObject:
    return {"id": call.get("id"), "type": "function", "function": as_json_object(call.get("function"))}
