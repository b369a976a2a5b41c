"""This file holds the convention of OpenInference (Arize Phoenix): lists are spread over numbered attributes."""

from agent_layer.ingest import (
    AgentRun,
    ModelCall,
    Seen,
    SpanReceived,
    ToolCall,
    in_order,
    json_of,
    nested,
    text_of,
    usage_of,
)
from agent_layer.schema import Action, JsonObject, object_of, objects_of

__all__ = ["SESSIONS", "read"]

SESSIONS = ("session.id",)

_NO_SAMPLING = ("model", "messages", "tools", "stream", "stream_options", "extra_headers")


def read(span: SpanReceived) -> Seen | None:
    """Say what the span tells of; None when it does not follow this convention."""
    attributes = span.attributes
    match text_of(attributes, "openinference.span.kind"):
        case "LLM":
            return _model_call(attributes)
        case "TOOL":
            return ToolCall(
                name=text_of(attributes, "tool.name") or span.name,
                arguments=json_of(attributes.get("input.value", attributes.get("tool.parameters"))),
                output=json_of(attributes.get("output.value")),
                call_id=text_of(attributes, "tool.id", "tool_call.id"),
            )
        case "AGENT":
            return AgentRun(name=text_of(attributes, "agent.name", "graph.node.name") or span.name)
        case _:
            return None


def _model_call(attributes: JsonObject) -> ModelCall:
    asked = [_message(item) for item in nested(attributes, "llm.input_messages")]
    answers = [_message(item) for item in nested(attributes, "llm.output_messages")]
    tools = [json_of(object_of(item.get("tool")).get("json_schema")) for item in nested(attributes, "llm.tools")]
    sampling = object_of(json_of(attributes.get("llm.invocation_parameters")))
    return ModelCall(
        messages=asked or None,
        tools=tools or None,
        sampling={name: value for name, value in sampling.items() if name not in _NO_SAMPLING},
        model=text_of(attributes, "llm.model_name", "llm.response.model_name") or text_of(sampling, "model"),
        actions=_actions(attributes, answers) or None,
        usage=usage_of(attributes, ("llm.token_count.prompt",), ("llm.token_count.completion",)),
    )


def _actions(attributes: JsonObject, answers: list[JsonObject]) -> list[Action]:
    """Choices, each with its own finish reason where the raw answer tells it."""
    raw = object_of(json_of(attributes.get("output.value")))
    each = [choice.get("finish_reason") for choice in objects_of(raw.get("choices"))]
    reasons = each if len(each) == len(answers) else [attributes.get("llm.finish_reason")] * len(answers)
    return [
        Action(message=message, finish_reason=reason if isinstance(reason, str) else None)
        for message, reason in zip(answers, reasons, strict=True)
    ]


def _message(item: JsonObject) -> JsonObject:
    told = object_of(item.get("message"))
    message: JsonObject = {"role": told.get("role", "assistant"), "content": told.get("content")}
    if contents := in_order(told.get("contents")):
        message["content"] = [_content(object_of(one.get("message_content"))) for one in contents]
    if calls := in_order(told.get("tool_calls")):
        message["tool_calls"] = [_call(object_of(one.get("tool_call"))) for one in calls]
    return message | {name: told[name] for name in ("tool_call_id", "name") if name in told}


def _content(told: JsonObject) -> JsonObject:
    if told.get("type") == "image":
        return {
            "type": "image_url",
            "image_url": {"url": object_of(object_of(told.get("image")).get("image")).get("url")},
        }
    return {"type": told.get("type", "text"), "text": told.get("text")}


def _call(told: JsonObject) -> JsonObject:
    return {"id": told.get("id"), "type": "function", "function": object_of(told.get("function"))}
