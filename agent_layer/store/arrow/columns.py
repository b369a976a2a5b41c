"""This file holds what a column is, and the types that several columns share.

Types are those that pandas, DuckDB and Hugging Face datasets all read: no maps, no dictionaries, no unions. What has no
fixed form (messages, arguments, framework state) is JSON text. Null means "not known", never zero or failed.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from agent_layer.errors import BadInputError

__all__ = ["JSON", "LABELS", "LOGPROBS", "MOMENT", "TOKENS", "Column", "choose", "json_text", "moment", "schema_of"]

R = TypeVar("R")

JSON = pa.string()
"""JSON text."""
MOMENT = pa.timestamp("us", tz="UTC")
TOKENS, LOGPROBS = pa.list_(pa.int32()), pa.list_(pa.float32())
LABELS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())]))
"""What Parquet stores for a map; ``datasets`` does not read Arrow's own map type."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Column(NamedTuple, Generic[R]):
    """One column of a table whose rows are made of R."""

    name: str
    type: pa.DataType
    value: Callable[[R], object]
    """What stands in it for one row."""
    meaning: str
    """Also kept in the schema's metadata, and so in every Parquet file."""


def schema_of(columns: Iterable[Column[R]]) -> pa.Schema:
    """Give the Arrow schema of these columns, each with its meaning."""
    return pa.schema([pa.field(one.name, one.type, metadata={"meaning": one.meaning}) for one in columns])


def choose(columns: Sequence[Column[R]], names: Sequence[str] | None) -> list[Column[R]]:
    """Give the columns of these names, in their order; None: all of them.

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


def moment(seconds: float | None) -> datetime | None:
    """Turn seconds since the epoch into a time, to the microsecond."""
    return None if seconds is None else _EPOCH + timedelta(seconds=seconds)
