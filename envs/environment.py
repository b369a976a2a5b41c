"""Environments: worlds that answer the model, in text or by tools."""

from collections.abc import Sequence
from typing import ClassVar, Protocol, TypeAlias, cast, runtime_checkable

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import Task
from agent_layer.schema.sandbox import SandboxSpec
from envs.env_context import EnvContext, Tool, ToolCalls, ToolDefinition

DeclaredTool: TypeAlias = Tool | ToolDefinition | str
"""A tool, or the name of one that is registered or ``module:attribute``."""


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment answers to one action."""

    observation: object = None
    """Next message to the model; any JSON value. After ``ToolCalls``, a list with one value per call answers each."""
    images: list[str] = []
    """Data URLs, shown with the observation."""
    reward: float | None = None
    """Reward of this step; None: none. The rewards of all steps add up to that of the rollout."""
    done: bool = False


@runtime_checkable
class Environment(Protocol):
    """One world for one attempt. It sees the task without its grading, which only scorers see.

    A class may declare what it needs, as attributes:

    * ``sandbox`` (SandboxSpec): the box that each attempt gets, unless the task names one.
    * ``tools``: what the model may call. Tools run by themselves; calls of a ``ToolDefinition`` go to ``step``.
    * ``artifacts``: files and folders that scorers get, unless the task names some.
    * ``version`` (text or number): raise it when the environment's answers change. Without one, the hash of its file is
      its version. Trajectories record it.

    A constructor, ``reset`` or ``step`` with a parameter named ``context`` gets the attempt's ``EnvContext``.
    """

    async def reset(self, task: Task) -> object:
        """Begin; return the first message to the model: any JSON value, or a ``StepResult`` with images."""
        ...

    async def step(self, action: str) -> StepResult:
        """Apply the model's answer: its text, or the ``ToolCalls`` that the environment carries out itself."""
        ...

    def state(self) -> object:
        """Return the state of the world, any JSON value; None: not known."""
        ...

    async def close(self) -> None:
        """Release resources."""
        ...


class ToolEnvironment:
    """An environment in which the model acts by tools: it begins with the task's input, and ends at a plain text.

    Subclasses declare tools, and change what differs.
    """

    sandbox: ClassVar[SandboxSpec | None] = None
    tools: ClassVar[Sequence[DeclaredTool]] = ()
    artifacts: ClassVar[Sequence[str]] = ()

    async def reset(self, task: Task, context: EnvContext) -> object:  # noqa: ARG002  # for subclasses
        """Return the task's input."""
        return task.input

    async def step(self, action: str | ToolCalls) -> StepResult:  # noqa: ARG002  # for subclasses
        """End the attempt."""
        return StepResult(done=True)

    def state(self) -> object:
        """Return None: not known."""
        return None

    async def close(self) -> None:
        """Release nothing."""


def declared_tools(environment: object) -> Sequence[DeclaredTool]:
    """Return the tools that an environment, or its class, declares.

    Raises: BadInputError: they are no list.
    """
    found: object = getattr(environment, "tools", ())
    if not isinstance(found, list | tuple):
        name = getattr(environment, "__qualname__", repr(environment))
        raise BadInputError(f"environment {name}: expected a list of tools, found {found!r:.100}; write a list")
    return cast("Sequence[DeclaredTool]", found)
