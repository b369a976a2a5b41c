"""This file holds a store over servers of each make, and the way records get into it without a shipper."""

import time
from collections import defaultdict
from collections.abc import Callable
from functools import cache

import pytest
from redis import Redis

from agent_layer.local.addresses import free_port
from agent_layer.schema.codec import LogRecord, encode, owner_of
from agent_layer.schema.ids import new_id
from agent_layer.settings import Settings
from agent_layer.store import Store, open_store
from agent_layer.store.rebuild import index_segment
from agent_layer.store.segments import StoredRecord, build_segment, segment_key


@pytest.fixture(scope="session")
def started_redis(start_redis):
    """``started_redis(name)``: URL of the one server of this make; Redis 7 is a cluster, of one node."""

    @cache
    def start(name):
        if name != "redis7":
            return start_redis(name)
        url = start_redis(name, "--port", str(free_port()), "--bind", "127.0.0.1", "--cluster-enabled", "yes")
        with Redis.from_url(url) as redis:
            redis.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            while b"cluster_state:ok" not in redis.execute_command("CLUSTER", "INFO"):
                time.sleep(0.01)
        return url

    return start


@pytest.fixture
def redis_url(servers, redis_programs, started_redis) -> str:
    """A server of the test's make; where there is no Redis 7, the carried one, and one test says so."""
    _, redis = servers
    return started_redis(redis if redis in redis_programs else "carried")


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
