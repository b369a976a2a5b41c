"""Comparison of three books: the engine's, the agents', and the store's."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import msgspec

from agent_layer.errors import CaptureError
from agent_layer.infra.objects.base import ObjectStore
from agent_layer.infra.redis.keys import Keys
from agent_layer.local.scripted.script import END, word_token_id
from agent_layer.schema.record import TokenIds
from agent_layer.schema.step import Step, StepPart
from agent_layer.schema.trajectory import Trajectory
from agent_layer.store.index.index import Index
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.maintenance.rebuild import read_segment
from agent_layer.store.segments.format import list_segments
from agent_layer.store.store import Store
from trainer_adapter.data.samples import samples_of

_MARK = re.compile(r"\bq\w+\.\d+\b")


@dataclass
class Book:
    """Lines of one process, by deed and mark."""

    entries: dict[str, dict[str, list[str]]] = field(default_factory=dict[str, dict[str, list[str]]])

    def of(self, deed: str) -> dict[str, list[str]]:
        return self.entries.get(deed, {})


def read_book(path: Path) -> Book:
    entries: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for line in path.read_text().splitlines():
        deed, mark, text = line.split("\t")
        entries[deed][mark].append(text)
    return Book({deed: dict(marks) for deed, marks in entries.items()})


def read_all(store: Store) -> dict[str, Trajectory]:
    """Every trajectory that the index knows."""
    return {row.trajectory_id: store.get(row.trajectory_id) for row in _rows(store)}


def read_index(store: Store) -> list[object]:
    """All that answers are made of: rows, and where the bytes of each trajectory lie."""
    index = Index(store.redis, store.keys)
    return [(row, index.chunks(row.trajectory_id)) for row in _rows(store)]


def _rows(store: Store) -> Iterator[TrajectoryRow]:
    cursor: str | None = None
    while True:
        page = store.query(run="storm", limit=200, cursor=cursor)
        yield from page.items
        if (cursor := page.cursor) is None:
            return


def steps_by_mark(trajectories: Iterable[Trajectory]) -> dict[str, list[Step]]:
    found: defaultdict[str, list[Step]] = defaultdict(list)
    for trajectory in trajectories:
        for step in trajectory.steps:
            if mark := _find_mark(trajectory, step):
                found[mark].append(step)
    return dict(found)


def _find_mark(trajectory: Trajectory, step: Step) -> str | None:
    messages = step.state.messages or []
    body = trajectory.contents.get(messages[-1], b"{}") if messages else b"{}"
    found = _MARK.search(str(msgspec.json.decode(body).get("content", "")))
    return found[0] if found else None


def find_lost(agents: Book, steps: dict[str, list[Step]]) -> Iterator[str]:
    """Each answer that an agent received is a whole step with the same text."""
    for mark, texts in agents.of("saw").items():
        found = steps.get(mark, [])
        stored = {str((step.action.message or {}).get("content")) for step in found if step.status == "ok"}
        for text in set(texts) - stored:
            yield f"lost: {mark} was answered {text[:40]!r}, the store has {[step.status for step in found]}"


def find_unknown(engine: Book, steps: dict[str, list[Step]]) -> Iterator[str]:
    """What the engine began is a step each."""
    for mark, begun in engine.of("began").items():
        calls = {step.call_id for step in steps.get(mark, [])}
        if len(calls) < len(begun):
            yield f"unknown: the engine began {mark} {len(begun)} times, the store has calls {sorted(calls)}"


def find_doubled(objects: ObjectStore, keys: Keys, steps: dict[str, list[Step]]) -> Iterator[str]:
    """No question is answered by two whole calls, no part of a call is stored twice, no call in two trajectories."""
    for mark, found in steps.items():
        if len(whole := {step.call_id for step in found if step.status == "ok"}) > 1:
            yield f"doubled: {mark} has whole calls {sorted(whole)}"
        if len({step.trajectory_id for step in found}) > 1:
            yield f"doubled: {mark} is in {sorted({step.trajectory_id for step in found})}"
    for (trajectory_id, call_id, source, phase), number in _count_parts(objects, keys).items():
        if number > 1:
            yield f"doubled: {number} times the {phase} of {call_id} by {source} in {trajectory_id}"


def _count_parts(objects: ObjectStore, keys: Keys) -> Counter[tuple[str, str, str, str]]:
    segments = (read_segment(objects, key) for key in list_segments(keys, objects))
    records = chain.from_iterable(chain.from_iterable(segment.records.values()) for segment in segments)
    return Counter(
        (part.trajectory_id, part.call_id, part.source, part.phase) for part in records if isinstance(part, StepPart)
    )


def find_mistrained(engine: Book, trajectories: Iterable[Trajectory], counts: Counter[str]) -> Iterator[str]:
    """Every token of a whole step is trained once, as the engine sampled it; no token of any other step is."""
    for trajectory in trajectories:
        if any(step.capture_level == "text" and step.status == "ok" for step in trajectory.steps):
            yield from _find_untrainable(trajectory, counts)
            continue
        taken = samples_of(trajectory)
        whole = {(step.call_id, step.choice): step for step in trajectory.steps if step.status == "ok"}
        trained = [(ref.call_id, ref.choice) for sample in taken.samples for ref in sample.steps]
        if Counter(trained) != Counter(whole.keys()):
            yield f"mistrained: {trajectory.trajectory_id} trains {len(trained)} steps of {len(whole)}"
        num_tokens = sum(len(step.action.response_token_ids or ()) for step in whole.values())
        if (num_trained := sum(sum(sample.loss_mask) for sample in taken.samples)) != num_tokens:
            yield f"mistrained: {trajectory.trajectory_id} trains {num_trained} of {num_tokens} tokens"
        counts["tokens trained"] += num_tokens
        counts["steps dropped"] += len(taken.drops)
        yield from _find_foreign(engine, trajectory, whole.values())


def _find_untrainable(trajectory: Trajectory, counts: Counter[str]) -> Iterator[str]:
    try:
        samples_of(trajectory)
    except CaptureError:
        counts["trajectories at text level"] += 1
        return
    yield f"mistrained: {trajectory.trajectory_id} has no token ids, and is trained"


def _find_foreign(engine: Book, trajectory: Trajectory, whole: Iterable[Step]) -> Iterator[str]:
    for step in whole:
        mark = _find_mark(trajectory, step) or ""
        spoken = [
            TokenIds(word_token_id(word) for word in (*text.split(), END))
            for text in engine.of("answered").get(mark, [])
        ]
        if step.action.response_token_ids not in spoken:
            yield f"mistrained: {step.call_id} has tokens that the engine never gave for {mark}"
