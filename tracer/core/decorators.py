"""This file holds the decorators: ``@agent`` names who speaks, ``@tool`` records what is observed, ``@step`` marks
one
decision of the model. Functions, coroutines, generators and asynchronous generators keep their types; outside a
rollout they run as if they were not decorated.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast, overload

import msgspec

from agent_layer.schema import Action, JsonObject, Role
from tracer.core.calls import CallAnswer, CallRequest, adopt_call, announce_call, failed_answer
from tracer.core.contents import ContentWriter, ToolUse, adopt_tool_use, json_value
from tracer.core.scope import CallLineage, Scope, current_scope
from tracer.core.wrapping import Decorable, function_name, wrap

F = TypeVar("F", bound=Decorable)


@overload
def agent(function: F, /) -> F: ...
@overload
def agent(*, name: str | None = None, role: Role | None = None) -> Callable[[F], F]: ...
def agent(function: F | None = None, /, *, name: str | None = None, role: Role | None = None) -> F | Callable[[F], F]:
    """Say that the model calls inside are those of one agent.

    Args:
        function: what the agent does.
        name: None: the function's own.
        role: 'aux' for judges and helpers: their calls go to their own model and are never trained.
    """

    def decorate(inner: F) -> F:
        return wrap(inner, partial(_AgentBlock, name or function_name(inner), role))

    return decorate if function is None else decorate(function)


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(*, name: str | None = None) -> Callable[[F], F]: ...
def tool(function: F | None = None, /, *, name: str | None = None) -> F | Callable[[F], F]:
    """Record each run as an observation: arguments, output, status and duration, and the model call that led to it.

    Args:
        function: the tool; below a framework's own decorator, next to ``def``.
        name: None: the function's own.
    """

    def decorate(inner: F) -> F:
        return wrap(inner, partial(_ToolBlock, name or function_name(inner)))

    return decorate if function is None else decorate(function)


@overload
def step(function: F, /) -> F: ...
@overload
def step(*, name: str | None = None) -> Callable[[F], F]: ...
def step(function: F | None = None, /, *, name: str | None = None) -> F | Callable[[F], F]:
    """Say that each run is one decision of the model.

    A traced client that is called inside records that decision, under this name. When none is, as with a model in the
    same process, the arguments are recorded as the state (``messages``, if there is an argument of this name, as the
    messages) and what is returned as the answer, at text level.

    Args:
        function: what calls the model.
        name: None: the function's own.
    """

    def decorate(inner: F) -> F:
        return wrap(inner, partial(_StepBlock, name or function_name(inner)))

    return decorate if function is None else decorate(function)


def state(**values: object) -> None:
    """Say what the environment looks like: the state of all model calls that follow in this line of thought."""
    if (scope := current_scope()) is not None:
        contents = ContentWriter(scope.rollout)
        scope.lineage.environment = contents.add({name: contents.place(value) for name, value in values.items()})
        contents.write()


class _AgentBlock:
    """The agent has a trail of its own, so that agents that run side by side keep their causes apart."""

    def __init__(self, name: str, role: Role | None, outer: Scope, _arguments: dict[str, object]) -> None:
        lineage = CallLineage(outer.lineage.latest_call, outer.lineage.environment)
        self._outer = outer.lineage
        self.scope = msgspec.structs.replace(
            outer, agents=outer.agents_with(name), role=role or outer.role, lineage=lineage
        )

    def end(self, output: object) -> None:  # noqa: ARG002 - what an agent gives is not recorded
        self._outer.latest_call = self.scope.lineage.latest_call

    def fail(self, error: BaseException) -> None:
        self.end(error)


class _ToolBlock:
    def __init__(self, name: str, scope: Scope, arguments: dict[str, object]) -> None:
        self.scope = scope
        self._use: ToolUse = adopt_tool_use(scope, name, arguments)

    def end(self, output: object) -> None:
        self._use.record(output)

    def fail(self, error: BaseException) -> None:
        self._use.record_error(error)


class _StepBlock:
    def __init__(self, name: str, outer: Scope, arguments: dict[str, object]) -> None:
        messages = arguments.pop("messages", None)
        self.scope = msgspec.structs.replace(
            outer, node=name, read_state=partial(_place_all, arguments) if arguments else outer.read_state
        )
        self._request = CallRequest(messages=cast("list[object]", messages) if isinstance(messages, list) else None)
        self._call = announce_call(adopt_call(self.scope, "decorator"))
        self._call.begin(self._request)

    def end(self, output: object) -> None:
        action = Action(message=_assistant_message(output), finish_reason=None)
        self._call.finish("decorator", CallAnswer(actions=[action]), self._request)

    def fail(self, error: BaseException) -> None:
        self._call.finish("decorator", failed_answer(error), self._request)


def _place_all(values: dict[str, object], contents: ContentWriter) -> str:
    return contents.add({name: contents.place(value) for name, value in values.items()})


def _assistant_message(output: object) -> JsonObject:
    value = json_value(output)
    if isinstance(value, dict) and "role" in value:
        return cast("JsonObject", value)
    return {"role": "assistant", "content": value}
