"""Turns of a conversation in the words of chat completions: messages and their parts, calls, tools, formats."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from agent_layer.schema import Action, JsonObject, as_json_object, as_json_objects


def text_part(text: str) -> JsonObject:
    """A text among the parts of a message."""
    return {"type": "text", "text": text}


def image_part(url: str, detail: object = None) -> JsonObject:
    """An image among the parts of a message."""
    image: JsonObject = {"url": url}
    return {"type": "image_url", "image_url": image | {"detail": detail} if detail else image}


def join_content(parts: list[JsonObject]) -> object:
    """Return parts as the content of a message; a single text becomes plain text."""
    match parts:
        case []:
            return ""
        case [{"type": "text", "text": str(text), **rest}] if not rest:
            return text
        case _:
            return parts


def objects_in(content: object) -> list[JsonObject]:
    """Return a content, text or list, as a list of objects."""
    if content is None:
        return []
    return [text_part(content)] if isinstance(content, str) else msgspec.convert(content, list[JsonObject])


def assistant_message(texts: Iterable[str], reasoning: Iterable[str], calls: list[JsonObject]) -> JsonObject:
    """Return the message of one turn; the same however it was split on its way."""
    text, thought = "".join(texts), "".join(reasoning)
    message: JsonObject = {"role": "assistant", "content": text if text or not calls else None}
    message |= {"reasoning": thought} if thought else {}
    return message | ({"tool_calls": calls} if calls else {})


def join_answer(messages: Iterable[JsonObject], finish_reason: str | None) -> Action:
    """Return the one answer that an assistant's messages are; a call is a reason to stop of its own."""
    spoken = [message for message in messages if message.get("role") == "assistant"]
    calls = [call for message in spoken for call in as_json_objects(message.get("tool_calls"))]
    texts, thoughts = ([str(message.get(name) or "") for message in spoken] for name in ("content", "reasoning"))
    reason = "tool_calls" if calls and finish_reason == "stop" else finish_reason
    return Action(message=assistant_message(texts, thoughts, calls), finish_reason=reason)


def continue_last(messages: Sequence[object]) -> JsonObject:
    """Return the fields with which an engine goes on from a last message that is the beginning of the answer.

    Args:
        messages: chat messages. A text of the assistant alone begins an answer.
    """
    last = as_json_object(messages[-1]) if messages else {}
    is_beginning = last.get("role") == "assistant" and last.get("content") and last.keys() == {"role", "content"}
    return {"continue_final_message": True, "add_generation_prompt": False} if is_beginning else {}


def tool_call(call_id: str, name: str, arguments: str) -> JsonObject:
    """A call of a tool within such a message."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def function_tool(name: object, fields: Mapping[str, object]) -> JsonObject:
    """A tool that the model may call; fields that are None are left out."""
    return {"type": "function", "function": {"name": name} | _known(fields)}


def named_choice(name: str) -> JsonObject:
    """Return the choice that makes the model call this tool."""
    return {"type": "function", "function": {"name": name}}


class Format(msgspec.Struct):
    """How the other dialects ask for JSON."""

    type: str
    name: str = "output"
    schema: JsonObject | None = None
    description: str | None = None
    strict: bool | None = None

    def to_chat(self) -> JsonObject | None:
        """Return it as ``response_format``; None: text, as without one."""
        if self.type != "json_schema":
            return None if self.type == "text" else {"type": self.type}
        fields = {"schema": self.schema, "description": self.description, "strict": self.strict}
        return {"type": self.type, "json_schema": {"name": self.name} | _known(fields)}


def _known(fields: Mapping[str, object]) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}
