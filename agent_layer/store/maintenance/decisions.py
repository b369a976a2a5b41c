"""Audit of decisions: at most one accepted attempt of a rollout, one membership of a group, no training on others.

No dispatcher of ours contradicts itself. A Redis that lost its last second, or an older copy of it, lets a dispatcher
decide again what it had decided: see docs/how-to/operate.md. The objects keep both decisions.
"""

from collections.abc import Iterator, Sequence
from typing import cast

from agent_layer.errors import BadInputError
from agent_layer.schema import (
    Accepted,
    ExcludedRollout,
    Group,
    LogRecord,
    TrainedBatch,
    TrainedTokens,
    decode,
    make_trajectory_id,
    owner_text,
    split_trajectory_id,
    trajectory_owner,
)
from agent_layer.store.index.index import Index
from agent_layer.store.maintenance.findings import Finding
from agent_layer.store.segments.format import Segment

_MAX_SIBLINGS = 1_024
"""Earlier attempts that are looked at, of each accepted one; an id may claim any number."""
_SHOWN = 3
"""Names in one sentence."""


def find_conflicts(index: Index, segment: Segment) -> Iterator[Finding]:
    """Yield the contradictions between a segment's decisions and the rest of the index.

    Deleted owners contradict nothing.
    """
    records = [record for owned in segment.records.values() for record in owned]
    accepted = [one for one in records if isinstance(one, Accepted)]
    yield from _find_doubled(index, accepted)
    yield from _find_ungrouped(index, accepted)
    yield from _find_regrouped(index, [one for one in records if isinstance(one, Group)])
    yield from _find_unaccepted(index, records)
    for owner in segment.misnamed:
        yield Finding(
            kind="misnamed",
            subject=segment.footer.name,
            detail=(
                f"an earlier version wrote trajectory {owner!r} under the name of another kind; it is read under its"
                " own, and 'agent-layer store compact' writes it so with the next merge of that day"
            ),
        )


def _find_doubled(index: Index, accepted: Sequence[Accepted]) -> Iterator[Finding]:
    for one in accepted:
        siblings = [make_trajectory_id(one.rollout_id, number) for number in _earlier_attempts(one)]
        if not siblings or one.trajectory_id not in _keep_accepted(index, [one.trajectory_id]):
            continue
        if twins := _keep_accepted(index, siblings):
            (group,) = _read_groups(index, [one.group_id]) if one.group_id else [None]
            counted = next(
                (name for name in (group.trajectory_ids if group else ()) if name in {*twins, one.trajectory_id}), None
            )
            others = [name for name in (*twins, one.trajectory_id) if name != counted]
            remedy = f"its group counts {counted}, so delete" if counted else "no group counts either, so keep one:"
            yield Finding(
                kind="doubled",
                subject=one.rollout_id,
                detail=(
                    f"attempts {_name(twins)} and {one.trajectory_id} are both accepted: a Redis forgot the first"
                    f" decision; {remedy} 'agent-layer store delete {others[-1]}'"
                ),
            )


def _earlier_attempts(accepted: Accepted) -> range:
    try:
        rollout_id, attempt = split_trajectory_id(accepted.trajectory_id)
    except BadInputError:  # of a recorder with names of its own
        return range(0)
    return range(max(0, attempt - _MAX_SIBLINGS), attempt) if rollout_id == accepted.rollout_id else range(0)


def _find_ungrouped(index: Index, accepted: Sequence[Accepted]) -> Iterator[Finding]:
    grouped = [one for one in accepted if one.group_id and find_group(one.trajectory_id) == one.group_id]
    for one, group in zip(grouped, _read_groups(index, [one.group_id or "" for one in grouped]), strict=True):
        if group is None or group.fill == "dropped" or one.trajectory_id in group.trajectory_ids:
            continue
        if _is_twin(one, group) or not _keep_accepted(index, [one.trajectory_id]):
            continue
        if _is_shortened(_keep_live(index, group.trajectory_ids), group):  # of two records, a deletion left this one
            continue
        yield Finding(
            kind="ungrouped",
            subject=one.trajectory_id,
            detail=(
                f"it is accepted, but the record of its group {group.group_id} does not name it, so no consumer gets"
                f" it: a Redis forgot that decision; delete it with 'agent-layer store delete {one.trajectory_id}'"
            ),
        )


def find_group(trajectory_id: str) -> str:
    """Return the group of an attempt that a queue handed out, by its id."""
    return trajectory_id.rpartition("-")[0].rpartition(".")[0]


