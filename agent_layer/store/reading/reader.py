"""Trajectories read back: chunks from the objects, then records, then the whole trajectory; one, or many in a row.

Messages, tools and framework states are ``Content`` records. They are stored beside the steps, in the same chunk, or,
if they are large, in objects of their own. A reader that does not need them neither decodes the former nor fetches the
latter.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, cast

import msgspec

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.infra import ObjectStore
from agent_layer.schema import (
    Chunk,
    LogRecord,
    Step,
    Trajectory,
    TrajectoryRecord,
    assemble_trajectory,
    decode,
    record_owner,
    requested_tool_names,
    trajectory_owner,
)
from agent_layer.store.index.filters import Which
from agent_layer.store.index.index import Index
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.segments.blobs import fetch_contents
from agent_layer.store.segments.format import read_chunk, segment_key

_NUM_AT_ONCE = 16
"""Concurrent requests; a remote store answers each of them slowly."""

NUM_LOOKS = 5
"""A segment that is named may be gone when it is read, because it was merged into another one meanwhile."""

A = TypeVar("A")

B = TypeVar("B")

_NUM_THREADS = 8

_NUM_AHEAD = 16
"""Trajectories that are read ahead at the same time."""


def read_trajectories(index: Index, objects: ObjectStore, trajectory_ids: Sequence[str]) -> list[Trajectory]:
    """Assemble trajectories from their stored records, in the requested order.

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
            found = [cast("LogRecord", decode(one)) for one in stored]
            ours = [one for one in found if record_owner(one) == chunk.owner]  # earlier versions mixed owners
            records[chunk.owner] += cast("list[TrajectoryRecord]", ours)
    return [assemble_trajectory(one, records[trajectory_owner(one)]) for one in trajectory_ids]


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
            return [
                step
                for step in trajectory.steps
                if step.call_id in answered or name in requested_tool_names(step.action)
            ]
        case int(index):
            return trajectory.steps[index : index + 1]


def trajectory_not_found(trajectory_id: str, namespace: str) -> NotFoundError:
    """The error for a trajectory that the index does not know."""
    return NotFoundError(
        f"trajectory {trajectory_id!r}: expected it in the store, but namespace {namespace!r} has none of this id;"
        " 'agent-layer query' lists what there is"
    )


def _places(index: Index, trajectory_id: str) -> list[tuple[str, Chunk]]:
    if places := index.chunks(trajectory_id):
        return places
    raise trajectory_not_found(trajectory_id, index.keys.namespace)


class _Kind(msgspec.Struct):
    """Kind of a stored record; all its other fields are skipped."""

    type: str


_KIND = msgspec.msgpack.Decoder(_Kind)


def stream_trajectories(
    index: Index,
    objects: ObjectStore,
    rows: Iterable[TrajectoryRow],
    *,
    contents: bool = True,
    on_corrupt: Callable[[CorruptRecordError], None] | None = None,
) -> Iterator[tuple[TrajectoryRow, Trajectory]]:
    """Read the trajectories of rows in the order given, in memory that does not grow with their number.

    Those that were deleted meanwhile are left out.

    Args:
        index: of their locations.
        objects: with their bytes.
        rows: may be endless.
        contents: False: ``contents`` of each stays empty.
        on_corrupt: called with the error of each unreadable trajectory, which is then left out; None: raise it.

    Raises: CorruptRecordError: stored bytes are not what their checksum says.
    """

    def read(row: TrajectoryRow) -> tuple[TrajectoryRow, Trajectory] | CorruptRecordError | None:
        try:
            trajectory = _read_one(index, objects, row.trajectory_id, contents=contents)
        except CorruptRecordError as error:
            return error
        return None if trajectory is None else (row, trajectory)

    for found in _ahead(read, rows):
        if isinstance(found, tuple):
            yield found
        elif found is not None:
            if on_corrupt is None:
                raise found
            on_corrupt(found)


def stream_steps(
    found: Iterable[tuple[TrajectoryRow, Trajectory]], which: Which | None
) -> Iterator[tuple[Trajectory, Sequence[Step]]]:
    """Yield each trajectory with the selected steps; None: all of them."""
    for _, trajectory in found:
        yield trajectory, trajectory.steps if which is None else pick_steps(trajectory, which)


def _read_one(index: Index, objects: ObjectStore, trajectory_id: str, *, contents: bool) -> Trajectory | None:
    for look in range(NUM_LOOKS):
        try:
            stored = [
                record
                for name, chunk in index.chunks(trajectory_id)
                for record in read_chunk(objects, segment_key(index.keys, name), chunk)
            ]
        except NotFoundError:
            if look == NUM_LOOKS - 1:
                raise
        else:
            kept = stored if contents else [record for record in stored if not _is_content(record)]
            records = [cast("TrajectoryRecord", decode(record)) for record in kept]
            trajectory = assemble_trajectory(trajectory_id, records) if stored else None
            return fetch_contents(index.keys, objects, trajectory) if trajectory and contents else trajectory
    return None


def _is_content(record: bytes) -> bool:
    try:
        return _KIND.decode(record).type == "content"
    except msgspec.MsgspecError:  # ``decode`` says what is wrong with it
        return False


def _ahead(read: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    waiting: deque[Future[B]] = deque()
    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        try:
            for item in items:
                waiting.append(threads.submit(read, item))
                if len(waiting) >= _NUM_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for one in waiting:
                one.cancel()
