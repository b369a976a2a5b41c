"""Columns of Arrow tables, their shared types, and the conversion of rows into arrays.

Types are those that pandas, DuckDB and Hugging Face datasets all read: no maps, no dictionaries, no unions. Values
without a fixed form (messages, arguments, framework state) are JSON text. Null means "not known", never zero or failed.
Packed token arrays are copied in one piece, not token by token.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# The types inside an Arrow array are known at run time only.

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, NamedTuple, TypeVar, cast

import msgspec
import pyarrow as pa

from agent_layer.errors import BadInputError
from agent_layer.schema import Logprobs, TokenIds

R = TypeVar("R")

JSON = pa.string()
"""JSON text."""
MOMENT = pa.timestamp("us", tz="UTC")
TOKENS, LOGPROBS = pa.list_(pa.int32()), pa.list_(pa.float32())
LABELS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())]))
"""What Parquet stores for a map; ``datasets`` does not read Arrow's own map type."""
_VALUES: Final[dict[pa.DataType, pa.DataType]] = {TOKENS: pa.int32(), LOGPROBS: pa.float32()}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Column(NamedTuple, Generic[R]):
    """One column of a table whose rows are made of R."""

    name: str
    type: pa.DataType
    value: Callable[[R], object]
    """Its value for one row."""
    meaning: str
    """Also kept in the schema's metadata, and so in every Parquet file."""


def build_schema(columns: Iterable[Column[R]]) -> pa.Schema:
    """Return the Arrow schema of these columns, each with its meaning."""
    return pa.schema([pa.field(one.name, one.type, metadata={"meaning": one.meaning}) for one in columns])


def select_columns(columns: Sequence[Column[R]], names: Sequence[str] | None) -> list[Column[R]]:
    """Return the columns of these names, in their order; None: all of them.

    Raises: BadInputError: there is no such column.
    """
    if names is None:
        return list(columns)
    known = {column.name: column for column in columns}
    if unknown := [name for name in names if name not in known]:
        raise BadInputError(f"column {unknown[0]!r}: expected one of {', '.join(known)}; correct it or leave it out")
    return [known[name] for name in names]


def json_text(value: object) -> str | None:
    """Write a value as JSON; None stays null."""
    return None if value is None else msgspec.json.encode(value).decode()


def to_datetime(seconds: float | None) -> datetime | None:
    """Turn seconds since the epoch into a time, to the microsecond."""
    return None if seconds is None else _EPOCH + timedelta(seconds=seconds)


def build_batch(columns: Sequence[Column[R]], rows: Sequence[R]) -> pa.RecordBatch:
    """Compute every column of every row."""
    arrays = [_array([column.value(row) for row in rows], column.type) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=build_schema(columns))


def _array(values: list[object], kind: pa.DataType) -> "pa.Array[pa.Scalar[pa.DataType]]":
    if kind in _VALUES:
        return _packed(cast("list[TokenIds | Logprobs | None]", values), _VALUES[kind])
    if kind == MOMENT:
        values = [to_datetime(value) if isinstance(value, float | int) else value for value in values]
    return pa.array(values, kind)


def _packed(arrays: Sequence[TokenIds | Logprobs | None], kind: pa.DataType) -> "pa.Array[pa.Scalar[pa.DataType]]":
    """Join packed arrays without a Python object for each token."""
    offsets: list[int | None] = []
    length = 0
    for one in arrays:
        offsets.append(None if one is None else length)
        length += 0 if one is None else len(one)
    stored = pa.py_buffer(b"".join(one.tobytes() for one in arrays if one is not None))
    values = pa.Array.from_buffers(kind, length, [None, stored])
    return pa.ListArray.from_arrays(pa.array([*offsets, length], pa.int32()), values)
