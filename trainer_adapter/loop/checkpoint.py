"""This file holds what a trainer tells of each step: one JSON line, appended, for displays, plots and people."""

import os
from pathlib import Path

import msgspec

from agent_layer.schema.record import Record
from agent_layer.settings import Settings

__all__ = ["StepProgress", "append_progress", "progress_path", "read_progress"]


class StepProgress(Record, frozen=True, kw_only=True):
    """One update of the policy."""

    run: str
    step: int
    """Updates so far, this one included; the first is 1."""
    policy_version: int
    """Version that this update made."""
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
    """Share of rollouts with a reward above 0, averaged over tasks so that each task counts alike."""
    success_by_task: dict[str, float] = {}
    num_null_rewards: int = 0
    """Rollouts that failed for a cause other than the policy; they are in no baseline."""
    num_dead_groups: int = 0
    """Groups whose rewards are all equal: they teach nothing."""
    num_whole_groups: int = 0
    """With as many usable rollouts as asked for."""
    num_short_groups: int = 0
    """With fewer; those with at least two rewards are trained all the same."""
    num_dropped_groups: int = 0
    """That came empty because too few of their rollouts were usable; others were asked for in their place."""
    num_surplus_rollouts: int = 0
    """That were running when enough others of their group had ended, and were cancelled."""
    kept_seconds: float | None = None
    """Mean time of the usable rollouts of groups that had a surplus; None: there were none."""
    surplus_seconds: float | None = None
    """Mean time that this surplus had run. Much longer than ``kept_seconds``: learning favours what ends early."""
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
    """Writing weights, and walking each engine from serving to serving."""
    checkpoint_seconds: float = 0.0
    metrics: dict[str, float] = {}
    """What veRL reported, and ``logprob_gap``: the largest difference of a log-probability in trainer and engine."""


def progress_path(settings: Settings, run: str) -> Path:
    """Where the lines of a run are appended."""
    return settings.dir / "runs" / run / "progress.jsonl"


def append_progress(path: Path, progress: StepProgress) -> None:
    """Append one line, in one write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, msgspec.json.encode(progress) + b"\n")
    finally:
        os.close(descriptor)


def read_progress(path: Path) -> list[StepProgress]:
    """Read all whole lines; steps that were done again after a restart keep their last line."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    steps = [msgspec.json.decode(line, type=StepProgress) for line in lines]
    return sorted({progress.step: progress for progress in steps}.values(), key=lambda progress: progress.step)
