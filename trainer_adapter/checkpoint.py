"""This file holds checkpoints: a directory that appears whole or not at all, and the cursor in it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from agent_layer.schema.record import Record
from agent_layer.settings import Settings

__all__ = ["Cursor", "Shelf"]

_CURSOR = "cursor.json"


class Cursor(Record, frozen=True, kw_only=True):
    """Where training stands. Groups are acknowledged only after the checkpoint that contains them is on disk."""

    step: int = 0
    """Steps done."""
    policy_version: int | None = 0
    """Version under which the weights in the checkpoint were published; None: they were not."""
    num_asked: int = 0
    """Groups asked for so far."""
    open_positions: list[int] = []
    """Which of them, counted from 0 in order of asking, were not trained or dropped yet."""
    open_starts: list[int] = []
    """[num_open] policy version from which each may begin; empty where an older trainer did not say."""
    success_rates: dict[str, float] = {}
    """By task id, what the curriculum has learned."""
    taken: list[str] = []
    """Groups since the checkpoint before. They are acknowledged next, and never trained again."""


class Shelf:
    """The checkpoints of one run, in ``DIR/checkpoints/RUN``."""

    def __init__(self, settings: Settings, run: str) -> None:
        self._directory = settings.dir.absolute() / "checkpoints" / run

    def newest(self) -> tuple[Path, Cursor] | None:
        """Find the newest checkpoint; None when there is none."""
        found = self._all()
        return (found[-1], msgspec.json.decode((found[-1] / _CURSOR).read_bytes(), type=Cursor)) if found else None

    def save(self, cursor: Cursor, write: Callable[[Path], None]) -> None:
        """Keep a checkpoint of ``cursor.step``; whoever dies in the middle leaves the one before in its place.

        Args:
            cursor: where training stands.
            write: writes weights and optimizer state into the directory that it is given.
        """
        pending, final = self._directory / "pending", self._directory / f"step-{cursor.step:06d}"
        shutil.rmtree(pending, ignore_errors=True)
        pending.mkdir(parents=True)
        write(pending)
        (pending / _CURSOR).write_bytes(msgspec.json.encode(cursor))
        _sync_tree(pending)
        shutil.rmtree(final, ignore_errors=True)
        pending.replace(final)
        _sync(self._directory)

    def keep_newest(self, num_kept: int) -> None:
        """Delete all but the newest checkpoints."""
        for directory in self._all()[:-num_kept]:
            shutil.rmtree(directory)

    def _all(self) -> list[Path]:
        return sorted(self._directory.glob("step-*"))


def _sync_tree(directory: Path) -> None:
    for path in directory.rglob("*"):
        _sync(path)
    _sync(directory)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
