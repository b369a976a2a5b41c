"""This file holds what is asked of the index to know whether it holds all that a segment says."""

from collections.abc import Iterator
from typing import NamedTuple, cast

from agent_layer.schema.batch import TrainedBatch
from agent_layer.schema.codec import LogRecord
from agent_layer.schema.group import Group
from agent_layer.schema.policy import PolicyVersion
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted
from agent_layer.schema.step import Content, ContentRef, StepPart
from agent_layer.schema.trajectory import TrajectoryRecord
from agent_layer.store.index import Index
from agent_layer.store.keys import Keys
from agent_layer.store.rebuild import Segment

__all__ = ["lacking_in_index"]


class _Probe(NamedTuple):
    """A question to Redis, and the answer of an index that holds what a segment says."""

    subject: str
    command: tuple[str, ...]
    answer: object


def lacking_in_index(index: Index, segment: Segment) -> list[str]:
    """Name those of whom the index lacks something that the segment says; the dead lack nothing."""
    dead = index.are_dead([chunk.owner for chunk in segment.footer.chunks])
    living = {chunk.owner for chunk, is_dead in zip(segment.footer.chunks, dead, strict=True) if not is_dead}
    probes = list(_probes(index.keys, segment, living))
    pipeline = index.pipeline()
    for probe in probes:
        pipeline.execute_command(*probe.command)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    found = cast("list[object]", pipeline.execute())
    return list({probe.subject: None for probe, one in zip(probes, found, strict=True) if one != probe.answer})


def _probes(keys: Keys, segment: Segment, living: set[str]) -> Iterator[_Probe]:
    name = segment.footer.name
    yield _Probe("the segment itself", ("HGET", keys.segments, name), str(segment.size_bytes).encode())
    for chunk in segment.footer.chunks:
        if chunk.owner not in living:
            continue
        records = segment.records[chunk.owner]
        if any(isinstance(record, TrajectoryRecord) for record in records):
            place = f"{chunk.offset} {chunk.size_bytes}".encode()
            yield _Probe(chunk.owner, ("HGET", keys.chunks(chunk.owner), name), place)
        for command in {_command_of(keys, record): None for record in records if not isinstance(record, Content)}:
            yield _Probe(chunk.owner, command, 1)


def _command_of(keys: Keys, record: LogRecord) -> tuple[str, ...]:  # noqa: PLR0911  # one for each kind
    """What asks whether the index knows of a record. Contents are not known to it."""
    match record:
        case Group():
            return "EXISTS", keys.group(record.group_id)
        case PolicyVersion():
            return "HEXISTS", keys.policies(record.run), str(record.number)
        case TrainedBatch():
            return "HEXISTS", keys.batches(record.run), record.batch_id
        case StepPart():
            return "HEXISTS", keys.calls(record.trajectory_id), record.call_id
        case ContentRef():
            return "HEXISTS", keys.blobs_of(record.trajectory_id), record.blob
        case Reward():
            return "HEXISTS", keys.rewards(record.trajectory_id), record.reward_id
        case Accepted():
            return "HEXISTS", keys.trajectory(record.trajectory_id), "accepted"
        case _:
            return "HEXISTS", keys.trajectory(record.trajectory_id), "started_at"
