"""A store over servers of each make, and ways to add records without a process."""

from collections.abc import Callable, Iterator
from functools import cache, partial

import pytest
from redis import Redis

from agent_layer.infra.objects.base import ObjectEntry, ObjectStore
from agent_layer.infra.processes.addresses import free_port
from agent_layer.schema.codec import LogRecord, encode
from agent_layer.schema.ids import new_id
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.step import Action, PromptDelta
from agent_layer.settings import Settings
from agent_layer.shipper.direct import store_records
from agent_layer.store import Store, open_store
from agent_layer.store.segments.blobs import BlobLimits
from agent_layer.store.segments.format import StoredRecord

from ..builders import attempt, call, content, sampled
from ..stored import collect_answers, put_segment, write_segment
from ..waiting import wait_until


@pytest.fixture(scope="session")
def started_redis(start_redis):
    """``started_redis(name)``: URL of the one server of this make; Redis 7 is a cluster, of one node."""

    @cache
    def start(name):
        if name != "redis7":
            return start_redis(name)
        ports = [
            "--port",
            str(free_port()),
            "--cluster-port",
            str(free_port()),
        ]  # else the port + 10,000, if there is one
        url = start_redis(name, *ports, "--bind", "127.0.0.1", "--cluster-enabled", "yes")
        with Redis.from_url(url) as redis:
            redis.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            wait_until(lambda: b"cluster_state:ok" in redis.execute_command("CLUSTER", "INFO"))
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
    """``put(*records)``: writes a segment without indexing it; returns its name."""
    return partial(put_segment, store)


@pytest.fixture
def write(store: Store) -> Callable[..., str]:
    """``write(*records)``: writes a segment and commits it, as the shipper does; returns its name."""
    return partial(write_segment, store)


@pytest.fixture
def ship(store: Store) -> Callable[..., str]:
    """``ship(*records, name=…, limits=…)``: stores records like a shipper, with blobs; returns the segment's name."""

    def ship(*records: LogRecord, name: str | None = None, limits: BlobLimits | None = None) -> str:
        name = name or new_id()
        stored = [StoredRecord(one, encode(one)) for one in records]
        store_records(store.redis, store.keys, store.objects, name, stored, limits)
        return name

    return ship


class Watched:
    """The objects of a store, which note each operation; ``before[deed]`` is called once, before that deed."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.requests: list[tuple[str, str]] = []
        self.before: dict[str, Callable[[], object]] = {}

    def blobs(self, deed: str) -> list[str]:
        """Names of blobs with which this was done."""
        return [key.rpartition("/")[2] for done, key in self.requests if done == deed and "/blob/" in key]

    def put(self, key: str, content: bytes) -> None:
        self._note("put", key)
        self._objects.put(key, content)

    def get(self, key: str, offset: int = 0, size: int | None = None) -> bytes:
        self._note("get", key)
        return self._objects.get(key, offset, size)

    def list(self, prefix: str) -> Iterator[str]:
        return self._objects.list(prefix)

    def list_entries(self, prefix: str) -> Iterator[ObjectEntry]:
        return self._objects.list_entries(prefix)

    def list_unfinished(self, prefix: str) -> Iterator[ObjectEntry]:
        return self._objects.list_unfinished(prefix)

    def delete(self, key: str) -> None:
        self._note("delete", key)
        self._objects.delete(key)

    def _note(self, deed: str, key: str) -> None:
        self.requests.append((deed, key))
        kind = "blob" if "/blob/" in key else "segment"
        if act := self.before.pop(f"{deed} {kind}", None):
            act()


@pytest.fixture
def watched(store: Store) -> Watched:
    """The store's objects from now on."""
    store.objects = Watched(store.objects)
    return store.objects


def make_attempt(tid, at=100.0, score=1.0, run="r", num_choices=1):
    """Return the records of one accepted attempt with two calls."""
    own = {"run": run, "agent": "solver"}
    answer = Action(response_token_ids=TokenIds([3, 4]), logprobs=Logprobs([-0.5, -1.0]), policy_versions=[(4, 2)])
    later = sampled(6, version=5, logprob=-2.0)
    first = PromptDelta(delta=TokenIds([1, 2]))
    follow_up = PromptDelta(delta=TokenIds([5]), parent_call=f"{tid}/a", prefix_length=4)
    parts = [
        *call(tid, "a", answer, at=at + 1, prompt=first, **own),
        content(tid, b'"state"'),
        *call(tid, "b", *[later] * num_choices, at=at + 3, prompt=follow_up, **own),
    ]
    task = {"task_type": "math", "labels": {"k": "v"}, "group_id": "g"}
    return attempt(tid, *parts, at=at, score=score, run=run, **task)


@pytest.fixture(name="make_attempt")
def _make_attempt() -> Callable[..., list[LogRecord]]:
    """``make_attempt(trajectory_id, at=100.0, score=1.0, run="r", num_choices=1)``: its records."""
    return make_attempt


@pytest.fixture(name="collect_answers")
def _collect_answers() -> Callable[..., tuple[object, ...]]:
    """``collect_answers(store)``: every answer of the store, for comparison."""
    return collect_answers
