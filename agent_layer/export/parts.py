"""A table as a set of Parquet files (parts), each replaced as a whole.

A trajectory stays in one part, its home, while the table exists; new rows replace its earlier rows there. So each
change is a single rename, and no reader sees a trajectory twice.
"""

from collections.abc import Collection
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from agent_layer.export.files import UNFINISHED, write_export

# pyright: reportUnknownMemberType=false
# pyarrow's functions accept many kinds of files, with partly unknown types.


_ID = "trajectory_id"
_ROW_GROUP = 65_536


class PartFiles:
    """The files ``part-000000.parquet``, ``part-000001.parquet``, … of one directory. One process writes them."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self._directory = directory
        self._schema = schema

    def begin(self) -> None:
        """Remove leftovers of a killed writer; an empty table is one file without rows."""
        for left in self._directory.glob(f"{UNFINISHED}*"):
            left.unlink()
        if not self._numbers():
            self._write(0, self._schema.empty_table())

    def part_numbers(self) -> dict[str, int]:
        """Return the home of each trajectory: id → number of its part."""
        homes: dict[str, int] = {}
        for number in self._numbers():
            stored = pq.read_table(self._path(number), columns=[_ID], partitioning=None)
            homes |= dict.fromkeys(cast("list[str]", stored.column(_ID).to_pylist()), number)
        return homes

    def size_bytes(self, number: int) -> int:
        """Return the size of a part; 0 if it does not exist."""
        path = self._path(number)
        return path.stat().st_size if path.exists() else 0

    def replace(self, number: int, trajectory_ids: Collection[str], batches: Collection[pa.RecordBatch]) -> None:
        """Replace the rows of these trajectories in a part by the batches."""
        kept = self._without(number, trajectory_ids)
        new = pa.Table.from_batches(batches, self._schema)
        self._write(number, pa.concat_tables([kept, new]))

    def _without(self, number: int, trajectory_ids: Collection[str]) -> pa.Table:
        path = self._path(number)
        if not path.exists():
            return self._schema.empty_table()
        stored = pq.read_table(path, schema=self._schema, partitioning=None)
        are_gone = pc.is_in(stored.column(_ID), value_set=pa.array(list(trajectory_ids), pa.string()))
        return stored.filter(pc.invert(are_gone))

    def _write(self, number: int, table: pa.Table) -> None:
        with (
            write_export(self._path(number)) as path,
            pq.ParquetWriter(path, self._schema, compression="zstd") as writer,
        ):
            if table.num_rows:  # ``datasets`` cannot read an empty row group
                writer.write_table(table, row_group_size=_ROW_GROUP)

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem.removeprefix("part-")) for path in self._directory.glob("part-*.parquet"))

    def _path(self, number: int) -> Path:
        return self._directory / f"part-{number:06}.parquet"
