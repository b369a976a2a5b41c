"""Comparison of three accounts: the workers' books, the dispatcher's state, and the store."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

from asking import is_doomed, is_null
from book import Deed

from agent_layer.dispatcher import GroupState, RolloutState
from agent_layer.schema.ids import make_trajectory_id
from agent_layer.schema.rollout import Accepted, Group
from agent_layer.store.maintenance.rebuild import read_segment
from agent_layer.store.segments.format import list_segments, segment_name
from agent_layer.store.store import Store

__all__ = ["Account", "StoredDecisions", "find_unindexed", "read_stored"]

_ACCEPTING = ("completed", "truncated")
_FILL_OF_FEWER = {"deliver": "short", "refill": "short", "drop": "dropped"}
_FINAL = (*_ACCEPTING, "cancelled", "dead")


@dataclass
class StoredDecisions:
    """Decisions, read from the objects alone."""

    accepted: Mapping[str, Collection[str]]
    """Rollout → trajectories that were accepted for it."""
    groups: Mapping[str, Sequence[Group]]


def read_stored(store: Store) -> StoredDecisions:
    accepted: defaultdict[str, set[str]] = defaultdict(set)
    groups: defaultdict[str, list[Group]] = defaultdict(list)
    for key in list_segments(store.keys, store.objects):
        for record in chain.from_iterable(read_segment(store.objects, key).records.values()):
            if isinstance(record, Accepted):
                accepted[record.rollout_id].add(record.trajectory_id)
            elif isinstance(record, Group) and record not in groups[record.group_id]:
                groups[record.group_id].append(record)
    return StoredDecisions(accepted, groups)


def find_unindexed(store: Store) -> list[str]:
    """Segments that lie in the objects and are not committed."""
    known = {name.decode() for name in cast("list[bytes]", store.redis.hkeys(store.keys.segments))}
    names = [segment_name(key) for key in list_segments(store.keys, store.objects)]
    return [f"stored, but never committed: {name}" for name in names if name not in known]


class Account:
    """All of it, by rollout."""

    def __init__(self, deeds: Iterable[Deed], rollouts: Iterable[RolloutState], groups: Iterable[GroupState]) -> None:
        self.deeds: defaultdict[str, list[Deed]] = defaultdict(list)
        for deed in deeds:
            self.deeds[deed.rollout_id].append(deed)
        self.rollouts = {rollout.rollout_id: rollout for rollout in rollouts}
        self.groups = {group.group_id: group for group in groups}
        self.counts: Counter[str] = Counter()
        self._members: defaultdict[str, list[RolloutState]] = defaultdict(list)
        for rollout in self.rollouts.values():
            self._members[rollout.group_id].append(rollout)

    def breaches(self, stored: StoredDecisions, cancelled: Collection[str]) -> Iterator[str]:
        """Every promise that was broken; counts what there was."""
        for rollout in self.rollouts.values():
            self.counts[f"rollouts {rollout.status}"] += 1
            yield from self._check_end(rollout, cancelled)
            yield from self._check_acceptance(rollout, stored)
            yield from self._check_leases(rollout)
        for group in self.groups.values():
            yield from self._group(group, stored)
        for deed in (deed for deeds in self.deeds.values() for deed in deeds):
            self.counts[f"book: {deed.kind}"] += 1
            yield from self._answer(deed)

    def _check_end(self, rollout: RolloutState, cancelled: Collection[str]) -> Iterator[str]:
        group = self.groups[rollout.group_id]
        if rollout.status not in _FINAL:
            yield f"lost: {rollout}"
        if rollout.status == "dead" and not is_doomed(rollout.rollout_id):
            yield f"dead without a reason: {rollout}"
        if rollout.status == "cancelled" and rollout.group_id not in cancelled:
            self.counts["rollouts cancelled as surplus"] += 1
            if group.num_usable < group.group_size:
                yield f"cancelled by nobody: {rollout}"
        if (rollout.accepted is not None) != (rollout.status in _ACCEPTING):
            yield f"accepted and not, at once: {rollout}"

    def _check_acceptance(self, rollout: RolloutState, stored: StoredDecisions) -> Iterator[str]:
        """Workers, dispatcher and store agree on the accepted attempt."""
        deeds = self.deeds[rollout.rollout_id]
        believed = {deed.holding for deed in deeds if deed.kind in ("yes", "again-yes") and deed.ending in _ACCEPTING}
        message = {deed.attempt for deed in deeds if deed.kind == "says" and deed.ending in _ACCEPTING}
        if len(believed) > 1:
            yield f"accepted twice: {rollout.rollout_id} {sorted(believed)}"
        if believed and {attempt for attempt, _ in believed} != {rollout.accepted}:
            yield f"accepted otherwise than was answered: {rollout} {sorted(believed)}"
        if rollout.accepted is not None and rollout.accepted not in message:
            yield f"accepted though nobody said so: {rollout}"
        self.counts["accepted, but whoever said so died before the answer"] += (
            rollout.accepted is not None and not believed
        )
        expected = [] if rollout.accepted is None else [make_trajectory_id(rollout.rollout_id, rollout.accepted)]
        if (found := list(stored.accepted.get(rollout.rollout_id, ()))) != expected:
            yield f"stored as accepted: expected {expected}, found {found}"

    def _check_leases(self, rollout: RolloutState) -> Iterator[str]:
        """No token is issued twice; an attempt resumes from its own checkpoint, or is new."""
        deeds = self.deeds[rollout.rollout_id]
        took = [deed for deed in deeds if deed.kind == "took"]
        begun = [deed.attempt for deed in took if not deed.sentence]
        kept = {(deed.attempt, deed.sentence) for deed in deeds if deed.kind == "keeps"}
        resumed = {(deed.attempt, deed.sentence) for deed in took if deed.sentence}
        self.counts["attempts that went on under another lease"] += len(resumed)
        if len({deed.token for deed in took}) < len(took) or len(set(begun)) < len(begun):
            yield f"given out twice: {rollout.rollout_id} {[deed.holding for deed in took]}"
        if not resumed <= kept:
            yield f"resumed from elsewhere: {rollout.rollout_id} {resumed - kept}"

    def _group(self, group: GroupState, stored: StoredDecisions) -> Iterator[str]:
        if not group.is_closed:
            yield f"never closed: {group}"
            return
        members = self._members[group.group_id]
        accepted = [(one.rollout_id, one.accepted) for one in members if one.accepted is not None]
        num_usable = sum(not is_null(*one) for one in accepted)
        if (group.num_launched, group.num_accepted, group.num_usable) != (len(members), len(accepted), num_usable):
            yield f"miscounted: {group}, {len(members)} rollouts, {len(accepted)} accepted, {num_usable} usable"
        is_whole = num_usable >= group.group_size
        if group.fill != ("whole" if is_whole else _FILL_OF_FEWER[group.partial]):
            yield f"closed otherwise: {group}"
        expected = [make_trajectory_id(*one) for one in accepted] if group.fill != "dropped" else []
        found = stored.groups.get(group.group_id, [])
        if [one.trajectory_ids for one in found] != [expected]:
            yield f"stored as group {group.group_id}: expected {expected}, found {found}"
        self.counts[f"groups {group.fill}"] += 1
        self.counts["rollouts launched to fill a group up"] += (
            group.partial == "refill" and len(members) - group.group_size
        )

    def _answer(self, deed: Deed) -> Iterator[str]:
        if deed.kind == "foreign-yes":
            yield f"taken with another lease's token: {deed}"
        if deed.kind == "again-no" and deed.ending in _ACCEPTING and self._was_taken(deed):
            yield f"refused when it was said again: {deed}"
        if deed.kind in ("no", "foreign-no") and "discard this attempt" not in deed.sentence:
            yield f"refused without the sentence: {deed}"

    def _was_taken(self, deed: Deed) -> bool:
        return any(one.kind == "yes" and one.token == deed.token for one in self.deeds[deed.rollout_id])
