"""The recording: a store and the reports of its runs in one file, packed and opened here.

It is a tar of the objects and of ``runs/RUN/progress.jsonl``, packed by zstd. Stores pack each trajectory by itself,
which keeps them small only up to a point: trajectories of one run resemble each other. So the recording has one segment
whose frames are hardly packed, and is packed as a whole, to a tenth. An index is not part of it: a rebuild makes it, so
a recording opens as long as segments can be read.
"""

import io
import tarfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import zstandard

from agent_layer.infra import Keys, ObjectStore, temporary_home
from agent_layer.schema import AttemptStarted, LogRecord, PolicyVersion, decode, encode
from agent_layer.settings import Settings
from agent_layer.store import (
    SegmentBuilder,
    Store,
    StoredRecord,
    list_segments,
    open_store,
    read_chunk,
    read_footer,
    segment_key,
    segment_name,
)

RECORDING: Final = Path(__file__).parent / "recording.tar.zst"
_LEVEL: Final = 19
_HARDLY: Final = -100
"""Level of zstd that copies what it finds, so that the whole can be packed."""
_OBJECTS, _RUNS = "objects", "runs"


@contextmanager
def open_recording(settings: Settings, recording: Path = RECORDING) -> Generator[tuple[Settings, Store]]:
    """Open a recording as a store of its own during the block.

    Args:
        settings: of the user; what they say about stores is left alone.
        recording: the file.

    Returns: settings and store in a temporary directory, with a Redis that ends with this process or the block.
    """
    with temporary_home("agent-layer-demo-") as home:
        unpacked = io.BytesIO(zstandard.ZstdDecompressor().decompress(recording.read_bytes()))
        with tarfile.open(fileobj=unpacked) as archive:
            archive.extractall(home, filter="data")
        run = next(path.name for path in sorted((home / _RUNS).iterdir()))
        unset = dict.fromkeys(("redis_url", "reader_redis_url", "objects_url", "ingest_url"))
        ours = settings.model_copy(update={**unset, "dir": home, "namespace": "default", "run": run})
        store = open_store(ours)
        store.admin.reindex()
        yield ours, store


def pack_recording(keys: Keys, objects: ObjectStore, runs: Path, recording: Path = RECORDING) -> int:
    """Pack a store and the reports of its runs into a recording; return its size in bytes.

    Names of machines and directories are replaced.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for key, content in _list_objects(keys, objects):
            _add(archive, f"{_OBJECTS}/{key}", content)
        for report in sorted(runs.glob("*/progress.jsonl")):
            _add(archive, f"{_RUNS}/{report.parent.name}/{report.name}", report.read_bytes())
    return recording.write_bytes(zstandard.ZstdCompressor(level=_LEVEL).compress(packed.getvalue()))


def _list_objects(keys: Keys, objects: ObjectStore) -> Iterator[tuple[str, bytes]]:
    """Yield the objects, all segments as one."""
    segments = list_segments(keys, objects)
    records: dict[str, dict[bytes, StoredRecord]] = {}
    for segment in segments:
        for chunk in read_footer(objects, segment).footer.chunks:
            ours = records.setdefault(chunk.owner, {})
            ours |= {one: _stripped(one) for one in read_chunk(objects, segment, chunk)}
    builder = SegmentBuilder(_HARDLY)
    for owner, ours in records.items():
        builder.add(owner, list(ours.values()))
    name = next(filter(None, map(segment_name, reversed(segments))))
    yield segment_key(keys, name), builder.finish(name)[0]
    for key in sorted(set(objects.list("")) - set(segments)):
        yield key, objects.get(key)


def _stripped(content: bytes) -> StoredRecord:
    record = decode(content)
    assert isinstance(record, LogRecord)
    if isinstance(record, PolicyVersion):
        record = msgspec.structs.replace(record, location=f"weights/{record.run}/{record.number}")
    elif isinstance(record, AttemptStarted) and record.worker:
        record = msgspec.structs.replace(record, worker=f"worker-{record.worker.partition('-')[2]}")
    else:
        return StoredRecord(record, content)
    return StoredRecord(record, encode(record))


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
