"""Forms of agents, each made into one callable that a worker runs.

An agent is a coroutine function, a compiled graph or an Environment class; commands are in ``envs.commands``.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias, cast, runtime_checkable

from agent_layer.errors import BadInputError
from agent_layer.schema import Task, TaskView
from envs.checkpoints import check_graph, run_graph
from envs.environment import Environment
from envs.episode import play
from envs.grading import plain_result
from envs.progress import current_progress
from envs.registry import find_object
from envs.resume import is_resumable, resumable
from tracer.core import Rollout, json_value

Target: TypeAlias = Callable[[Task, Rollout], Awaitable[object]]
"""Runs one attempt and returns its result, a JSON value. The agent sees ``task.view()``, never the grading."""

_AgentFunction: TypeAlias = Callable[[TaskView, Rollout], Awaitable[object]]


@runtime_checkable
class _Graph(Protocol):
    """A compiled LangGraph graph, or an object with the same method."""

    def ainvoke(self, input: object) -> Awaitable[object]:  # noqa: A002  # LangGraph's own word
        ...


def load_target(name: str) -> Target:
    """Find the agent of this name.

    Raises: BadInputError: no such agent exists, or it has no form that a worker can run.
    """
    return make_target(find_object(name, "agent"), name)


def make_target(found: object, name: str) -> Target:
    """Make a target of a coroutine function, a compiled graph or an Environment class; it is resumable if that is.

    Raises: BadInputError: the object is none of these.
    """
    if isinstance(found, _Graph):
        return resumable(_resume_graph(found, name)) if is_resumable(found) else _run_graph(found)
    if isinstance(found, type) and issubclass(found, Environment):
        make = cast("Callable[[], Environment]", found)

        async def play_environment(task: Task, rollout: Rollout) -> object:
            return await play(make, task, rollout)

        return play_environment
    if inspect.iscoroutinefunction(cast("object", found)):
        function = cast("_AgentFunction", found)

        async def run_function(task: Task, rollout: Rollout) -> object:
            current_progress().mark_prepared()
            return await function(task.view(), rollout)

        return resumable(run_function) if is_resumable(cast("object", found)) else run_function
    raise BadInputError(
        f"agent {name!r}: is a {type(cast('object', found)).__name__}, not a coroutine function agent(task, rollout), a"
        " compiled graph or an Environment class; make it one of these"
    )


def _run_graph(graph: _Graph) -> Target:
    """Use the task's input as the graph's initial state; a plain text becomes the first message of the user."""

    async def run(task: Task, rollout: Rollout) -> object:  # noqa: ARG001  # the hooks find the rollout in the context
        current_progress().mark_prepared()
        return _extract_result(await graph.ainvoke(_make_initial_state(task)))

    return run


def _resume_graph(found: object, name: str) -> Target:
    graph = check_graph(found, name)

    async def run(task: Task, rollout: Rollout) -> object:
        current_progress().mark_prepared()
        return _extract_result(await run_graph(graph, _make_initial_state(task), rollout))

    return run


def _make_initial_state(task: Task) -> object:
    is_state = isinstance(task.input, dict)
    return task.input if is_state else {"messages": [("user", str(task.input))]}


def _extract_result(end: object) -> object:
    """Return the text of the last message if the end state has messages, else the state itself."""
    if isinstance(end, Mapping) and (messages := cast("Mapping[str, object]", end).get("messages")):
        return json_value(getattr(cast("list[object]", messages)[-1], "content", None))
    return plain_result(cast("object", end))
