"""This file holds what a checkpoint says beside weights and optimizer: the cursor of the consumed groups."""

import os
import shutil
from pathlib import Path

import msgspec

from agent_layer.schema.record import Record
from agent_layer.settings import Settings

__all__ = ["Cursor", "checkpoint_directory", "keep_newest", "newest_checkpoint", "seal_checkpoint"]

_CURSOR = "cursor.json"


class Cursor(Record, frozen=True, kw_only=True):
    """Where training stands. Groups are acknowledged only after the checkpoint that contains them is sealed."""

    step: int = 0
    """Updates done."""
    policy_version: int = 0
    """Version that the weights in the checkpoint were published as."""
    next_round: int = 0
    """Rounds of tasks asked for so far."""
    num_groups_asked: int = 0
    num_groups_taken: int = 0
    success_rates: dict[str, float] = {}
    """By task id, what the curriculum has learned."""
    unacked: list[str] = []
    """Groups whose acknowledgement may have been cut off; they are not trained again."""


def checkpoint_directory(settings: Settings, run: str, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return settings.dir / "checkpoints" / run / f"step-{step:06d}"


def seal_checkpoint(directory: Path, cursor: Cursor) -> None:
    """Write the cursor last and whole: a directory without it is not a checkpoint."""
    pending = directory / f"{_CURSOR}.new"
    with pending.open("wb") as file:
        file.write(msgspec.json.encode(cursor))
        file.flush()
        os.fsync(file.fileno())
    pending.replace(directory / _CURSOR)


def newest_checkpoint(settings: Settings, run: str) -> tuple[Path, Cursor] | None:
    """Find the newest sealed checkpoint of a run; None when it has none."""
    sealed = sorted((settings.dir / "checkpoints" / run).glob(f"step-*/{_CURSOR}"))
    return (sealed[-1].parent, msgspec.json.decode(sealed[-1].read_bytes(), type=Cursor)) if sealed else None


def keep_newest(settings: Settings, run: str, num_kept: int) -> None:
    """Delete all but the newest checkpoints."""
    for cursor in sorted((settings.dir / "checkpoints" / run).glob(f"step-*/{_CURSOR}"))[:-num_kept]:
        cursor.unlink()
        shutil.rmtree(cursor.parent)
