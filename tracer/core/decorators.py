"""The decorators ``@agent``, ``@tool`` and ``@step``, and ``state``.

``@agent`` names the agent whose calls are inside, ``@tool`` records an observation, ``@step`` marks one decision of the
model. Functions, coroutines, generators and asynchronous generators keep their types. Outside a rollout they run as if
they were not decorated.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast, overload

import msgspec

from agent_layer.schema import Action, JsonObject, Role, json_value
from tracer.core.calls import CallAnswer, CallRequest, adopt_call, announce_call, failed_answer
from tracer.core.contents import ContentWriter
from tracer.core.scope import CallLineage, Scope, current_scope
from tracer.core.tool_use import ToolUse, adopt_tool_use
from tracer.core.wrapping import Decorable, function_name, wrap

F = TypeVar("F", bound=Decorable)


@overload
def agent(function: F, /) -> F: ...
@overload
def agent(*, name: str | None = None, role: Role | None = None) -> Callable[[F], F]: ...
def agent(function: F | None = None, /, *, name: str | None = None, role: Role | None = None) -> F | Callable[[F], F]:
    """Attribute the model calls inside to one agent.

    Args:
        function: the agent.
        name: default: the name of the function.
        role: 'aux' for judges and assistants: their calls go to their own model and are never trained.
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
        name: default: the name of the function.
    """

    def decorate(inner: F) -> F:
        return wrap(inner, partial(_ToolBlock, name or function_name(inner)))

    return decorate if function is None else decorate(function)


@overload
def step(function: F, /) -> F: ...
@overload
def step(*, name: str | None = None) -> Callable[[F], F]: ...
def step(function: F | None = None, /, *, name: str | None = None) -> F | Callable[[F], F]:
    """Mark each run as one decision of the model.

    A traced client that is called inside records the decision, under this name. Without one, as with a model in this
    process, the arguments are recorded as the state (an argument ``messages`` as the messages) and the returned value
    as the answer, at text level.

    Args:
        function: calls the model.
        name: default: the name of the function.
    """

    def decorate(inner: F) -> F:
        return wrap(inner, partial(_StepBlock, name or function_name(inner)))

    return decorate if function is None else decorate(function)


def state(**values: object) -> None:
    """Record the state of the environment, for all model calls that follow in this lineage."""
    if (scope := current_scope()) is not None:
        contents = ContentWriter(scope.rollout)
        scope.lineage.environment = contents.add({name: contents.place(value) for name, value in values.items()})
        contents.write()


class _AgentBlock:
    """Each agent has a lineage of its own, so that calls of parallel agents are not parents of each other."""

    def __init__(self, name: str, role: Role | None, outer: Scope, _arguments: dict[str, object]) -> None:
        lineage = CallLineage(outer.lineage.latest_call, outer.lineage.environment)
        self._outer = outer.lineage
        self.scope = msgspec.structs.replace(
            outer, agents=outer.agents_with(name), role=role or outer.role, lineage=lineage
        )

    def end(self, output: object) -> None:  # noqa: ARG002 - the output of an agent is not recorded
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
