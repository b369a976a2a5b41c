"""What an environment may ask for: a sandbox, seeded randomness, a clock, tools; and the protocol of tools."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from agent_layer.schema import JsonObject, Task, TaskView, content_hash
from agent_layer.schema.sandbox import Sandbox
from tracer.core import Rollout

_SEED_DIGITS = 12


class EnvContext(Protocol):
    """One attempt's world, as its environment and tools see it."""

    task: TaskView
    seed: int
    """The task's seed, or one derived from its id: the same for every attempt at the task."""
    rng: random.Random
    """Seeded with ``seed``."""
    clock: Callable[[], float]
    """Seconds since the epoch, UTC."""
    tools: "Sequence[Tool | ToolDefinition]"
    """What the model may call."""

    @property
    def sandbox(self) -> Sandbox:
        """The attempt's box.

        Raises: BadInputError: neither the task nor the environment asks for one.
        """
        ...


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool answers to one call."""

    text: str = ""
    images: list[str] = []
    """Data URLs."""
    is_error: bool = False
    """The model made a mistake, such as an argument that does not fit; it may try again."""
    is_done: bool = False
    """The attempt ends with this call."""


class Tool(Protocol):
    """One function that the model may call."""

    name: str
    description: str
    parameters: JsonObject
    """JSON Schema of the arguments."""

    async def __call__(self, context: "EnvContext", /, **arguments: object) -> ToolResult:
        """Carry out one call; arguments fit ``parameters``."""
        ...


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A tool whose calls the environment carries out itself, in ``step``."""

    name: str
    description: str
    parameters: JsonObject
    """JSON Schema of the arguments."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call that the model requested; its arguments fit the tool's parameters."""

    id: str
    name: str
    arguments: JsonObject


class ToolCalls(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of the model that calls tools."""

    text: str
    """What it wrote beside the calls."""
    calls: list[ToolCall]
    """At least one, in the order of the answer."""


def derive_seed(task: Task | TaskView) -> int:
    """Return the task's seed; without one, a number below 2**48 that follows from its id on every machine."""
    return task.seed if task.seed is not None else int(content_hash(task.id.encode())[:_SEED_DIGITS], 16)


def make_context(
    task: Task | TaskView, rollout: Rollout, tools: Sequence[Tool | ToolDefinition] = ()
) -> "AttemptContext":
    """Return the context of an attempt, with which agents of any form call tools: ``await shell(context, command=…)``.

    Args:
        task: what the agent sees of its task.
        rollout: the attempt; its sandbox is that of the tools.
        tools: what the model may call.
    """
    return AttemptContext(
        task=task.view() if isinstance(task, Task) else task,
        seed=derive_seed(task),
        clock=rollout.clock.now,
        find_sandbox=lambda: rollout.sandbox,
        tools=tools,
    )


@dataclass(kw_only=True)
class AttemptContext:
    """The ``EnvContext`` of one attempt.

    Args:
        find_sandbox: returns the attempt's box, or raises ``BadInputError`` where it has none.
    """

    task: TaskView
    seed: int
    clock: Callable[[], float]
    find_sandbox: Callable[[], Sandbox]
    tools: Sequence[Tool | ToolDefinition] = ()
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        """Seed the randomness."""
        self.rng = random.Random(self.seed)  # worlds have to repeat, not to be secret

    @property
    def sandbox(self) -> Sandbox:
        """The attempt's box."""
        return self.find_sandbox()
