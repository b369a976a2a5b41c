"""Requests to a box as records, and the base of boxes that pass them on.

A box that stands before another one, in this process or in a supervisor, derives from ``ForwardingSandbox``: every
operation becomes a record there, and the subclass decides what happens to it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

import msgspec

from agent_layer.schema.sandbox import (
    EXEC_SECONDS,
    MAX_FILE,
    MAX_OUTPUT,
    EndOfBox,
    Entry,
    ExecResult,
    Process,
    Sandbox,
    SandboxSpec,
    Snapshot,
)

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class BoxRequest(Protocol[R_co]):
    """One request to one box, answered with an ``R``."""

    @property
    def box(self) -> str:
        """Id of the box."""
        ...

    async def perform(self, box: Sandbox) -> R_co:
        """Carry it out; raises what the box raises."""
        ...


class _Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    box: str


class Exec(_Request, frozen=True, kw_only=True):
    """Run a command to its end."""

    argv: list[str]
    stdin: bytes = b""
    cwd: str | None = None
    env: dict[str, str] | None = None
    seconds: float = EXEC_SECONDS
    max_output: int = MAX_OUTPUT

    async def perform(self, box: Sandbox) -> ExecResult:
        """See BoxRequest."""
        return await box.exec(
            self.argv, stdin=self.stdin, cwd=self.cwd, env=self.env, seconds=self.seconds, max_output=self.max_output
        )


class Open(_Request, frozen=True, kw_only=True):
    """Start a command with live stdio; a supervisor answers when it has ended."""

    argv: list[str]
    cwd: str | None = None
    env: dict[str, str] | None = None
    pty: bool = False
    is_service: bool = False

    def perform(self, box: Sandbox) -> AbstractAsyncContextManager[Process]:
        """Start it; it is killed at the end of the context."""
        return box.open(self.argv, cwd=self.cwd, env=self.env, pty=self.pty, is_service=self.is_service)


class Read(_Request, frozen=True, kw_only=True):
    """Return a file."""

    path: str
    max_bytes: int = MAX_FILE

    async def perform(self, box: Sandbox) -> bytes:
        """See BoxRequest."""
        return await box.read(self.path, max_bytes=self.max_bytes)


class Write(_Request, frozen=True, kw_only=True):
    """Create or replace a file."""

    path: str
    content: bytes
    mode: int = 0o644

    async def perform(self, box: Sandbox) -> None:
        """See BoxRequest."""
        await box.write(self.path, self.content, mode=self.mode)


class ListFolder(_Request, frozen=True, kw_only=True):
    """Return what a folder contains."""

    path: str

    async def perform(self, box: Sandbox) -> Sequence[Entry]:
        """See BoxRequest."""
        return await box.list(self.path)


class Pack(_Request, frozen=True, kw_only=True):
    """Return an archive of files."""

    paths: list[str]

    async def perform(self, box: Sandbox) -> bytes:
        """See BoxRequest."""
        return (await box.snapshot(self.paths)).archive


class Unpack(_Request, frozen=True, kw_only=True):
    """Add the files of an archive."""

    archive: bytes

    async def perform(self, box: Sandbox) -> None:
        """See BoxRequest."""
        await box.restore(Snapshot(archive=self.archive))


class Fork(_Request, frozen=True, kw_only=True):
    """Return another box with the same work directory."""

    async def perform(self, box: Sandbox) -> Sandbox:
        """See BoxRequest."""
        return await box.fork()


class Ping(_Request, frozen=True, kw_only=True):
    """Return whether the box still answers."""

    async def perform(self, box: Sandbox) -> bool:
        """See BoxRequest."""
        return await box.is_alive()


class CloseBox(_Request, frozen=True, kw_only=True):
    """End a box; that of the attempt itself ends with the attempt."""

    async def perform(self, box: Sandbox) -> None:
        """See BoxRequest."""
        await box.close()


class ForwardingSandbox(ABC):
    """A box that passes its requests on. Contract: ``Sandbox``; a subclass decides how, in ``_call`` and ``_open``."""

    def __init__(self, box_id: str, kind: str, spec: SandboxSpec, owner: str) -> None:
        self.id = box_id
        self.kind = kind
        self.spec = spec
        self.owner = owner

    @property
    def ended(self) -> EndOfBox | None:
        """Why it ended before it was closed; None: it is not known here."""
        return None

    @abstractmethod
    async def _call(self, request: BoxRequest[R]) -> R:
        """Carry out a request, or send it on."""

    @abstractmethod
    def _open(self, request: Open) -> AbstractAsyncContextManager[Process]:
        """Carry out the start of a live command, or send it on."""

    async def _exec(self, request: Exec) -> ExecResult:  # kept: overridden
        return await self._call(request)

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
        """Run a command to its end."""
        command, variables = _arguments(argv), None if env is None else dict(env)
        request = Exec(
            box=self.id, argv=command, stdin=stdin, cwd=cwd, env=variables, seconds=seconds, max_output=max_output
        )
        return await self._exec(request)

    def open(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        pty: bool = False,
        is_service: bool = False,
    ) -> AbstractAsyncContextManager[Process]:
        """Start a command with live stdio."""
        command, variables = _arguments(argv), None if env is None else dict(env)
        return self._open(Open(box=self.id, argv=command, cwd=cwd, env=variables, pty=pty, is_service=is_service))

    async def read(self, path: str, *, max_bytes: int = MAX_FILE) -> bytes:
        """Return the content of a regular file."""
        return await self._call(Read(box=self.id, path=path, max_bytes=max_bytes))

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file."""
        await self._call(Write(box=self.id, path=path, content=data, mode=mode))

    async def list(self, path: str = ".") -> Sequence[Entry]:
        """Return what a directory contains."""
        return await self._call(ListFolder(box=self.id, path=path))

    async def snapshot(self, paths: Sequence[str] = (".",)) -> Snapshot:
        """Return files below the work directory."""
        return Snapshot(archive=await self._call(Pack(box=self.id, paths=[*paths])))

    async def restore(self, snapshot: Snapshot) -> None:
        """Add the files of a snapshot to the work directory."""
        await self._call(Unpack(box=self.id, archive=snapshot.archive))

    async def fork(self) -> Sandbox:
        """Return another box with the same work directory."""
        return await self._call(Fork(box=self.id))

    async def is_alive(self) -> bool:
        """Whether the box still answers."""
        return await self._call(Ping(box=self.id))

    async def close(self) -> None:
        """End the box."""
        await self._call(CloseBox(box=self.id))


def _arguments(argv: Sequence[str]) -> list[str]:
    """Return a command as a list. Raises: ValueError: it is one text."""
    if isinstance(argv, str):
        raise ValueError(f"sandbox: expected a command as a list of program and arguments, found {argv!r}")  # noqa: TRY004  # as boxes do
    return list(argv)
