"""Other formats for trajectories: an object each, rows of SQLite, files of Parquet.

Each keeps the same records, packed and compressed as a segment packs them, beside the columns that a query needs. None
of them reads what it is given, merges it with what came before, or works a reward out; so they have less to do.
"""

import os
import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import boto3
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from store_facts import Facts
from store_feed import Appends, StoreFigures

from agent_layer.schema.codec import encode

__all__ = ["Sized", "store_in_objects", "store_in_parquet", "store_in_sqlite"]

Sized = Sequence[tuple[Facts, Appends]]

_NUM_AT_ONCE = 4
"""As many as a shipper has in transit."""
_COLUMNS = {
    "trajectory_id": "TEXT PRIMARY KEY", "run": "TEXT", "split": "TEXT", "task_id": "TEXT", "task_type": "TEXT",
    "status": "TEXT", "cause": "TEXT", "started_at": "REAL", "reward": "REAL", "policy_min": "INTEGER",
    "policy_max": "INTEGER", "num_steps": "INTEGER", "accepted": "INTEGER", "agents": "TEXT", "tools": "TEXT",
    "labels": "TEXT",
}  # fmt: skip
_INDEXED = ("run", "split", "task_id", "task_type", "status", "started_at", "reward", "policy_min", "policy_max")


def store_in_objects(s3_url: str, trajectories: Sized) -> StoreFigures:
    """Put an object for each trajectory, a few at once; nothing is indexed."""
    s3 = boto3.client("s3", endpoint_url=s3_url)
    s3.create_bucket(Bucket="each")

    def put(one: tuple[Facts, Appends]) -> int:
        body = _pack(one[1])
        s3.put_object(Bucket="each", Key=one[0].trajectory_id, Body=body)
        return len(body)

    began = time.perf_counter()
    with ThreadPoolExecutor(_NUM_AT_ONCE) as threads:
        sizes = list(threads.map(put, trajectories))
    return _stored(trajectories, time.perf_counter() - began, len(sizes), sum(sizes))


def store_in_sqlite(directory: Path, trajectories: Sized, per_batch: int) -> StoreFigures:
    """Insert rows and bodies in transactions of ``per_batch``, each on disk before the next begins."""
    directory.mkdir()
    with closing(sqlite3.connect(directory / "trajectories.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute(f"CREATE TABLE rows ({', '.join(f'{name} {kind}' for name, kind in _COLUMNS.items())})")
        database.execute("CREATE TABLE bodies (trajectory_id TEXT PRIMARY KEY, body BLOB)")
        for name in _INDEXED:
            database.execute(f"CREATE INDEX by_{name} ON rows ({name})")
        began = time.perf_counter()
        for batch in _batches(trajectories, per_batch):
            database.execute("BEGIN")
            marks = ", ".join("?" * len(_COLUMNS))
            database.executemany(f"INSERT INTO rows VALUES ({marks})", [_row(facts) for facts, _ in batch])
            bodies = [(facts.trajectory_id, _pack(appends)) for facts, appends in batch]
            database.executemany("INSERT INTO bodies VALUES (?, ?)", bodies)
            database.execute("COMMIT")
        seconds = time.perf_counter() - began
    return _stored(trajectories, seconds, 1, _measure_size(directory))  # behind the end, which leaves no journal


def store_in_parquet(directory: Path, trajectories: Sized, per_batch: int) -> StoreFigures:
    """Write files of ``per_batch`` rows with their bodies, each on disk before the next begins."""
    directory.mkdir()
    began = time.perf_counter()
    batches = _batches(trajectories, per_batch)
    for number, batch in enumerate(batches):
        columns = dict(zip(_COLUMNS, zip(*[_row(facts) for facts, _ in batch], strict=True), strict=True))
        table = pa.table({**columns, "body": [_pack(appends) for _, appends in batch]})
        with (directory / f"{number}.parquet").open("wb") as file:
            pq.write_table(table, file, compression={**dict.fromkeys(_COLUMNS, "zstd"), "body": "none"})
            file.flush()
            os.fsync(file.fileno())
    return _stored(trajectories, time.perf_counter() - began, len(batches), _measure_size(directory))


def _pack(appends: Appends) -> bytes:
    records = [encode(record) for records in appends for record in records]
    return zstandard.ZstdCompressor(level=1).compress(msgspec.msgpack.encode(records))


def _row(facts: Facts) -> tuple[str | float | None, ...]:
    return (
        *(facts.trajectory_id, facts.run, facts.split, facts.task_id, facts.task_type, facts.status, facts.cause),
        *(facts.started_at, sum(facts.rewards.values()) if facts.rewards else None, facts.oldest_version),
        *(facts.newest_version, facts.num_steps, facts.is_accepted, ",".join(facts.agents), ",".join(facts.tools)),
        msgspec.json.encode(facts.labels).decode(),
    )


def _batches(trajectories: Sized, size: int) -> list[Sized]:
    return [trajectories[begin : begin + size] for begin in range(0, len(trajectories), size)]


def _stored(trajectories: Sized, seconds: float, num_objects: int, num_bytes: int) -> StoreFigures:
    return StoreFigures(
        num_trajectories=len(trajectories), seconds=seconds, num_objects=num_objects, num_bytes=num_bytes
    )


def _measure_size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())
