"""This file holds how a request of Anthropic's messages API is said as a chat completion."""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.chat import ChatRequest, Pieces, read_pieces
from agent_layer.gateway.dialects.turns import (
    Format,
    assistant_message,
    content_of,
    function_tool,
    image_part,
    named_choice,
    objects_in,
    text_part,
    tool_call,
    translated,
)
from agent_layer.schema.record import JsonObject
from agent_layer.schema.untrusted import UNREADABLE

__all__ = ["ArgumentsOf", "read_messages"]

ArgumentsOf: TypeAlias = Callable[[str, object], str]
"""(call id, input) → the arguments as the model wrote them."""

_NO_PLACE = frozenset(
    {"metadata", "service_tier", "container", "context_management", "cache_control", "inference_geo", "speed"}
    | {"diagnostics", "user_profile_id", "workspace_id", "betas", "output_format", "mcp_servers"}
)
"""What an engine has no use for; recorded with the sampling asked, and left out."""
_TRANSLATED = frozenset(
    {"messages", "system", "tools", "tool_choice", "max_tokens", "stop_sequences", "thinking", "output_config"}
)
_NOT_SAMPLING = frozenset({"messages", "system", "tools", "model", "stream", "metadata", "return_token_ids"})


class _Message(msgspec.Struct):
    role: str
    content: str | list[JsonObject]


class _Tool(msgspec.Struct):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: JsonObject | None = None
    strict: bool | None = None


class _Source(msgspec.Struct):
    type: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""

    @property
    def address(self) -> str:
        """Where it lies, or all of it."""
        return self.url if self.type == "url" else f"data:{self.media_type};base64,{self.data}"


class _OutputConfig(msgspec.Struct):
    format: Format | None = None
    effort: str | None = None


class _Body(msgspec.Struct):
    messages: list[_Message]
    max_tokens: int | None = None
    system: str | list[JsonObject] | None = None
    tools: list[_Tool] | None = None
    tool_choice: JsonObject | None = None
    stop_sequences: list[str] | None = None
    thinking: JsonObject | None = None
    output_config: _OutputConfig | None = None
    output_format: Format | None = None


_BODY: Final = msgspec.json.Decoder(_Body)


def read_messages(body: bytes, arguments_of: ArgumentsOf) -> ChatRequest:
    """Read a client's body.

    Args:
        body: JSON text.
        arguments_of: remembers how the model wrote what the client sends back parsed.

    Raises: BadInputError: it is no such request, or has what a chat completion has no place for.
    """
    try:
        asked = _BODY.decode(body)
        pieces = read_pieces(body)
        said = [one for message in asked.messages for one in _chat_messages(message, arguments_of)]
        system = [{"role": "system", "content": content_of(_parts(asked.system))}] if asked.system else []
        return translated([*system, *said], _fields(asked, pieces), pieces, _NOT_SAMPLING)
    except (*UNREADABLE, KeyError) as error:
        raise BadInputError(
            f"messages request: expected a body of Anthropic's messages API, found {error}; see its reference"
        ) from error


def _fields(asked: _Body, pieces: Pieces) -> JsonObject:
    """Everything but the messages."""
    config = asked.output_config or _OutputConfig()
    return {
        **{name: piece for name, piece in pieces.items() if name not in _TRANSLATED | _NO_PLACE},
        "max_tokens": asked.max_tokens,
        "stop": asked.stop_sequences or None,
        "tools": [_tool(tool) for tool in asked.tools] if asked.tools else None,
        "response_format": wanted.told() if (wanted := config.format or asked.output_format) else None,
        **_choice(asked.tool_choice or {}),
        **_thinking(asked.thinking or {}, config.effort),
    }


def _chat_messages(message: _Message, arguments_of: ArgumentsOf) -> Iterator[JsonObject]:
    blocks = objects_in(message.content)
    if message.role == "assistant":
        yield _assistant(blocks, arguments_of)
        return
    said: list[JsonObject] = []
    for block in blocks:
        if block.get("type") != "tool_result":
            said.append(block)
            continue
        if said:
            yield {"role": message.role, "content": content_of(_parts(said))}
            said = []
        content = content_of(_parts(block.get("content")))
        yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}
    if said or not blocks:
        yield {"role": message.role, "content": content_of(_parts(said))}


def _assistant(blocks: list[JsonObject], arguments_of: ArgumentsOf) -> JsonObject:
    texts, thoughts, calls = list[str](), list[str](), list[JsonObject]()
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "thinking", "thinking": str(text)}:
                thoughts.append(text)
            case {"type": "tool_use", "id": str(call_id), "name": str(name)}:
                calls.append(tool_call(call_id, name, arguments_of(call_id, block.get("input"))))
            case {"type": "redacted_thinking"}:
                pass  # nobody but Anthropic can read it
            case _:
                raise BadInputError(
                    f"messages request: expected text, thinking or tool_use of an assistant, found"
                    f" {block.get('type')!r}; leave it out"
                )
    return assistant_message(texts, thoughts, calls)


def _parts(content: object) -> list[JsonObject]:
    return [_part(block) for block in objects_in(content)]


def _part(block: JsonObject) -> JsonObject:
    """Translate what chat completions know; what they do not, the engine may."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text_part(text)
        case {"type": "document", "source": {"type": "text", "data": str(text)}}:
            return text_part(text)
        case {"type": "image", "source": {"type": "base64" | "url"}}:
            return image_part(_source_of(block).address)
        case {"type": "document", "source": {"type": "base64"}}:
            return {"type": "file", "file": {"file_data": _source_of(block).address}}
        case _:
            return {name: value for name, value in block.items() if name != "cache_control"}


def _source_of(block: JsonObject) -> _Source:
    return msgspec.convert(block["source"], _Source)


def _tool(tool: _Tool) -> JsonObject:
    if tool.input_schema is None:
        raise BadInputError(
            f"tool {tool.name!r}: expected an input_schema, found a tool of type {tool.type!r}, which only Anthropic's"
            " own servers run; give the agent one that it runs itself"
        )
    fields = {"description": tool.description, "parameters": tool.input_schema, "strict": tool.strict}
    return function_tool(tool.name, fields)


def _choice(choice: JsonObject) -> JsonObject:
    is_single = choice.get("disable_parallel_tool_use")
    parallel = {} if is_single is None else {"parallel_tool_calls": not is_single}
    match choice:
        case {"type": "tool", "name": str(name)}:
            return {"tool_choice": named_choice(name), **parallel}
        case {"type": "any"}:
            return {"tool_choice": "required", **parallel}
        case _:
            return {"tool_choice": choice.get("type"), **parallel}


def _thinking(thinking: JsonObject, effort: object) -> JsonObject:
    """Say how much to think in vLLM's words."""
    match thinking:
        case {"type": "disabled"}:
            return {"reasoning_effort": "none"}
        case {"budget_tokens": int(budget)}:
            return {"reasoning_effort": effort, "thinking_token_budget": budget}
        case _:
            return {"reasoning_effort": effort}
