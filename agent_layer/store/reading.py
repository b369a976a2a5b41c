"""This file holds how a trajectory is read back: chunks from the objects, records, then the whole graph."""

from typing import cast

from agent_layer.errors import NotFoundError
from agent_layer.schema.codec import decode
from agent_layer.schema.step import Step
from agent_layer.schema.trajectory import Trajectory, TrajectoryRecord, assemble_trajectory
from agent_layer.store.index import Index
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.segments import read_chunk

__all__ = ["not_found", "pick_step", "read_records", "read_trajectory"]


def read_records(index: Index, objects: ObjectStore, trajectory_id: str) -> list[TrajectoryRecord]:
    """All stored records of a trajectory, in no particular order; what was written twice stands twice.

    Raises:
        NotFoundError: the index does not know the trajectory.
        CorruptRecordError: stored bytes are not what their checksum says.
    """
    chunks = index.chunks(trajectory_id)
    if not chunks:
        raise not_found(trajectory_id, index.keys.namespace)
    stored = [frame for segment, chunk in chunks for frame in read_chunk(objects, segment, chunk)]
    return [cast("TrajectoryRecord", decode(record)) for record in stored]


def read_trajectory(index: Index, objects: ObjectStore, trajectory_id: str) -> Trajectory:
    """Put a trajectory together from all that is stored of it; raises what ``read_records`` does."""
    return assemble_trajectory(trajectory_id, read_records(index, objects, trajectory_id))


def not_found(trajectory_id: str, namespace: str) -> NotFoundError:
    """The error for a trajectory that the index does not know."""
    return NotFoundError(
        f"trajectory {trajectory_id!r}: expected it in the store, but namespace {namespace!r} has none of this id;"
        " 'agent-layer query' lists what there is"
    )


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
