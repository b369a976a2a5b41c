"""Reports of a made-up run, for tests of its health."""

from agent_layer.health.progress import StepProgress
from agent_layer.health.restarts import Restart

METRICS = {
    "entropy": 0.8,
    "grad_norm": 0.5,
    "logprob_gap_mean": 1e-5,
    "actor/pg_clipfrac": 0.02,
    "rollout_corr/rollout_is_ratio_fraction_high": 0.01,
    "rollout_corr/rollout_is_ratio_fraction_low": 0.01,
}
TASKS = {"a": 0.6, "b": 0.7, "c": 0.5}


def report(step, *, metrics=None, by_task=None, **fields):
    """A step of a healthy run, but for what is given."""
    found = {
        "num_rollouts": 60,
        "num_samples": 60,
        "num_calls": 180,
        "num_tokens": 600,
        "reward_mean": 0.5,
        "success": 0.6,
        "num_whole_groups": 6,
        **fields,
    }
    return StepProgress(
        run="r",
        step=step,
        policy_version=step,
        ended_at=float(step),
        success_by_task=TASKS if by_task is None else by_task,
        metrics=METRICS | (metrics or {}),
        **found,
    )


def restart(number):
    """A death of the whole trainer at a time in seconds."""
    return Restart(at=float(number), what="run", why="killed", from_step=1, number=number, most=3)