def _is_twin(accepted: Accepted, group: Group) -> bool:
    """Whether the group names another attempt at the same rollout, which is a finding of its own."""
    begin = f"{accepted.rollout_id}-"
    return any(one.startswith(begin) and one[len(begin) :].isdecimal() for one in group.trajectory_ids)


def _find_regrouped(index: Index, groups: Sequence[Group]) -> Iterator[Finding]:
    for group, known in zip(groups, _read_groups(index, [one.group_id for one in groups]), strict=True):
        if known is None or known.trajectory_ids == group.trajectory_ids:
            continue
        if index.are_deleted([owner_text("group", group.group_id)])[0]:
            continue
        ours, theirs = _keep_live(index, group.trajectory_ids), _keep_live(index, known.trajectory_ids)
        shorter, longer = sorted([(ours, group), (theirs, known)], key=lambda one: len(one[0]))
        if set(shorter[0]) <= set(longer[0]) and (len(ours) == len(theirs) or _is_shortened(*shorter)):
            continue  # one decision, before and after a deletion
        members = " and ".join(sorted(map(_name, (ours, theirs))))
        yield Finding(
            kind="regrouped",
            subject=group.group_id,
            detail=(
                f"two records of it name other members, {members}: a Redis forgot one"
                " decision, and a consumer may have had either; delete the attempts that must not count with"
                " 'agent-layer store delete'"
            ),
        )


def _find_unaccepted(index: Index, records: Sequence[LogRecord]) -> Iterator[Finding]:
    naming = [(record, named) for record in records if (named := _named_rollouts(record))]
    live = _keep_live(index, list(dict.fromkeys(one for _, named in naming for one in named)))
    others = set(live).difference(_keep_accepted(index, live))
    for record, named in naming:
        if strays := [one for one in dict.fromkeys(named) if one in others]:
            yield _describe_unaccepted(record, strays)


def _describe_unaccepted(record: LogRecord, others: Sequence[str]) -> Finding:
    names = f"{_name(others)}, which {'was' if len(others) == 1 else 'were'} not accepted"
    match record:
        case Group():
            subject = record.group_id
            detail = (
                f"it names {names}, so no consumer can get it; 'agent-layer store reindex' finds what the index lost;"
                " if this stays, delete the group's attempts and submit its task again"
            )
        case TrainedBatch():
            subject = f"{record.run}:{record.step}"
            detail = (
                f"the update learned from {names}; replay cannot repeat it: continue from a checkpoint before step"
                f" {record.step}, or delete these attempts"
            )
        case _:
            subject = others[0]
            detail = f"a trainer recorded tokens of {names}; delete it, or continue from a checkpoint before its step"
    return Finding(kind="unaccepted", subject=subject, detail=detail)


def _named_rollouts(record: LogRecord) -> list[str]:
    """Trajectories that count because of a record."""
    match record:
        case Group():
            return record.trajectory_ids
        case TrainedBatch():
            return [one.trajectory_id for one in record.rollouts]
        case TrainedTokens() | ExcludedRollout():
            return [record.trajectory_id]
        case _:
            return []


def _is_shortened(live: Sequence[str], group: Group) -> bool:
    """Whether a deletion took members out of a group, now or when its record was rewritten."""
    return len(live) < max(len(group.trajectory_ids), group.num_usable or 0)


def _read_groups(index: Index, group_ids: Sequence[str]) -> list[Group | None]:
    """Groups as the index holds them; None: it holds none."""
    if not group_ids:
        return []
    stored = cast("list[bytes | None]", index.redis.mget([index.keys.group(one) for one in group_ids]))
    groups = (decode(one) if one else None for one in stored)
    return [group if isinstance(group, Group) else None for group in groups]


def _keep_live(index: Index, trajectory_ids: Sequence[str]) -> list[str]:
    """Those that were not deleted."""
    dead = index.are_deleted([*map(trajectory_owner, trajectory_ids)])
    return [one for one, is_dead in zip(trajectory_ids, dead, strict=True) if not is_dead]


def _keep_accepted(index: Index, trajectory_ids: Sequence[str]) -> list[str]:
    pipeline = index.pipeline()
    for trajectory_id in trajectory_ids:
        pipeline.hexists(index.keys.trajectory(trajectory_id), "accepted")
    found = cast("list[bool]", pipeline.execute())
    return [one for one, is_accepted in zip(trajectory_ids, found, strict=True) if is_accepted]


def _name(trajectory_ids: Sequence[str]) -> str:
    more = len(trajectory_ids) - _SHOWN
    return ", ".join(trajectory_ids[:_SHOWN]) + (f" and {more} more" if more > 0 else "") or "none"
