"""Comparison of what the trainer received and learned from with what the objects hold."""

import base64
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain

from line import Line

from agent_layer.schema.codec import decode
from agent_layer.schema.rollout import Accepted, AttemptStarted, Group
from agent_layer.store.consumers.trained_batches import list_batches
from agent_layer.store.maintenance.rebuild import read_segment
from agent_layer.store.segments.format import list_segments
from agent_layer.store.store import Store
from trainer_adapter.data import rebuild_batch

__all__ = ["find_breaches", "find_doubled"]


class Stored:
    """Decisions, read from the objects alone."""

    def __init__(self, store: Store) -> None:
        self.accepted: defaultdict[str, set[str]] = defaultdict(set)
        self.groups: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
        self.workers: defaultdict[str, set[tuple[str | None, float]]] = defaultdict(set)
        for key in list_segments(store.keys, store.objects):
            for record in chain.from_iterable(read_segment(store.objects, key).records.values()):
                if isinstance(record, Accepted):
                    self.accepted[record.rollout_id].add(record.trajectory_id)
                elif isinstance(record, Group):
                    self.groups[record.group_id].add(tuple(record.trajectory_ids))
                elif isinstance(record, AttemptStarted):
                    self.workers[record.trajectory_id].add((record.worker, record.started_at))


def find_doubled(stored: Stored) -> Iterator[str]:
    """Yield what was decided twice."""
    for rollout_id, trajectory_ids in stored.accepted.items():
        if len(trajectory_ids) > 1:
            yield f"accepted twice: {rollout_id} {sorted(trajectory_ids)}"
    for group_id, memberships in stored.groups.items():
        if len(memberships) > 1:
            yield f"two memberships stored: {group_id} {sorted(memberships)}"
    for trajectory_id, starts in stored.workers.items():
        if len(starts) > 1:
            yield f"two attempts in one trajectory: {trajectory_id} {sorted(map(str, starts))}"


def find_breaches(line: Line, store: Store, counts: Counter[str]) -> Iterator[str]:
    """Yield every broken promise; count what there was."""
    stored = Stored(store)
    counts["rollouts accepted"] = len(stored.accepted)
    counts["groups stored"] = len(stored.groups)
    yield from find_doubled(stored)
    yield from _compare_journal(line, stored, counts)
    yield from _compare_ledger(line, store, counts)
    for finding in store.admin.check().findings:
        yield f"store check: {finding.kind}: {finding.subject}: {finding.detail}"


def _compare_journal(line: Line, stored: Stored, counts: Counter[str]) -> Iterator[str]:
    notes = list(line.read_journal())
    counts.update(f"trainer: {note['what']}" for note in notes)
    again = (note for note in notes if note["what"] == "submitted again")
    counts["groups that the queue forgot"] = sum(int(str(note["subject"])) for note in again)
    received: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
    for note in (one for one in notes if one["what"] == "received"):
        members, named, _ = note["detail"]
        received[str(note["subject"])].add(tuple(members))
        if members != named:
            yield f"received in part: {note['subject']} {named}, got {members}"
    counts["groups received"] = len(received)
    for group_id, memberships in received.items():
        if len(memberships) > 1:
            yield f"received with two memberships: {group_id} {sorted(memberships)}"
    for group_id in (str(note["subject"]) for note in notes if note["what"] == "submitted"):
        if group_id not in received:
            yield f"{'sealed and never received' if group_id in stored.groups else 'never closed'}: {group_id}"


def _compare_ledger(line: Line, store: Store, counts: Counter[str]) -> Iterator[str]:
    lines = [json.loads(one) for one in (line.directory / "ledger").read_bytes().splitlines()]
    ledger = {one["step"]: decode(base64.b64decode(one["record"])) for one in lines}
    trained = Counter(chain.from_iterable({one["step"]: one["groups"] for one in lines}.values()))
    yield from (f"trained twice: {group_id}" for group_id, number in trained.items() if number > 1)
    batches = {batch.step: batch for batch in list_batches(store.redis, store.keys, line.settings.run)}
    counts["steps trained"] = len(ledger)
    for step, record in ledger.items():
        if batches.get(step) != record:
            yield f"ledger: step {step} is stored otherwise, or not at all"
            continue
        yield from (f"replay: {difference}" for difference in rebuild_batch(record, store.get).differences)
    yield from (f"ledger: step {step} is stored, but was never trained" for step in batches.keys() - ledger.keys())
