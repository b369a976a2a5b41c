"""Who plays Harbor tasks: an environment with tools, and scripted agents as yardsticks."""

from collections.abc import Sequence
from pathlib import Path

import tracer
from agent_layer.errors import SandboxError
from agent_layer.schema import TaskView
from agent_layer.schema.sandbox import Sandbox
from envs.environment import DeclaredTool, ToolEnvironment
from envs.script import Script
from envs.tasksets.harbor.directory import pack_tree
from envs.tasksets.harbor.images import ImageStore
from envs.tasksets.harbor.taskset import solve_directory
from envs.tools import edit_file, read_file, shell, write_file


class Terminal(ToolEnvironment):
    """Begins with the instruction, and ends at a plain text. Contract: ``Environment``."""

    version = "1"
    tools: Sequence[DeclaredTool] = (shell, read_file, write_file, edit_file)


async def oracle(task: TaskView, rollout: tracer.Rollout) -> object:
    """Run the reference in the attempt's box, as ``tasksets import`` found it on this machine."""
    images = ImageStore(Path(rollout.sandbox.spec.image).parent)
    script = solve_directory(images.find_directory(task.id))
    return {"exit_status": await act(rollout.sandbox, script)}


async def nothing(task: TaskView, rollout: tracer.Rollout) -> object:  # noqa: ARG001  # as agents are called
    """Do nothing, which must score 0."""
    return None


async def act(box: Sandbox, script: Script) -> int | None:
    """Do in a box what a script says; return the exit status of its last command, None: it has none.

    Raises: SandboxError: the box was lost.
    """
    status = None
    for target, folder in script.uploads.items():
        tree = Path(folder)
        await box.restore(pack_tree(tree, target, tree.parent))
    for command in script.commands:
        ran = await box.exec(command, env=script.env, seconds=script.seconds)
        if ran.status == "gone":
            raise SandboxError(f"sandbox {box.id}: it was lost while a script ran in it; try again")
        status = ran.exit_code
    return status
