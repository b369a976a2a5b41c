"""A group: the attempts at one round of a task side by side."""

from collections.abc import Iterator
from statistics import pstdev
from typing import Final, Literal

import msgspec

from agent_layer.errors import NotFoundError
from agent_layer.infra import mean
from agent_layer.schema import Group, Trajectory, make_rollout_id, make_trajectory_id
from agent_layer.store import TrajectoryRow
from agent_layer.view.answers.details import GroupAnswer, Member
from agent_layer.view.reads.lists import FAILED
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.source import ReadContext
from agent_layer.view.reads.tokens.tokens import token_ids
from agent_layer.view.reads.updates import mean_advantage, read_group, read_whole

_MAX_MEMBERS = 256
_MAX_ATTEMPTS = 16
_UNKNOWN: Final[dict[str, object]] = {
    **dict.fromkeys(
        ("closed_at", "group_size", "num_launched", "num_usable", "fill", "kept_seconds", "surplus_seconds")
    ),
    "num_surplus": 0,
}
"""What an open group has not decided yet."""


def show_group(source: ReadContext, params: RequestParams) -> GroupAnswer:
    """Return a group. Raises: NotFoundError: nothing is stored of it."""
    group_id = params.path["group"]
    group = read_group(source, group_id)
    rows = list(_rows(source, group_id, group))
    if group is None and not rows:
        raise NotFoundError(f"group {group_id!r}: expected it in the store, found nothing of it; '/api/v1/query' lists")
    kept = set(group.trajectory_ids) if group else set[str]()
    found, damaged = read_whole(source, [row for _, row in rows])
    first = next((found[row.trajectory_id] for _, row in rows if row.trajectory_id in found), None)
    members = [
        msgspec.structs.replace(
            _member(number, row, found.get(row.trajectory_id), first, kept), damaged=damaged.get(row.trajectory_id)
        )
        for number, row in rows
    ]
    rewards = [one.reward for one in members if one.kind == "kept" and one.reward is not None]
    return GroupAnswer.from_record(
        group or rows[0][1],
        **({} if group else _UNKNOWN),
        group_id=group_id,
        is_closed=group is not None,
        reward_mean=mean(rewards) if rewards else None,
        reward_std=pstdev(rewards) if rewards else None,
        is_zero_std=len(rewards) > 1 and len(set(rewards)) == 1,
        members=members,
    )


def has_group(source: ReadContext, group_id: str) -> bool:
    """Return whether something of a group is stored."""
    group = read_group(source, group_id)
    return group is not None or any(_rows(source, group_id, None))


def _rows(source: ReadContext, group_id: str, group: Group | None) -> Iterator[tuple[int, TrajectoryRow]]:
    """Yield (member, row) of each attempt; ids of attempts follow from the id of the group."""
    launched = (group.num_launched or group.group_size) if group else _MAX_MEMBERS
    rollouts = [make_rollout_id(group_id, member) for member in range(min(launched, _MAX_MEMBERS))]
    ids = [make_trajectory_id(rollout, number) for rollout in rollouts for number in range(_MAX_ATTEMPTS)]
    others = [one for one in (group.trajectory_ids if group else []) if one not in set(ids)]
    places = {one: at // _MAX_ATTEMPTS for at, one in enumerate(ids)}
    for row in source.index.rows([*ids, *others]):
        yield places.get(row.trajectory_id, -1), row


def _member(
    number: int, row: TrajectoryRow, whole: Trajectory | None, first: Trajectory | None, kept: set[str]
) -> Member:
    trained = whole.trained[-1] if whole and whole.trained else None
    times = whole.outcome.times if whole and whole.outcome else None
    return Member(
        row=row,
        member=number,
        kind=_kind(row, is_kept=row.trajectory_id in kept or row.accepted),
        reward=row.reward,
        advantage=mean_advantage(trained) if trained else None,
        update=trained.step if trained else None,
        run_seconds=times.run_seconds if times else None,
        num_sampled=sum(len(step.action.response_token_ids or ()) for step in whole.steps) if whole else None,
        first_divergence=None if whole is None or first is None or whole is first else _parting(first, whole),
    )


def _kind(row: TrajectoryRow, *, is_kept: bool) -> Literal["kept", "unusable", "surplus", "failed", "running"]:
    if is_kept:
        return "unusable" if row.reward is None else "kept"
    if row.status == "cancelled":
        return "surplus"
    return "failed" if row.status in FAILED else "running"


def _parting(one: Trajectory, other: Trajectory) -> int:
    """Return the first position at which two differ; the length of the shorter where it begins the longer."""
    pairs = zip(a := token_ids(one.steps), b := token_ids(other.steps), strict=False)
    return next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(a), len(b)))
