"""This file holds a store over each kind of object store, and the ways records get into it without a process."""

from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

from agent_layer.schema.codec import LogRecord, encode, owner_of
from agent_layer.schema.ids import new_id
from agent_layer.settings import Settings
from agent_layer.shipper.direct import store_records
from agent_layer.store import Store, open_store
from agent_layer.store.blobs import BlobLimits
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.rebuild import index_segment
from agent_layer.store.segments import StoredRecord, build_segment, segment_key


@pytest.fixture
def store(objects_settings: Settings) -> Store:
    """An empty store."""
    return open_store(objects_settings)


@pytest.fixture
def put(store: Store) -> Callable[..., str]:
    """``put(*records)``: writes a segment that nobody has indexed; gives its name."""

    def put(*records: LogRecord) -> str:
        owned: defaultdict[str, list[StoredRecord]] = defaultdict(list)
        for record in records:
            owned[owner_of(record)].append(StoredRecord(record, encode(record)))
        name = new_id()
        content, _ = build_segment(name, owned)
        store.objects.put(segment_key(store.keys, name), content)
        return name

    return put


@pytest.fixture
def write(store: Store, put: Callable[..., str]) -> Callable[..., str]:
    """``write(*records)``: writes a segment and commits it, as the shipper does; gives its name."""

    def write(*records: LogRecord) -> str:
        name = put(*records)
        index_segment(store.redis, store.keys, store.objects, name)
        return name

    return write


@pytest.fixture
def ship(store: Store) -> Callable[..., str]:
    """``ship(*records, name=…, limits=…)``: stores records as a shipper does, with blobs; gives the segment's name."""

    def ship(*records: LogRecord, name: str | None = None, limits: BlobLimits | None = None) -> str:
        name = name or new_id()
        stored = [StoredRecord(one, encode(one)) for one in records]
        store_records(store.redis, store.keys, store.objects, name, stored, limits)
        return name

    return ship


class Watched:
    """The objects of a store, noting what is asked of them; ``before[deed]`` is called once, before that deed."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.asked: list[tuple[str, str]] = []
        self.before: dict[str, Callable[[], object]] = {}

    def blobs(self, deed: str) -> list[str]:
        """Names of blobs with which this was done."""
        return [key.rpartition("/")[2] for done, key in self.asked if done == deed and "/blob/" in key]

    def put(self, key: str, content: bytes) -> None:
        self._note("put", key)
        self._objects.put(key, content)

    def get(self, key: str, offset: int = 0, size: int | None = None) -> bytes:
        self._note("get", key)
        return self._objects.get(key, offset, size)

    def list(self, prefix: str) -> Iterator[str]:
        return self._objects.list(prefix)

    def delete(self, key: str) -> None:
        self._note("delete", key)
        self._objects.delete(key)

    def _note(self, deed: str, key: str) -> None:
        self.asked.append((deed, key))
        kind = "blob" if "/blob/" in key else "segment"
        if act := self.before.pop(f"{deed} {kind}", None):
            act()


@pytest.fixture
def watched(store: Store) -> Watched:
    """The store's objects from now on."""
    store.objects = Watched(store.objects)
    return store.objects
