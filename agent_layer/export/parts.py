"""This file holds a table that lies in Parquet files, its parts, each of which is replaced as a whole.

A trajectory lives in one part, its home, for as long as the table exists. What is known anew of it replaces
what its
home holds. So one rename is all that ever happens, and no reader sees a trajectory twice.
"""

from collections.abc import Collection
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from agent_layer.export.files import UNFINISHED, replace_file

# pyright: reportUnknownMemberType=false
# pyarrow's functions take files of every kind.


_ID = "trajectory_id"
_ROW_GROUP = 65_536


class PartFiles:
    """The files ``part-000000.parquet``, ``part-000001.parquet``, … of one directory. One process writes them."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self._directory = directory
        self._schema = schema

    def begin(self) -> None:
        """Remove what a killed writer left behind; a table without any rows is a file without any."""
        for left in self._directory.glob(f"{UNFINISHED}*"):
            left.unlink()
        if not self._numbers():
            self._write(0, self._schema.empty_table())

    def part_numbers(self) -> dict[str, int]:
        """Where each trajectory lives: id → number of its part."""
        homes: dict[str, int] = {}
        for number in self._numbers():
            stored = pq.read_table(self._path(number), columns=[_ID], partitioning=None)
            homes |= dict.fromkeys(cast("list[str]", stored.column(_ID).to_pylist()), number)
        return homes

    def size_bytes(self, number: int) -> int:
        """How large a part is; 0 for one that does not exist."""
        path = self._path(number)
        return path.stat().st_size if path.exists() else 0

    def replace(self, number: int, trajectory_ids: Collection[str], batches: Collection[pa.RecordBatch]) -> None:
        """Take the rows of these trajectories out of a part, and put the batches in."""
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
            replace_file(self._path(number)) as path,
            pq.ParquetWriter(path, self._schema, compression="zstd") as writer,
        ):
            if table.num_rows:  # an empty group of rows is what ``datasets`` cannot read
                writer.write_table(table, row_group_size=_ROW_GROUP)

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem.removeprefix("part-")) for path in self._directory.glob("part-*.parquet"))

    def _path(self, number: int) -> Path:
        return self._directory / f"part-{number:06}.parquet"
