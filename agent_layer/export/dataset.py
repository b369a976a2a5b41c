"""This file holds a dataset: what a question to the store answers, as tables of Parquet files, kept current.

    DIR/dataset.json                          what was asked, and how far in the store's events it has come
    DIR/trajectories/part-000000.parquet …    one row for each trajectory
    DIR/steps/part-000000.parquet …           its steps, in the part of the same number

Of each part the trajectories are replaced first, then the steps; the place in the events moves last. Whoever is
killed
in between does the same again, and the same again changes nothing.
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
from agent_layer.export.files import replace_file
from agent_layer.export.parts import PartFiles
from agent_layer.infra.processes import try_lock
from agent_layer.store.arrow import STEP_SCHEMA, TRAJECTORY_SCHEMA, tabulate_rows
from agent_layer.store.index import TrajectoryRow

Table: TypeAlias = Literal["trajectories", "steps"]

_SCHEMAS: dict[Table, pa.Schema] = {"trajectories": TRAJECTORY_SCHEMA, "steps": STEP_SCHEMA}
"""In the order in which they are written."""
_FULL_BYTES = 16 << 20
"""A part that is larger gets no more trajectories; small enough to be replaced when one of them changes."""


class DatasetEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One trajectory, ready to be written."""

    row: TrajectoryRow
    steps: pa.RecordBatch


class DatasetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a dataset holds. Two plans that differ need two directories."""

    tables: list[Table]
    contents: bool
    filters: dict[str, object]
    """As they were asked for."""


class _State(msgspec.Struct, frozen=True, kw_only=True):
    plan: DatasetPlan
    made_at: float
    """Seconds since the epoch; spans such as ``2h`` count from here."""
    position: str | None = None
    """Newest event that it knows of; None until it was filled once."""


class Dataset:
    """The tables of one directory, locked for as long as the ``with`` block runs. Its place is that of a feed.

    Args:
        directory: is made if it is not there.
        plan: what it holds.
        now: seconds since the epoch.

    Raises: BadInputError: it cannot be written to, another process writes it, or it holds something else.
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
        """When it was begun, in seconds since the epoch."""
        return self._state.made_at

    @property
    def trajectory_ids(self) -> Collection[str]:
        """Those that it holds."""
        return self._part_numbers.keys()

    def load(self) -> bytes | None:
        """See feed.Place."""
        return None if self._state.position is None else self._state.position.encode()

    def save(self, position: bytes) -> None:
        """See feed.Place."""
        if position != self.load():
            self._keep(msgspec.structs.replace(self._state, position=position.decode()))

    def put(self, entries: Sequence[DatasetEntry]) -> None:
        """Enter trajectories, each in the place of what was known of it before."""
        homes = {entry.row.trajectory_id: self._choose_part(entry) for entry in entries}
        for number in sorted(set(homes.values())):
            own = [entry for entry in entries if homes[entry.row.trajectory_id] == number]
            self._replace(number, [entry.row.trajectory_id for entry in own], own)
        self._part_numbers |= homes

    def drop(self, trajectory_ids: Iterable[str]) -> None:
        """Take trajectories out, such as those that were deleted or do not meet the filters any more."""
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
        with replace_file(self._directory / "dataset.json") as path:
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
            f"dataset {directory}: expected no one else to write it, but another export does; stop that, or choose"
            " another directory"
        )
    return lock
