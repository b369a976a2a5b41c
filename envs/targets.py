"""This file holds targets: the forms that an agent can have, each made into one callable that a worker runs."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias, cast, runtime_checkable

from agent_layer.errors import BadInputError
from agent_layer.schema.task import Task, TaskView
from envs.environment import Environment, play
from envs.progress import current_progress
from envs.registry import find_object
from envs.resuming.declaring import is_resumable, resumable
from envs.resuming.graphs import check_graph, run_graph
from tracer import Rollout
from tracer.contents import json_value

__all__ = ["Target", "load_target", "target_of"]

Target: TypeAlias = Callable[[Task, Rollout], Awaitable[object]]
"""Runs one attempt and gives its result, a JSON value. It hands the agent ``task.view()``, never the grading."""

_AgentFunction: TypeAlias = Callable[[TaskView, Rollout], Awaitable[object]]


@runtime_checkable
class _Graph(Protocol):
    """A compiled LangGraph graph, or whatever is run like one."""

    def ainvoke(self, input: object) -> Awaitable[object]:  # noqa: A002  # LangGraph's own word
        ...


def load_target(name: str) -> Target:
    """Find the agent of this name.

    Raises: BadInputError: there is none, or it has no form that can be run.
    """
    return target_of(find_object(name, "agent"), name)


def target_of(found: object, name: str) -> Target:
    """Make a target of a coroutine function, a compiled graph or an Environment class; resumable if that is.

    Raises: BadInputError: it is none of these.
    """
    if isinstance(found, _Graph):
        return resumable(_resume_graph(found, name)) if is_resumable(found) else _run_graph(found)
    if isinstance(found, type) and issubclass(found, Environment):
        return _run_environment(cast("Callable[[], Environment]", found))
    if inspect.iscoroutinefunction(cast("object", found)):
        run = _run_function(cast("_AgentFunction", found))
        return resumable(run) if is_resumable(cast("object", found)) else run
    raise BadInputError(
        f"agent {name!r}: expected a coroutine function agent(task, rollout), a compiled graph or an Environment class,"
        f" found {type(cast('object', found)).__name__}; make it one of these"
    )


def _run_function(function: _AgentFunction) -> Target:
    async def run(task: Task, rollout: Rollout) -> object:
        current_progress().start()
        return await function(task.view(), rollout)

    return run


def _run_environment(make: Callable[[], Environment]) -> Target:
    async def run(task: Task, rollout: Rollout) -> object:
        return await play(make, task, rollout)

    return run


def _run_graph(graph: _Graph) -> Target:
    """The task's input is the state that the graph begins in; a plain text becomes the first message of the user."""

    async def run(task: Task, rollout: Rollout) -> object:  # noqa: ARG001  # the hooks find the rollout in the context
        current_progress().start()
        return _result_of(await graph.ainvoke(_begin_of(task)))

    return run


def _resume_graph(found: object, name: str) -> Target:
    graph = check_graph(found, name)

    async def run(task: Task, rollout: Rollout) -> object:
        current_progress().start()
        return _result_of(await run_graph(graph, _begin_of(task), rollout))

    return run


def _begin_of(task: Task) -> object:
    is_state = isinstance(task.input, dict)
    return task.input if is_state else {"messages": [("user", str(task.input))]}


def _result_of(end: object) -> object:
    """Text of the last message, where the end state has messages; else the state itself."""
    if isinstance(end, Mapping) and (messages := cast("Mapping[str, object]", end).get("messages")):
        return json_value(getattr(cast("list[object]", messages)[-1], "content", None))
    return json_value(cast("object", end))
