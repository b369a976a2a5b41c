"""A scorer's box: remembers that it was lost, so that no lost box becomes a score, and what its commands took."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeAlias, TypeVar

from agent_layer.errors import BoxExhaustedError, SandboxError
from agent_layer.schema.sandbox import ExecResult, Process, Sandbox, SandboxSpec
from envs.sandbox import BoxRequest, Exec, ForwardingSandbox, Open

R = TypeVar("R")

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
        self.cut: tuple[Sandbox, float] | None = None
        """Box of the last command that was cancelled, and when, by the loop's clock; None: none was."""

    @contextmanager
    def note_losses(self) -> Generator[None]:
        """Remember the first box that the machine lost; its error passes."""
        try:
            yield
        except BoxExhaustedError:  # by what is judged
            raise
        except SandboxError as error:
            self.lost = self.lost or str(error)
            raise

    @contextmanager
    def note_cut(self, box: Sandbox) -> Generator[None]:
        """Remember the box of a command that is cancelled."""
        try:
            yield
        except asyncio.CancelledError:
            self.cut = box, asyncio.get_running_loop().time()
            raise


class ScoringBox(ForwardingSandbox):
    """A fresh box of a scorer. Contract: ``Sandbox``, except that ``exec`` raises SandboxError where it is ``gone``."""

    def __init__(self, box: Sandbox, log: BoxLog) -> None:
        super().__init__(box.id, box.kind, box.spec, box.owner)
        self._box = box
        self._log = log
        log.boxes.append(self)

    async def _call(self, request: BoxRequest[R]) -> R:
        with self._log.note_losses():
            return await request.perform(self._box)

    async def _exec(self, request: Exec) -> ExecResult:
        with self._log.note_losses(), self._log.note_cut(self._box):
            ended = await request.perform(self._box)
            self._log.exec_seconds += ended.seconds
            if ended.status == "gone":
                raise SandboxError(
                    f"sandbox {self.id}: it was lost while a scorer used it; the attempt is judged again"
                )
            return ended

    @asynccontextmanager
    async def _open(self, request: Open) -> AsyncGenerator[Process]:
        with self._log.note_losses(), self._log.note_cut(self._box):
            async with request.perform(self._box) as process:
                yield process

    async def fork(self) -> Sandbox:
        """Return another box with the same work directory."""
        return ScoringBox(await super().fork(), self._log)

    async def is_alive(self) -> bool:
        """Whether the box still answers; one that does not is no loss until it is used."""
        return await self._box.is_alive()

    async def close(self) -> None:
        """End the box; a box that is lost by then changes no score."""
        await self._box.close()
