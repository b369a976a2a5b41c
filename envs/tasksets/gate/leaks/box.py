"""What an agent finds in its box beside the files of its task: variables, and files of the image."""

from typing import Final

from agent_layer.errors import SandboxError
from agent_layer.schema import Task
from agent_layer.schema.sandbox import Sandbox
from envs.grading import archive_files
from envs.sandbox import SandboxPool, SandboxSpec
from envs.tasksets.gate.leaks.contents import VisibleText

_PLACES: Final = ". $HOME /tmp /var/tmp /opt /srv /mnt /root /data /app /tests /solution /logs /etc/agent"
_LIST: Final = f"find {_PLACES} -xdev -type f -size -256k -print0 2>/dev/null | head -c 65536"
_MAX_FILES: Final = 200
_MAX_BYTES: Final = 1 << 18
_SECONDS: Final = 20.0


async def read_box(pool: SandboxPool, task: Task) -> list[VisibleText]:
    """Return what the box of a task holds when its agent begins; empty: it cannot be looked into."""
    try:
        box = await pool.take(task.sandbox or SandboxSpec(), owner=f"audit of {task.id}")
    except SandboxError:
        return []
    try:
        if below := {path: text for path, text in task.files.items() if not path.startswith("/")}:
            await box.restore(archive_files(below))
        return [*await _read_variables(box), *await _read_files(box, task)]
    except (SandboxError, OSError):
        return []
    finally:
        await box.close()


async def _read_variables(box: Sandbox) -> list[VisibleText]:
    ended = await box.exec(["env", "-0"], seconds=_SECONDS)
    pairs = (one.partition("=") for one in ended.stdout.decode("utf-8", "replace").split("\0") if one)
    return [VisibleText(f"box.environment.{name}", value) for name, _, value in pairs]


async def _read_files(box: Sandbox, task: Task) -> list[VisibleText]:
    ended = await box.exec(["sh", "-c", _LIST], seconds=_SECONDS)
    names = list(dict.fromkeys(ended.stdout.decode("utf-8", "replace").split("\0")[:-1]))[:_MAX_FILES]
    found: list[VisibleText] = []
    for name in names:
        if name.removeprefix("./") in task.files:
            continue
        try:
            content = await box.read(name, max_bytes=_MAX_BYTES)
        except OSError:
            continue
        found.append(VisibleText(f"box.{name}", content.decode("utf-8", "replace")))
    return found
