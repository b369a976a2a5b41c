"""Plays scripts in boxes: what stands for an agent where a solution is something to do, not files to leave."""

from pathlib import Path

from agent_layer.errors import SandboxError
from agent_layer.schema import Task
from agent_layer.schema.sandbox import Sandbox, Snapshot
from envs.sandbox import expand_patterns
from envs.script import Script
from envs.tasksets.harbor.directory import pack_tree


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


async def leave_artifacts(box: Sandbox, task: Task, script: Script) -> Snapshot | None:
    """Act in a fresh box of a task, and return its artifacts as a worker takes them; None: there are none.

    Raises: SandboxError: the box was lost.
    """
    for path, text in task.files.items():
        await box.write(path, text.encode("utf-8", "surrogateescape"))
    await act(box, script)
    paths, _ = await expand_patterns(box.list, task.artifacts)
    return await box.snapshot(paths) if paths else None
