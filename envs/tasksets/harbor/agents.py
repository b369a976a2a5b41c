"""Who plays Harbor tasks: an environment with tools, and scripted agents as yardsticks."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ClassVar

import tracer
from agent_layer.schema import Task, TaskView
from envs.env_context import EnvContext
from envs.environment import DeclaredTool, ToolEnvironment
from envs.tasksets.harbor.acting import act
from envs.tasksets.harbor.egress import open_network
from envs.tasksets.harbor.images import ImageStore
from envs.tasksets.harbor.taskset import solve_directory
from envs.tools import edit_file, read_file, shell, write_file


class Terminal(ToolEnvironment):
    """Begins with the instruction, and ends at a plain text. Contract: ``Environment``."""

    version = "1"
    tools: ClassVar[Sequence[DeclaredTool]] = (shell, read_file, write_file, edit_file)

    def __init__(self) -> None:
        self._network = AsyncExitStack()

    async def reset(self, task: Task, context: EnvContext) -> object:
        """Return the instruction, once the box has the network that its task may have."""
        await self._network.enter_async_context(open_network(context.sandbox))
        return task.input

    async def close(self) -> None:
        """End the network."""
        await self._network.aclose()


async def oracle(task: TaskView, rollout: tracer.Rollout) -> object:
    """Run the reference in the attempt's box, as ``tasksets import`` found it on this machine."""
    images = ImageStore(Path(rollout.sandbox.spec.image).parent)
    script = solve_directory(images.find_directory(task, rollout.sandbox.spec))
    async with open_network(rollout.sandbox):
        return {"exit_status": await act(rollout.sandbox, script)}


async def nothing(task: TaskView, rollout: tracer.Rollout) -> object:  # noqa: ARG001  # as agents are called
    """Do nothing, which must score 0."""
    return None
