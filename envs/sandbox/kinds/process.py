"""Kind ``process``: a directory and limits. For code that is trusted, and for machines where nothing else works."""

import asyncio
import os
import shutil
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from agent_layer.errors import SandboxError, UnsupportedSandboxError
from agent_layer.schema import new_id
from agent_layer.schema.sandbox import Isolation, Sandbox, SandboxSpec, check_spec
from envs.sandbox.host_side.connection import BoxConnection, check_ready
from envs.sandbox.host_side.kind import ServedKind
from envs.sandbox.host_side.launch import Program, launch_program
from envs.sandbox.spec import PATH, PROCESS_MEMORY, ImageForm, box_variables

_START_SECONDS: Final = 60.0


class ProcessKind(ServedKind):
    """Makes boxes that are directories. Contract: ``SandboxKind``."""

    name = "process"
    isolation: Isolation = "process"
    cost = 0
    images: frozenset[ImageForm] = frozenset({"host"})
    stops = (
        "For trusted code only. Stops: runaway memory of one process, CPU time, output, open files, and processes that"
        " are left behind. Does not stop: anything that the worker's user may do, such as reading its keys."
    )

    def describe(self) -> str:
        """Return what boxes use."""
        return "process limits only; trusted code only"

    async def start(self, spec: SandboxSpec, *, owner: str) -> Sandbox:
        """Make a box."""
        check_spec(spec)
        if spec.image != "host":
            raise UnsupportedSandboxError(
                f"sandbox: kind process has the image 'host' only, found {spec.image!r}; name another kind"
            )
        async with AsyncExitStack() as undo:
            home = Path(tempfile.mkdtemp(prefix=f"agent-layer-box-{os.getpid()}-"))
            undo.callback(shutil.rmtree, home, ignore_errors=True)
            for name in ("work", "tmp"):
                (home / name).mkdir()
            life = _BoxHandle(await launch_program("server", _find_python(), _config(spec, home)))
            undo.push_async_callback(life.end)
            connection = BoxConnection(life.program.end)
            undo.callback(connection.close)
            try:
                async with asyncio.timeout(_START_SECONDS):
                    check_ready(await connection.ask("ready", {"ping": True}))
            except TimeoutError as error:
                raise SandboxError(f"sandbox: the box was not up within {_START_SECONDS:g} s; try again") from error
            undo.pop_all()
        return self.add_box(new_id(), spec, owner=owner, connection=connection, life=life)


class _BoxHandle:
    """The keeper of a box, which removes its directory too. Contract: ``BoxHandle``."""

    cgroup = None

    def __init__(self, program: Program) -> None:
        self.program = program

    async def end(self) -> None:
        """Have the keeper kill and remove everything."""
        await self.program.stop()


def _find_python() -> str:
    """Return the Python that commands in the box find too."""
    return shutil.which("python3", path=PATH) or sys.executable


def _config(spec: SandboxSpec, home: Path) -> dict[str, object]:
    resources = spec.resources
    unlimited = 1 << 20
    return {
        "workdir": str(home / "work"),
        "variables": box_variables(spec, home=str(home / "work"), tmp=str(home / "tmp")),
        "limits": {
            "processes": unlimited,  # the kernel counts all processes of the worker's user
            "open_files": resources.open_files,
            "file_bytes": resources.disk_mb << 20,
            "memory_bytes": PROCESS_MEMORY * resources.memory_mb << 20,
        },
        "watched_bytes": resources.memory_mb << 20,
        "left": [str(home)],
    }
