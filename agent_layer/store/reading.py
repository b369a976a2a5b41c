"""This file holds how trajectories are read back: chunks from the objects, records, then the whole graph."""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from agent_layer.errors import NotFoundError
from agent_layer.schema.codec import decode
from agent_layer.schema.segment import Chunk
from agent_layer.schema.step import Step
from agent_layer.schema.tools import tools_asked
from agent_layer.schema.trajectory import Trajectory, TrajectoryRecord, assemble_trajectory
from agent_layer.store.filters import Which
from agent_layer.store.index import Index
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.segments import read_chunk, segment_key

__all__ = ["NUM_LOOKS", "not_found", "pick_step", "pick_steps", "read_trajectories"]

_NUM_AT_ONCE = 16
"""Requests under way at the same time; a store far away answers each of them slowly."""
NUM_LOOKS = 5
"""A segment that is named may be gone when it is read, because it was merged into another one meanwhile."""


def read_trajectories(index: Index, objects: ObjectStore, trajectory_ids: Sequence[str]) -> list[Trajectory]:
    """Put trajectories together from all that is stored of them, in the order asked for.

    Raises:
        NotFoundError: the index does not know one of them, or its bytes are gone.
        CorruptRecordError: stored bytes are not what their checksum says.
    """
    for look in range(NUM_LOOKS):
        try:
            return _read(index, objects, trajectory_ids)
        except NotFoundError:
            if look == NUM_LOOKS - 1:
                raise
    return []


def _read(index: Index, objects: ObjectStore, trajectory_ids: Sequence[str]) -> list[Trajectory]:
    places = [place for trajectory_id in trajectory_ids for place in _places(index, trajectory_id)]

    def read(place: tuple[str, Chunk]) -> list[bytes]:
        name, chunk = place
        return read_chunk(objects, segment_key(index.keys, name), chunk)

    records: defaultdict[str, list[TrajectoryRecord]] = defaultdict(list)
    with ThreadPoolExecutor(_NUM_AT_ONCE) as threads:
        for (_, chunk), stored in zip(places, threads.map(read, places), strict=True):
            records[chunk.owner] += [cast("TrajectoryRecord", decode(one)) for one in stored]
    return [assemble_trajectory(trajectory_id, records[trajectory_id]) for trajectory_id in trajectory_ids]


def pick_step(trajectory: Trajectory, step: int) -> Step:
    """The step of this index.

    Raises: NotFoundError: the trajectory has no such step.
    """
    if 0 <= step < len(trajectory.steps):
        return trajectory.steps[step]
    raise NotFoundError(
        f"step {step} of trajectory {trajectory.trajectory_id!r}: expected an index below the number of its steps,"
        f" which is {len(trajectory.steps)}; steps count from 0"
    )


def pick_steps(trajectory: Trajectory, which: Which) -> list[Step]:
    """The steps asked for, in order; none where the trajectory has no such step."""
    match which:
        case "last":
            return trajectory.steps[-1:]
        case ("tool", name):
            answered = {one.call_id for one in trajectory.observations if one.name == name}
            return [step for step in trajectory.steps if step.call_id in answered or name in tools_asked(step.action)]
        case int(index):
            return trajectory.steps[index : index + 1]


def not_found(trajectory_id: str, namespace: str) -> NotFoundError:
    """The error for a trajectory that the index does not know."""
    return NotFoundError(
        f"trajectory {trajectory_id!r}: expected it in the store, but namespace {namespace!r} has none of this id;"
        " 'agent-layer query' lists what there is"
    )


def _places(index: Index, trajectory_id: str) -> list[tuple[str, Chunk]]:
    if places := index.chunks(trajectory_id):
        return places
    raise not_found(trajectory_id, index.keys.namespace)
