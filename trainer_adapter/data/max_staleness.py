"""``rollouts.max_staleness``: by how many policy versions a trained token may be older than the weights. Pure.

It is enforced twice. Before a group is sampled, by the version from which it may begin. Before it is trained, by
the age of each token: a group with a rollout that is too old is sampled again.

Start versions. Let a step train g groups, and let each step make a version. Of the groups that are submitted and not
yet trained, in training order, the one at index k is trained by version V + k // g, where V trains next. Its tokens
may be s versions older: it may begin once version w = V + k // g - s exists. Turned around: of the groups that begin
by version w at the latest, g * (1 + s + w - V) may wait to be trained. For w = V, which exists, that is g * (1 + s),
the bound without submission ahead. Groups of a larger w are submitted ahead, and wait in the queue for their version,
so that workers do not wait for the trainer.

As long as each step trains g groups and makes a version, submission p is trained at step p // g, by version p // g, and
begins at p // g - s. Counting the waiting groups holds beyond that: when groups are dropped, when a step changes no
weights, and when a killed trainer has left later versions.
"""

from collections.abc import Sequence

from trainer_adapter.data.samples import SampleSet


def is_too_old(found: SampleSet, policy_version: int, max_staleness: int) -> bool:
    """Whether a rollout has a token that the weights of this version must not train on."""
    return max(list_ages(found, policy_version), default=0) > max_staleness


def list_ages(found: SampleSet, policy_version: int) -> list[int]:
    """Return [num_trained_tokens] versions between the sampling of each token and the weights that train on it."""
    versions = [version for sample in found.samples for version in sample.versions if version >= 0]
    return [policy_version - version for version in versions]


def plan_start_versions(
    waiting: Sequence[int], policy_version: int, *, groups_per_step: int, max_staleness: int, ask_ahead_steps: int
) -> list[int]:
    """Return the start version of each group that may be submitted now.

    Args:
        waiting: start versions of the groups that are submitted and not yet trained.
        policy_version: of the weights that train next.
        groups_per_step: groups that one step trains.
        max_staleness: versions by which trained tokens may be older than the weights.
        ask_ahead_steps: steps whose groups are submitted before they may begin.

    Returns:
        [num_groups] ascending; negative where a version before the first would suffice.
    """
    admitted: list[int] = []
    for ahead in range(1 + max_staleness + ask_ahead_steps):
        start = policy_version - max_staleness + ahead
        num_begun = sum(one <= start for one in waiting) + len(admitted)
        admitted += [start] * max(0, groups_per_step * (1 + ahead) - num_begun)
    return admitted
