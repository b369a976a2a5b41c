"""What is doubtful about how rollouts were recorded and scored: counts for the health of a run. Pure."""

from collections.abc import Sequence

import msgspec

from agent_layer.schema import Step, Trajectory, prefix_break_cause


class CaptureCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over rollouts."""

    num_fake_zeros: int = 0
    num_gaps: int = 0
    num_forks: int = 0

    def __add__(self, other: "CaptureCounts") -> "CaptureCounts":
        """Return the counts of both."""
        return CaptureCounts(
            num_fake_zeros=self.num_fake_zeros + other.num_fake_zeros,
            num_gaps=self.num_gaps + other.num_gaps,
            num_forks=self.num_forks + other.num_forks,
        )


def count_capture(trajectories: Sequence[Trajectory]) -> CaptureCounts:
    """Return the counts of these rollouts."""
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    return CaptureCounts(
        num_fake_zeros=sum(map(is_fake_zero, trajectories)),
        num_gaps=sum(map(has_gap, trajectories)),
        num_forks=len(
            {(one.trajectory_id, one.call_id) for one in steps if any(map(prefix_break_cause, one.findings))}
        ),
    )


def is_fake_zero(trajectory: Trajectory) -> bool:
    """Whether the reward is 0 although the policy had no fair try: it sampled nothing, or its last call failed.

    A call that was aborted counts as the policy's: limits of the task abort calls, too.
    """
    if trajectory.reward != 0:
        return False
    steps = [step for step in trajectory.steps if step.role == "policy"]
    if not any(step.action.response_token_ids for step in steps if step.status == "ok"):
        return True
    return max(steps, key=lambda step: step.started_at).status == "error"


def has_gap(trajectory: Trajectory) -> bool:
    """Whether a call never ended, or the gateway counted more calls than are recorded."""
    counted = trajectory.outcome.num_calls if trajectory.outcome else None
    seen = {step.call_id for step in trajectory.steps if _is_of_gateway(step)}
    return any(step.status is None for step in trajectory.steps) or len(seen) < (counted or 0)


def _is_of_gateway(step: Step) -> bool:
    return "gateway" in step.sources
