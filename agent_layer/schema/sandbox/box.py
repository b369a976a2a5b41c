"""The protocol of sandboxes: one for every way to run code that is not trusted.

A **kind** is one such way (namespaces, containers, …), a **box** is one running sandbox. Contract of every kind:

* Exec is never retried. Its status says how the processes ended. ``gone`` means that the machine lost the box, or ended
  a command for its own memory: an infrastructure failure, never the policy's fault.
* A box that its own commands end stays ``oom`` for every exec. ``ended`` says why, and what is no exec raises
  ``BoxExhaustedError``.
* Output, files, memory, processes and time are bounded. What exceeds a bound ends the exec, never the box's host.
* Paths are paths in the box, relative ones below ``spec.workdir``. No link leads out.
* File operations raise ``OSError`` with the box's own errno: a missing file is a ``FileNotFoundError``.
* What the box cannot do because it is lost raises ``SandboxError``; what its kind never can do,
  ``UnsupportedSandboxError``.
* When ``close`` returns, no process, mount, cgroup, socket or file of the box is left. Closing twice is fine.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from agent_layer.schema import content_hash
from agent_layer.schema.sandbox.spec import SandboxSpec
from agent_layer.schema.sandbox.usage import EndOfBox

if TYPE_CHECKING:
    import asyncio

ExecStatus: TypeAlias = Literal["exited", "signalled", "timeout", "oom", "output_limit", "gone"]
"""How an exec ended.

exited        by itself, with ``exit_code``
signalled     by a signal that the sandbox did not send
timeout       killed after its seconds of wall or CPU time
oom           killed because the box reached ``memory_mb``, or ended because of what ran in it
output_limit  killed after ``max_output`` bytes
gone          not known: the box was lost
"""
EXEC_SECONDS = 30.0
MAX_OUTPUT = 1 << 20
"""Bytes of standard output and standard error together."""
MAX_FILE = 1 << 20


class ExecResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended, and what it wrote until then."""

    status: ExecStatus
    exit_code: int | None = None
    """None unless ``exited``."""
    signal: int | None = None
    """Number of the signal; None unless ``signalled``."""
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False
    """Output is missing."""
    seconds: float = 0.0
    """Wall time."""
    cpu_seconds: float | None = None
    peak_memory_mb: float | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One name in a directory of the box."""

    name: str
    type: Literal["file", "directory", "link", "other"]
    size_bytes: int
    mode: int
    """Permission bits."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a box at one moment, content-addressed."""

    archive: bytes
    """An uncompressed tar whose names are relative to ``spec.workdir``, or absolute. Its content is the box's: extract
    it in boxes only."""

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that equal archives share."""
        return content_hash(self.archive)


class Process(Protocol):
    """A long process in the box, with live stdio: a shell, a language server, an MCP server."""

    stdin: "asyncio.StreamWriter"
    stdout: "asyncio.StreamReader"
    """Standard output; with a terminal, everything that appears on it."""
    stderr: "asyncio.StreamReader"
    """Empty with a terminal."""

    async def wait(self) -> ExecResult:
        """Wait for its end; the result has no output."""
        ...

    async def kill(self) -> None:
        """Kill it, and return when it has ended."""
        ...


class Sandbox(Protocol):
    """One box. Operations of one box may overlap."""

    id: str
    """Unique on this machine; the names of processes and cgroups carry it."""
    kind: str
    spec: SandboxSpec
    owner: str
    """Lease token, or another name, of the only user of this box."""

    @property
    def ended(self) -> EndOfBox | None:
        """Why it ended before it was closed; None: it has not, or it is not known here."""
        ...

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        seconds: float = EXEC_SECONDS,
        max_output: int = MAX_OUTPUT,
    ) -> ExecResult:
        """Run a command to its end; what it leaves running is killed.

        A program that does not exist exits with 127, one that cannot be executed with 126, as in a shell.

        Args:
            argv: program, found on the box's PATH, and arguments.
            stdin: what it can read.
            cwd: where it starts; None: the work directory.
            env: added to the variables of the spec.
            max_output: bytes of standard output and standard error together.
            seconds: limit of wall time; CPU time is limited to it for each process.
        """
        ...

    def open(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        pty: bool = False,
        is_service: bool = False,
    ) -> AbstractAsyncContextManager[Process]:
        """Start a command with live stdio; it is killed at the end of the context.

        The time of a service, such as what carries a network, is not that of the agent's commands.
        """
        ...

    async def read(self, path: str, *, max_bytes: int = MAX_FILE) -> bytes:
        """Return the content of a regular file.

        Raises: OSError: EFBIG when it is larger, EINVAL when it is no regular file, or what opening it raised.
        """
        ...

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file, and the folders above it."""
        ...

    async def list(self, path: str = ".") -> Sequence[Entry]:
        """Return what a directory contains, sorted by name; links are not followed."""
        ...

    async def snapshot(self, paths: Sequence[str] = (".",)) -> Snapshot:
        """Return these files and folders, which lie below the work directory.

        Where the image is a root directory, absolute paths may lie anywhere, and keep their names. ``/`` is what
        changed anywhere since the box began, with what is there no more: ``restore`` removes that.
        """
        ...

    async def restore(self, snapshot: Snapshot) -> None:
        """Add the files of a snapshot, replacing those of the same names."""
        ...

    async def fork(self) -> "Sandbox":
        """Return another box of the same spec and owner with the same work directory; processes stay behind."""
        ...

    async def is_alive(self) -> bool:
        """Whether the box still answers, within a second."""
        ...

    async def close(self) -> None:
        """End the box; nothing of it is left when this returns."""
        ...
