"""This file holds a store over each kind of object store, and the way records get into it without a shipper."""

from collections import defaultdict
from collections.abc import Callable

import pytest

from agent_layer.schema.codec import LogRecord, encode, owner_of
from agent_layer.schema.ids import new_id
from agent_layer.settings import Settings
from agent_layer.store import Store, open_store
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
