"""OpenTelemetry's own convention for generative AI: messages in parts, as JSON text or structured."""

from typing import cast

from agent_layer import otel_names as names
from agent_layer.ingest.spans import AgentRun, ModelCall, ReceivedSpan, SpanMeaning, ToolCall, first_text, token_usage
from agent_layer.schema import Action, JsonObject, as_json_objects, parse_json_text, to_chat_messages

__all__ = ["SESSIONS", "read", "requested_sampling"]

SESSIONS = (names.CONVERSATION,)

_CALLS = (names.CHAT, "text_completion", "generate_content")
_DETAILS = "gen_ai.client.inference.operation.details"
"""Event that carries the contents if the span's attributes do not."""
_REASONS = {"tool_call": "tool_calls"}
"""Finish reasons whose name in a chat answer differs."""


def read(span: ReceivedSpan) -> SpanMeaning | None:
    """Interpret a span; None if it does not follow this convention."""
    attributes = span.attributes
    operation = first_text(attributes, names.OPERATION)
    if operation in _CALLS:
        details = [event.attributes for event in span.events if event.name == _DETAILS]
        return _model_call({name: value for one in (*details, attributes) for name, value in one.items()})
    if operation == names.EXECUTE_TOOL:
        return ToolCall(
            name=first_text(attributes, names.TOOL_NAME) or span.name.removeprefix(f"{operation} "),
            arguments=parse_json_text(attributes.get(names.TOOL_ARGUMENTS)),
            output=parse_json_text(attributes.get(names.TOOL_RESULT)),
            call_id=first_text(attributes, names.TOOL_CALL_ID),
        )
    if operation == names.INVOKE_AGENT:
        return AgentRun(name=first_text(attributes, names.AGENT) or span.name.removeprefix(f"{operation} "))
    return None


def requested_sampling(attributes: JsonObject) -> JsonObject:
    """Return the sampling parameters, by their names in a chat request."""
    sampling = {name: attributes[attribute] for name, attribute in names.SAMPLING.items() if attribute in attributes}
    return sampling | ({"n": attributes[names.CHOICE_COUNT]} if names.CHOICE_COUNT in attributes else {})


def _model_call(attributes: JsonObject) -> ModelCall:
    instructions = as_json_objects(parse_json_text(attributes.get(names.SYSTEM_INSTRUCTIONS)))
    system = [{"role": "system", "parts": instructions}] if instructions else []
    messages = [*system, *as_json_objects(parse_json_text(attributes.get(names.INPUT_MESSAGES)))]
    return ModelCall(
        messages=[message for one in messages for message in to_chat_messages(one)] or None,
        tools=[_tool(one) for one in as_json_objects(parse_json_text(attributes.get(names.TOOL_DEFINITIONS)))] or None,
        sampling=requested_sampling(attributes),
        model=first_text(attributes, names.RESPONSE_MODEL, names.REQUEST_MODEL),
        actions=_actions(attributes) or None,
        usage=token_usage(attributes, (names.INPUT_TOKENS,), (names.OUTPUT_TOKENS,)),
    )


def _actions(attributes: JsonObject) -> list[Action]:
    answers = as_json_objects(parse_json_text(attributes.get(names.OUTPUT_MESSAGES)))
    finish_reasons = attributes.get(names.FINISH_REASONS)
    reasons = cast("list[object]", finish_reasons) if isinstance(finish_reasons, list) else []
    at_span = [reason if isinstance(reason, str) else None for reason in reasons] + [None] * len(answers)
    return [
        Action(
            message=next(to_chat_messages(answer), None),
            finish_reason=_reason(first_text(answer, "finish_reason") or at_span[number]),
        )
        for number, answer in enumerate(answers)
    ]


def _reason(reason: str | None) -> str | None:
    return _REASONS.get(reason, reason) if reason else None


def _tool(definition: JsonObject) -> JsonObject:
    """Return a tool in chat request form; some instrumentations omit the ``function`` object."""
    if "function" in definition:
        return definition
    return {"type": "function", "function": {name: value for name, value in definition.items() if name != "type"}}
