"""Tool calls of one answer: read, checked, carried out side by side.

A call that cannot be carried out is answered with what is wrong, so that the model can correct it.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from agent_layer.schema import UNREADABLE, JsonObject, find_misfit
from envs.env_context import EnvContext, Tool, ToolCall, ToolDefinition, ToolResult
from envs.episode.policy import RequestedCall

Mistake: TypeAlias = Literal["unknown_tool", "malformed_arguments", "unfit_arguments", "too_many_calls", "tool_error"]
"""``tool_error``: the tool itself found the mistake."""
AnyTool: TypeAlias = Tool | ToolDefinition

_MAX_CALLS = 64
"""Tool calls of one answer."""
_MAX_QUOTE_LENGTH = 200


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """One call, and how it ended."""

    request: RequestedCall
    call: ToolCall | None = None
    """Call as checked; None: it could not be read."""
    result: ToolResult | None = None
    """None: the environment has to carry it out."""
    mistake: Mistake | None = None
    """Mistake of the model."""
    seconds: float = 0.0


async def use_tools(
    requests: Sequence[RequestedCall], tools: Mapping[str, AnyTool], context: EnvContext
) -> list[ToolUse]:
    """Carry out the calls of an answer, side by side; return how they ended, in the order of the calls.

    A tool that fails for no fault of the model stops the others; its error propagates.
    """
    try:
        async with asyncio.TaskGroup() as running:
            uses = [running.create_task(_use(one, place, tools, context)) for place, one in enumerate(requests)]
    except ExceptionGroup as group:
        raise group.exceptions[0] from None  # the text of a group names no cause
    return [use.result() for use in uses]


async def _use(request: RequestedCall, place: int, tools: Mapping[str, AnyTool], context: EnvContext) -> ToolUse:
    if place >= _MAX_CALLS:
        return _refuse(request, "too_many_calls", f"at most {_MAX_CALLS} calls in one answer; call it again")
    if (tool := tools.get(request.name)) is None:
        known = ", ".join(sorted(tools)) or "none"
        return _refuse(
            request, "unknown_tool", f"there is no tool {request.name[:_MAX_QUOTE_LENGTH]!r}; tools: {known}"
        )
    try:
        arguments = msgspec.json.decode(request.arguments, type=JsonObject)
    except (*UNREADABLE, UnicodeEncodeError) as error:
        quoted = request.arguments[:_MAX_QUOTE_LENGTH]
        message = f"{request.name}: its arguments are no JSON object ({error}), found {quoted!r}; send one JSON object"
        return _refuse(request, "malformed_arguments", message)
    if misfit := find_misfit(tool.parameters, arguments):
        return _refuse(request, "unfit_arguments", f"{request.name}: {misfit}; correct the arguments")
    call = ToolCall(id=request.id, name=request.name, arguments=arguments)
    if isinstance(tool, ToolDefinition):
        return ToolUse(request=request, call=call)
    return await _run(tool, request, call, context)


async def _run(tool: Tool, request: RequestedCall, call: ToolCall, context: EnvContext) -> ToolUse:
    began = time.monotonic()
    result = await tool(context, **call.arguments)
    mistake = "tool_error" if result.is_error else None
    return ToolUse(request=request, call=call, result=result, mistake=mistake, seconds=time.monotonic() - began)


def _refuse(request: RequestedCall, mistake: Mistake, text: str) -> ToolUse:
    return ToolUse(request=request, result=ToolResult(text=text, is_error=True), mistake=mistake)


def readable_message(message: JsonObject, uses: Sequence[ToolUse]) -> JsonObject:
    """Return an assistant message as a history holds it: no empty fields, unanswered calls or broken arguments.

    vLLM parses the arguments of earlier calls, and refuses the whole request when one of them is malformed.
    """
    kept = {name: value for name, value in message.items() if name != "tool_calls" and value not in (None, [])}
    if not uses:
        return {"content": "", **kept}
    calls: list[JsonObject] = [
        {
            "id": use.request.id,
            "type": "function",
            "function": {
                "name": use.request.name,
                "arguments": "{}" if use.mistake == "malformed_arguments" else use.request.arguments,
            },
        }
        for use in uses
    ]
    return {"content": None, **kept, "tool_calls": calls}


def make_definition(tool: AnyTool) -> JsonObject:
    """Return a tool as requests name it."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
