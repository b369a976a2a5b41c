"""Dataset on disk: the trajectories that match a query, as Parquet tables that follow the store.


        DIR/dataset.json                          the query, and the position in the store's events
    DIR/trajectories/part-000000.parquet …    one row for each trajectory
    DIR/steps/part-000000.parquet …           its steps, in the part of the same number

Trajectories of a part are replaced first, then its steps; the position in the events moves last. A killed writer
repeats its last round, and repeating it changes nothing.
"""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

import msgspec
import pyarrow as pa

from agent_layer.errors import BadInputError
from agent_layer.export.files import write_export
from agent_layer.export.parts import PartFiles
from agent_layer.infra import try_lock
from agent_layer.store import STEP_SCHEMA, TRAJECTORY_SCHEMA, TrajectoryRow, tabulate_rows

Table: TypeAlias = Literal["trajectories", "steps"]

_SCHEMAS: dict[Table, pa.Schema] = {"trajectories": TRAJECTORY_SCHEMA, "steps": STEP_SCHEMA}
"""Schemas in write order."""
_FULL_BYTES = 16 << 20
"""Larger parts receive no more trajectories; a change of one trajectory rewrites its whole part."""


class DatasetEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One trajectory, ready to be written."""

    row: TrajectoryRow
    steps: pa.RecordBatch


class DatasetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Query and tables of a dataset. Different plans need different directories."""

    tables: list[Table]
    contents: bool
    filters: dict[str, object]
    """Filters as the user wrote them."""


class _State(msgspec.Struct, frozen=True, kw_only=True):
    plan: DatasetPlan
    made_at: float
    """Seconds since the epoch; ``2h`` means two hours before this."""
    position: str | None = None
    """Newest event that the dataset includes; None until it was filled once."""


class Dataset:
    """The tables of one directory, locked during the ``with`` block. It is also the feed's position.

    Args:
        directory: created if missing.
        plan: query and tables.
        now: seconds since the epoch.

    Raises: BadInputError: it is not writable, another process writes it, or it has another plan.
    """

    def __init__(self, directory: Path, plan: DatasetPlan, now: float) -> None:
        self._directory = directory
        self._lock = _lock(directory)
        self._state = self._open_state(_State(plan=plan, made_at=now))
        self._tables = {name: PartFiles(directory / name, _SCHEMAS[name]) for name in _SCHEMAS if name in plan.tables}
        for parts in self._tables.values():
            parts.begin()
        self._part_numbers = {
            trajectory_id: number
            for parts in self._tables.values()
            for trajectory_id, number in parts.part_numbers().items()
        }
        self._newest = max(self._part_numbers.values(), default=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)

    @property
    def made_at(self) -> float:
        """Return when it was created, in seconds since the epoch."""
        return self._state.made_at

    @property
    def trajectory_ids(self) -> Collection[str]:
        """Return the ids of its trajectories."""
        return self._part_numbers.keys()

    def load(self) -> bytes | None:
        """See feed.Place."""
        return None if self._state.position is None else self._state.position.encode()

    def save(self, position: bytes) -> None:
        """See feed.Place."""
        if position != self.load():
            self._keep(msgspec.structs.replace(self._state, position=position.decode()))

    def put(self, entries: Sequence[DatasetEntry]) -> None:
        """Insert trajectories; each replaces its earlier rows."""
        homes = {entry.row.trajectory_id: self._choose_part(entry) for entry in entries}
        for number in sorted(set(homes.values())):
            own = [entry for entry in entries if homes[entry.row.trajectory_id] == number]
            self._replace(number, [entry.row.trajectory_id for entry in own], own)
        self._part_numbers |= homes

    def drop(self, trajectory_ids: Iterable[str]) -> None:
        """Remove trajectories that were deleted or no longer match the filters."""
        gone: defaultdict[int, list[str]] = defaultdict(list)
        for trajectory_id in trajectory_ids:
            if trajectory_id in self._part_numbers:
                gone[self._part_numbers[trajectory_id]].append(trajectory_id)
        for number, ours in sorted(gone.items()):
            self._replace(number, ours, [])
            for trajectory_id in ours:
                del self._part_numbers[trajectory_id]

    def _replace(self, number: int, trajectory_ids: Sequence[str], entries: Sequence[DatasetEntry]) -> None:
        for name, parts in self._tables.items():
            rows = tabulate_rows(entry.row for entry in entries).to_batches()
            parts.replace(number, trajectory_ids, rows if name == "trajectories" else [one.steps for one in entries])

    def _choose_part(self, entry: DatasetEntry) -> int:
        known = self._part_numbers.get(entry.row.trajectory_id)
        if known is None and sum(parts.size_bytes(self._newest) for parts in self._tables.values()) > _FULL_BYTES:
            self._newest += 1
        return self._newest if known is None else known

    def _open_state(self, new: _State) -> _State:
        path = self._directory / "dataset.json"
        if not path.exists():
            self._keep(new)
            return new
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_State)
        except (msgspec.DecodeError, OSError) as error:
            raise BadInputError(
                f"{path}: expected what an export wrote, found {error}; remove the directory"
            ) from error
        if found.plan != new.plan:
            raise BadInputError(
                f"dataset {self._directory}: expected to hold what is asked for now, found one of other filters or"
                f" tables ({msgspec.json.encode(found.plan).decode()}); choose another directory, or remove this one"
            )
        return found

    def _keep(self, state: _State) -> None:
        with write_export(self._directory / "dataset.json") as path:
            path.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
        self._state = state


def _lock(directory: Path) -> int:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = try_lock(directory / ".lock")
    except OSError as error:
        raise BadInputError(
            f"dataset {directory}: expected a directory that can be written to, found {error.strerror!r};"
            " choose another"
        ) from error
    if lock is None:
        raise BadInputError(
            f"dataset {directory}: another export is writing it; stop that export, or choose another directory"
        )
    return lock
