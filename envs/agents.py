"""Forms of agents, each made into one callable that a worker runs.

An agent is a coroutine function, a compiled graph, an Environment class, or a command: any program in any language that
calls the model over HTTP. Above each command is a reaper: when the command has ended or the worker is gone, the reaper
kills its descendants.
"""

import asyncio
import inspect
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias, cast, runtime_checkable

import msgspec

from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.infra import KILL_NOW, REAPER_PROGRAM
from agent_layer.schema import Task, TaskView
from agent_layer.settings import SANDBOX_VARIABLE, agent_environment
from envs.checkpoints import check_graph, run_graph
from envs.environment import Environment
from envs.episode import play
from envs.grading import plain_result
from envs.progress import current_progress
from envs.registry import find_object
from envs.resume import is_resumable, resumable
from envs.sandbox import AttemptSandbox
from tracer import enter_environment
from tracer.core import Rollout, json_value

Target: TypeAlias = Callable[[Task, Rollout], Awaitable[object]]
"""Runs one attempt and returns its result, a JSON value. The agent sees ``task.view()``, never the grading."""

_AgentFunction: TypeAlias = Callable[[TaskView, Rollout], Awaitable[object]]


_MAX_TAIL_LENGTH = 1 << 16
"""Bytes of output to keep; the result is in the last line."""
_GRACE_SECONDS = 2.0
"""Time between SIGTERM and SIGKILL for a command."""


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


class CommandTarget:
    """Runs a command per attempt; its last line of output is the result, parsed as JSON where possible."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)

    async def __call__(self, task: Task, rollout: Rollout) -> object:
        """Run the command.

        Raises:
            AgentFailedError: its exit status is not 0.
            BadInputError: no such program exists.
        """
        if (program := shutil.which(self._command[0])) is None:
            raise BadInputError(f"command {self._command[0]!r}: there is no such program; check its path")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", REAPER_PROGRAM, "-", program, *self._command[1:]),
            env=enter_environment(agent_environment(), rollout) | command_variables(task, rollout),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            process_group=0,
        )
        current_progress().mark_prepared()
        reading = asyncio.gather(_tail(process.stdout), _tail(process.stderr))
        try:
            output, errors = await asyncio.shield(reading)  # to the end: a full pipe hides that it is closed
            status = await process.wait()
        finally:
            await _end(process)
        if status != 0:
            output_tail = errors[-2000:].decode("utf-8", "replace").strip()
            raise AgentFailedError(f"command {self._command[0]!r}: exited with status {status}: {output_tail}")
        if not (lines := output.decode("utf-8", "replace").strip().splitlines()):
            return None
        try:
            return msgspec.json.decode(lines[-1])
        except msgspec.DecodeError:
            return lines[-1]


def command_variables(task: Task, rollout: Rollout) -> dict[str, str]:
    """Return the variables that describe the task to a command; they hold nothing of the grading."""
    view = task.view()
    visible = {"id": view.id, "task_type": view.task_type, "input": view.input, "seed": view.seed}
    box = rollout.box
    reach = {SANDBOX_VARIABLE: box.address} if isinstance(box, AttemptSandbox) else {}
    return reach | {"AGENT_LAYER_TASK": msgspec.json.encode(visible).decode()}


async def _tail(stream: asyncio.StreamReader | None) -> bytes:
    """Read to the end and keep the last bytes."""
    kept = b""
    while stream is not None and (piece := await stream.read(_MAX_TAIL_LENGTH)):
        kept = (kept + piece)[-_MAX_TAIL_LENGTH:]
    return kept


async def _end(process: Process) -> None:
    """End the command and its descendants."""
    _signal(process, signal.SIGTERM)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await process.wait()
    finally:
        if process.returncode is None and process.stdin is not None:
            process.stdin.write(KILL_NOW)
    await process.wait()
    _signal(process, signal.SIGKILL)  # where the reaper cannot see its descendants


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
