"""A scorer's box: remembers that it was lost, so that no lost box becomes a score, and what its commands took."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias, TypeVar

from agent_layer.errors import SandboxError
from agent_layer.schema.sandbox import (
    EXEC_SECONDS,
    MAX_FILE,
    MAX_OUTPUT,
    Entry,
    ExecResult,
    Process,
    Sandbox,
    SandboxSpec,
    Snapshot,
)

T = TypeVar("T")

TakeBox: TypeAlias = Callable[[SandboxSpec | None], Awaitable[Sandbox]]
"""Returns a fresh box; None: of the spec of the agent's box. Raises: SandboxError: there is none."""


class BoxLog:
    """The boxes of one scorer, what their commands took, and whether one was lost."""

    def __init__(self) -> None:
        self.lost: str | None = None
        """Why the first box was lost; None: none was."""
        self.exec_seconds = 0.0
        """Wall time of commands, summed."""
        self.boxes: list[Sandbox] = []

    def note_loss(self, error: SandboxError) -> None:
        """Remember the first loss."""
        self.lost = self.lost or str(error)


class ScoringBox:
    """A fresh box of a scorer. Contract: ``Sandbox``, except that ``exec`` raises SandboxError where it is ``gone``."""

    def __init__(self, box: Sandbox, log: BoxLog) -> None:
        self.id = box.id
        self.kind = box.kind
        self.spec = box.spec
        self.owner = box.owner
        self._box = box
        self._log = log
        log.boxes.append(self)

    async def exec(  # the protocol's own signature
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        seconds: float = EXEC_SECONDS,
        max_output: int = MAX_OUTPUT,
    ) -> ExecResult:
        """Run a command to its end. Raises: SandboxError: the box was lost."""
        ended = await self._ask(
            self._box.exec(argv, stdin=stdin, cwd=cwd, env=env, seconds=seconds, max_output=max_output)
        )
        self._log.exec_seconds += ended.seconds
        if ended.status == "gone":
            error = SandboxError(f"sandbox {self.id}: it was lost while a scorer used it; the attempt is judged again")
            self._log.note_loss(error)
            raise error
        return ended

    def open(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None, pty: bool = False
    ) -> AbstractAsyncContextManager[Process]:
        """Start a command with live stdio."""
        return self._open(self._box.open(argv, cwd=cwd, env=env, pty=pty))

    async def read(self, path: str, *, max_bytes: int = MAX_FILE) -> bytes:
        """Return the content of a regular file."""
        return await self._ask(self._box.read(path, max_bytes=max_bytes))

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file."""
        await self._ask(self._box.write(path, data, mode=mode))

    async def list(self, path: str = ".") -> Sequence[Entry]:
        """Return what a directory contains."""
        return await self._ask(self._box.list(path))

    async def snapshot(self, paths: Sequence[str] = (".",)) -> Snapshot:
        """Return files below the work directory."""
        return await self._ask(self._box.snapshot(paths))

    async def restore(self, snapshot: Snapshot) -> None:
        """Add the files of a snapshot to the work directory."""
        await self._ask(self._box.restore(snapshot))

    async def fork(self) -> Sandbox:
        """Return another box with the same work directory."""
        return ScoringBox(await self._ask(self._box.fork()), self._log)

    async def is_alive(self) -> bool:
        """Whether the box still answers."""
        return await self._box.is_alive()

    async def close(self) -> None:
        """End the box."""
        await self._box.close()

    async def _ask(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except SandboxError as error:
            self._log.note_loss(error)
            raise

    @asynccontextmanager
    async def _open(self, opened: AbstractAsyncContextManager[Process]) -> AsyncGenerator[Process]:
        try:
            async with opened as process:
                yield process
        except SandboxError as error:
            self._log.note_loss(error)
            raise
