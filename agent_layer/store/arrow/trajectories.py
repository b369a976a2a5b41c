"""Arrow table of trajectories: one row for each, with the fields that a query shows."""

from collections.abc import Iterable
from datetime import datetime
from operator import attrgetter
from typing import Final, cast

import msgspec
import pyarrow as pa

from agent_layer.infra import batched
from agent_layer.store.arrow.columns import LABELS, MOMENT, Column, build_batch, build_schema
from agent_layer.store.index.rows import TrajectoryRow


def _plain(name: str, kind: pa.DataType, meaning: str) -> Column[TrajectoryRow]:
    return Column(name, kind, attrgetter(name), meaning)


def _time(name: str, meaning: str) -> Column[TrajectoryRow]:
    def read(row: TrajectoryRow) -> datetime | None:
        text: str | None = getattr(row, name)
        return None if text is None else datetime.fromisoformat(text)

    return Column(name, MOMENT, read, meaning)


def _labels(row: TrajectoryRow) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in row.labels.items()]


_COLUMNS: Final[tuple[Column[TrajectoryRow], ...]] = (
    _plain("trajectory_id", pa.string(), "ROLLOUT-ATTEMPT; unique"),
    _plain("rollout_id", pa.string(), "one of the group's tries at the task"),
    _plain("attempt", pa.int32(), "counts from 0"),
    _plain("task_id", pa.string(), "what was asked"),
    _plain("task_type", pa.string(), "kind of task, such as math"),
    _plain("run", pa.string(), "training run"),
    _plain("split", pa.string(), "train or eval"),
    _plain("group_id", pa.string(), "rollouts that count together"),
    _plain("status", pa.string(), "completed, truncated, failed, lost, ..."),
    _plain("cause", pa.string(), "who brought the end about; null for a plain completion"),
    _plain("accepted", pa.bool_(), "this attempt, and no other, counts for its rollout"),
    _plain("reward", pa.float64(), "of the rollout; null is no judgement"),
    _plain("num_steps", pa.int32(), "choices of all model calls"),
    _plain("policy_min", pa.int64(), "smallest version that sampled any token"),
    _plain("policy_max", pa.int64(), "largest version that sampled any token"),
    _plain("agents", pa.list_(pa.string()), "names of the agents that made calls, sorted"),
    _plain("tools", pa.list_(pa.string()), "names of the tools that were asked for or answered, sorted"),
    _time("started_at", "cut to milliseconds"),
    _time("ended_at", "cut to milliseconds"),
    Column("labels", LABELS, _labels, "labels of its task, superseded by those given later"),
    _plain("worker", pa.string(), "who ran it"),
    _plain("input_hash", pa.string(), "content hash of its task's input"),
    _plain("env", pa.string(), "environment"),
    _plain("env_version", pa.string(), "its version"),
    _plain("findings", pa.list_(pa.string()), "kinds of what was noticed, such as prefix_break, sorted"),
    _plain("engines", pa.list_(pa.string()), "addresses of the engines that its calls went to, sorted"),
)

TRAJECTORY_SCHEMA: Final = build_schema(_COLUMNS)


_BATCH_ROWS = 4_096


def stream_rows(rows: Iterable[TrajectoryRow]) -> pa.RecordBatchReader:
    """Return rows as batches of ``TRAJECTORY_SCHEMA``, in their order, each computed when it is read."""
    batches = (build_batch(_COLUMNS, page) for page in batched(rows, _BATCH_ROWS))
    return pa.RecordBatchReader.from_batches(TRAJECTORY_SCHEMA, batches)


def tabulate_rows(rows: Iterable[TrajectoryRow]) -> pa.Table:
    """Put rows into a table of ``TRAJECTORY_SCHEMA``, in their order."""
    return stream_rows(rows).read_all()


def read_rows(table: pa.Table) -> list[TrajectoryRow]:
    """Read rows back from a table that ``tabulate_rows`` made."""
    return [_make_row(fields) for fields in cast("list[dict[str, object]]", table.to_pylist())]


def _make_row(fields: dict[str, object]) -> TrajectoryRow:
    labels = {label["key"]: label["value"] for label in cast("list[dict[str, str]]", fields["labels"])}
    times = {name: _written(value) for name, value in fields.items() if isinstance(value, datetime)}
    return msgspec.convert({**fields, **times, "labels": labels}, TrajectoryRow)


def _written(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
