"""Stream of steps as Arrow batches, for readers of more than fits into memory."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from agent_layer.schema import Step, Trajectory
from agent_layer.store.arrow.steps import step_schema, tabulate_steps

_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 4_096


def tabulate_stream(
    picked: Iterable[tuple[Trajectory, Sequence[Step]]], *, columns: Sequence[str] | None, contents: bool
) -> pa.RecordBatchReader:
    """Return the picked steps of each trajectory as batches of a few megabytes, each computed when it is read.

    Raises: BadInputError: there is no such column.
    """
    schema = step_schema(columns)
    small = (tabulate_steps(one, steps, columns=columns, contents=contents) for one, steps in picked)
    return pa.RecordBatchReader.from_batches(schema, _joined(small))


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches: one for each trajectory would cost a reader more than its rows do."""
    held: list[pa.RecordBatch] = []
    num_rows = num_bytes = 0
    for batch in batches:
        held.append(batch)
        num_rows, num_bytes = num_rows + batch.num_rows, num_bytes + batch.nbytes
        if num_rows >= _BATCH_ROWS or num_bytes >= _BATCH_BYTES:
            yield from _join(held)
            held, num_rows, num_bytes = [], 0, 0
    if held:
        yield from _join(held)


def _join(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()
