"""Checkpoints: directories that appear whole or not at all, with a cursor; and the progress file.

The progress file has one JSON line per step, for displays, plots and people.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from agent_layer.infra import make_private
from agent_layer.schema import Record
from agent_layer.settings import Settings

_CURSOR = "cursor.json"


class Cursor(Record, frozen=True, kw_only=True):
    """Position of training. Groups are acknowledged only after the checkpoint that contains them is on disk."""

    step: int = 0
    """Steps done."""
    policy_version: int | None = 0
    """Version of the weights in the checkpoint; None: they were not published."""
    num_asked: int = 0
    """Groups submitted so far."""
    open_positions: list[int] = []
    """Positions of those not trained or dropped yet, counted from 0 in order of submission."""
    open_starts: list[int] = []
    """[num_open] policy version from which each may begin; empty in checkpoints of older trainers."""
    success_rates: dict[str, float] = {}
    """By task id, for the curriculum."""
    taken: list[str] = []
    """Groups trained since the checkpoint before; acknowledged next, and never trained again."""


class CheckpointDirectory:
    """The checkpoints of one run, in ``DIR/checkpoints/RUN``."""

    def __init__(self, settings: Settings, run: str) -> None:
        self._directory = settings.dir.absolute() / "checkpoints" / run

    def newest(self) -> tuple[Path, Cursor] | None:
        """Find the newest checkpoint; None when there is none."""
        found = self._all()
        return (found[-1], msgspec.json.decode((found[-1] / _CURSOR).read_bytes(), type=Cursor)) if found else None

    def save(self, cursor: Cursor, write: Callable[[Path], None]) -> None:
        """Write the checkpoint of ``cursor.step``; a crash in between leaves the earlier one in place.

        Args:
            cursor: position of training.
            write: writes weights and optimizer state into the directory it gets.
        """
        pending, final = self._directory / "pending", self._directory / f"step-{cursor.step:06d}"
        shutil.rmtree(pending, ignore_errors=True)
        make_private(pending.parent)
        pending.mkdir(mode=0o700)
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


class StepProgress(Record, frozen=True, kw_only=True):
    """One update of the policy."""

    run: str
    step: int
    """Updates so far, this one included; the first is 1."""
    policy_version: int
    """Version that this update produced."""
    ended_at: float
    """Seconds since the epoch, UTC."""
    num_rollouts: int
    num_samples: int
    num_calls: int
    num_tokens: int
    """Trained tokens."""
    reward_mean: float | None
    """Over rollouts with a reward; None when there was none."""
    success: float | None
    """Share of rollouts with a reward above 0, as a mean over tasks."""
    success_by_task: dict[str, float] = {}
    num_null_rewards: int = 0
    """Rollouts that failed for a cause other than the policy; they are in no baseline."""
    num_dead_groups: int = 0
    """Groups whose rewards are all equal: they teach nothing."""
    num_whole_groups: int = 0
    """Groups with as many usable rollouts as requested."""
    num_short_groups: int = 0
    """Groups with fewer; those with at least two rewards are trained, too."""
    num_dropped_groups: int = 0
    """Groups that came empty because too few rollouts were usable; others were submitted in their place."""
    num_surplus_rollouts: int = 0
    """Rollouts that were cancelled because enough others of their group had ended."""
    kept_seconds: float | None = None
    """Mean time of the usable rollouts of groups that had a surplus; None: there were none."""
    surplus_seconds: float | None = None
    """Mean running time of that surplus. Much longer than ``kept_seconds``: learning favours rollouts that end
    early."""
    num_stale_rollouts: int = 0
    """Rollouts left out because a token was older than ``max_staleness`` allows."""
    num_dropped_steps: int = 0
    staleness_mean: float = 0.0
    """Versions between sampling and training, averaged over trained tokens."""
    staleness_max: int = 0
    wait_seconds: float = 0.0
    """Waiting for whole groups."""
    update_seconds: float = 0.0
    switch_seconds: float = 0.0
    """Writing weights, and switching each engine."""
    checkpoint_seconds: float = 0.0
    metrics: dict[str, float] = {}
    """Metrics of veRL, and ``logprob_gap``: largest difference of a log-probability between trainer and engine."""


def progress_path(settings: Settings, run: str) -> Path:
    """Return the progress file of a run."""
    return settings.dir / "runs" / run / "progress.jsonl"


def append_progress(path: Path, progress: StepProgress) -> None:
    """Append one line, in one write."""
    make_private(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, msgspec.json.encode(progress) + b"\n")
    finally:
        os.close(descriptor)


def read_progress(path: Path) -> list[StepProgress]:
    """Read all complete lines; a step that was repeated after a restart keeps its last line."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    steps = [msgspec.json.decode(line, type=StepProgress) for line in lines]
    return sorted({progress.step: progress for progress in steps}.values(), key=lambda progress: progress.step)
