"""LangChain messages as contents, in the form of the OpenAI dialect, as a gateway records them."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from agent_layer.schema import Action, JsonObject, Usage, as_json_object, json_text, json_value, refer_to
from tracer.core import CallAnswer, ContentWriter

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"}


def message_object(message: BaseMessage) -> JsonObject:
    """Return the message exactly as langchain-openai sends it, so that both have one content hash."""
    named: JsonObject = {"content": message.content, "role": _ROLES.get(message.type, message.type)}
    if isinstance(message, ToolMessage):
        named["tool_call_id"] = message.tool_call_id
    elif message.name is not None:
        named["name"] = message.name
    if isinstance(message, AIMessage) and message.tool_calls:
        named["tool_calls"] = [_tool_call_object(call) for call in message.tool_calls]
        named["content"] = message.content or None
    return named


def _tool_call_object(call: ToolCall) -> JsonObject:
    function = {"name": call["name"], "arguments": json.dumps(json_value(call["args"]), ensure_ascii=False)}
    return {"type": "function", "id": call["id"], "function": function}


def add_messages(messages: Sequence[BaseMessage], contents: ContentWriter) -> list[str]:
    """Return the content hash of each message."""
    return [_add_message(contents, message) for message in messages]


def add_state(state: object, contents: ContentWriter) -> str:
    """Return the content hash of a graph's state, each message and each long value a content of its own."""
    return contents.add({name: _place(contents, value) for name, value in _channels(state).items()})


def _add_message(contents: ContentWriter, message: BaseMessage) -> str:
    """Return the content hash of a message; a recorded, unchanged message is not encoded again."""
    if not isinstance(message.content, str):
        return contents.add(message_object(message))
    calls = json_text(message.tool_calls) if isinstance(message, AIMessage) and message.tool_calls else b""
    identity = id(message), id(message.content), calls
    return contents.add_once(identity, (message, message.content), partial(message_object, message))


def _channels(state: object) -> Mapping[str, object]:
    """Return the state by channel: of a dictionary, a dataclass, a pydantic model or any other object."""
    if type(state) is dict or isinstance(state, Mapping):
        return cast("Mapping[str, object]", state)
    fields = cast("Mapping[str, object] | None", getattr(state, "__dict__", None))
    return {"state": state} if fields is None else fields


def _place(contents: ContentWriter, value: object) -> object:
    if isinstance(value, BaseMessage):
        return refer_to(_add_message(contents, value))
    items = cast("list[object]", value) if isinstance(value, list) else []
    if any(isinstance(item, BaseMessage) for item in items):
        return [_place(contents, item) for item in items]
    return contents.place_items(items) if items else contents.place(cast("object", value))


def read_result(result: LLMResult) -> CallAnswer:
    """Read the answer of a LangChain chat model."""
    messages = _answer_messages(result)
    usage = messages[0].usage_metadata if messages else None
    return CallAnswer(
        actions=[
            Action(
                message=as_json_object(json_value(message_object(message))),
                finish_reason=_text(message.response_metadata.get("finish_reason")),
            )
            for message in messages
        ],
        model=_text(messages[0].response_metadata.get("model_name")) if messages else None,
        usage=usage
        and Usage(
            prompt_tokens=usage["input_tokens"],
            response_tokens=usage["output_tokens"],
            cached_tokens=usage.get("input_token_details", {}).get("cache_read"),
        ),
    )


def answer_ids(result: LLMResult) -> list[str]:
    """Return the ids by which later messages may refer to this answer: of its messages and their tool calls."""
    named = [
        name for message in _answer_messages(result) for name in (message.id, *(c["id"] for c in message.tool_calls))
    ]
    return [name for name in named if name]


def _answer_messages(result: LLMResult) -> list[AIMessage]:
    choices = [
        choice.message if isinstance(choice, ChatGeneration) else AIMessage(choice.text)
        for choice in result.generations[0]
    ]
    return [message for message in choices if isinstance(message, AIMessage)]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
