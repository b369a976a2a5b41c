"""This file holds how rows become Arrow arrays. Packed token arrays are copied as they lie, not token by token."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# What an Arrow array holds is known at run time only.

from collections.abc import Sequence
from typing import Final, TypeVar, cast

import pyarrow as pa

from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.store.tables.columns import LOGPROBS, MOMENT, TOKENS, Column, moment, schema_of

__all__ = ["batch_of"]

R = TypeVar("R")

_VALUES: Final[dict[pa.DataType, pa.DataType]] = {TOKENS: pa.int32(), LOGPROBS: pa.float32()}


def batch_of(columns: Sequence[Column[R]], rows: Sequence[R]) -> pa.RecordBatch:
    """Work out every column of every row."""
    arrays = [_array([column.value(row) for row in rows], column.type) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


def _array(values: list[object], kind: pa.DataType) -> "pa.Array[pa.Scalar[pa.DataType]]":
    if kind in _VALUES:
        return _packed(cast("list[TokenIds | Logprobs | None]", values), _VALUES[kind])
    if kind == MOMENT:
        values = [moment(value) if isinstance(value, float | int) else value for value in values]
    return pa.array(values, kind)


def _packed(arrays: Sequence[TokenIds | Logprobs | None], kind: pa.DataType) -> "pa.Array[pa.Scalar[pa.DataType]]":
    """Lay packed arrays side by side, without a Python object for each token."""
    offsets: list[int | None] = []
    length = 0
    for one in arrays:
        offsets.append(None if one is None else length)
        length += 0 if one is None else len(one)
    stored = pa.py_buffer(b"".join(one.tobytes() for one in arrays if one is not None))
    values = pa.Array.from_buffers(kind, length, [None, stored])
    return pa.ListArray.from_arrays(pa.array([*offsets, length], pa.int32()), values)
