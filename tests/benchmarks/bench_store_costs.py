"""Processor time of what enters the store, client and Redis apart: it depends less on other load than speeds do.

The floor of the index is what Redis takes for the same keys as plain commands, read from an index that is full and
written into an empty one: no merging, no lookup, and one process at a time.
"""

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

from bench_table import Figure
from redis import Redis
from store_facts import make_facts
from store_feed import write_logs
from store_fill import seal_facts
from store_peers import store_in_sqlite
from store_servers import run_servers
from store_workload import make_appends

from agent_layer.infra import Keys, batched, open_redis
from agent_layer.recorder import Recorder
from agent_layer.settings import Settings
from agent_layer.shipper.direct import open_direct
from agent_layer.shipper.ship import Shipper
from agent_layer.store.index.commit import commit_segments
from agent_layer.store.index.restore import enter_segments
from agent_layer.store.segments.format import SealedSegment

__all__ = ["measure_store_costs"]

T = TypeVar("T")

NUM_TRAJECTORIES, PER_SEGMENT, NUM_STEPS, NUM_ROUNDS = 2_000, 100, 8, 5
OURS, SINGLY, FLOOR = "many together", "commit.lua, one by one", "plain commands"


class _Cost(NamedTuple):
    """Microseconds of processors a trajectory."""

    client: float
    redis: float

    @property
    def total(self) -> float:
        """Both."""
        return self.client + self.redis


def measure_store_costs(directory: Path, num_trajectories: int = NUM_TRAJECTORIES) -> list[Figure]:
    """Enter the same trajectories in each way, in turns."""
    facts = [make_facts(number, NUM_STEPS) for number in range(num_trajectories)]
    sealed = [seal_facts(facts[at : at + PER_SEGMENT]) for at in range(0, num_trajectories, PER_SEGMENT)]
    trajectories = [(one, make_appends(one)) for one in facts]
    found: dict[str, list[_Cost]] = {}
    gc.freeze()  # who ships in earnest does not hold them all
    with run_servers(directory) as servers:
        for number in range(NUM_ROUNDS):
            for name, cost in _index_costs(servers.settings(directory / "index"), sealed, num_trajectories):
                found.setdefault(name, []).append(cost)
            place, peer = directory / f"ours-{number}", directory / f"sqlite-{number}"
            settings = servers.settings(place, namespace=place.name)
            write_logs(Recorder(settings), [appends for _, appends in trajectories], PER_SEGMENT)
            redis = open_redis(settings)
            shipped = _measure(redis, num_trajectories, lambda settings=settings: _ship(settings))
            inserted = _measure(
                redis, num_trajectories, lambda peer=peer: store_in_sqlite(peer, trajectories, PER_SEGMENT)
            )
            found.setdefault("shipped", []).append(shipped)
            found.setdefault("inserted", []).append(_Cost(inserted.client, 0.0))
    return [*_index_figures(found), *_ship_figures(found)]


def _index_costs(settings: Settings, sealed: list[SealedSegment], num: int) -> Iterator[tuple[str, _Cost]]:
    redis, keys = open_redis(settings), Keys(settings.namespace)
    state: dict[bytes, bytes | dict[bytes, bytes]] = {}
    for name, enter in {SINGLY: commit_segments, OURS: enter_segments}.items():
        redis.flushall(asynchronous=False)

        def enter_each(enter: Callable[..., None] = enter) -> None:
            for one in sealed:
                enter(redis, keys, [one])

        yield name, _measure(redis, num, enter_each)
    for key in redis.scan_iter(match=keys.name("*"), count=1_000):
        kind = redis.type(key)
        if kind in (b"hash", b"string"):
            state[key] = redis.hgetall(key) if kind == b"hash" else redis.get(key)
    redis.flushall(asynchronous=False)
    yield FLOOR, _measure(redis, num, lambda: _write(redis, state))


def _write(redis: Redis, state: dict[bytes, bytes | dict[bytes, bytes]]) -> None:
    for page in batched(state.items(), 512):
        pipeline = redis.pipeline(transaction=False)
        for key, value in page:
            if isinstance(value, bytes):
                pipeline.set(key, value)
            else:
                pipeline.hset(key, mapping=value)
        pipeline.execute()


def _ship(settings: Settings) -> None:
    shipper = Shipper(settings.log_dir, open_direct(settings), threading.Event())
    shipper.ship_pending()
    shipper.close()


def _measure(redis: Redis, num: int, work: Callable[[], T]) -> _Cost:
    def read() -> tuple[float, float]:
        of_redis = redis.info("cpu")
        return time.process_time(), of_redis["used_cpu_user"] + of_redis["used_cpu_sys"]

    before = read()
    work()
    return _Cost(*(1e6 * (end - begin) / num for begin, end in zip(before, read(), strict=True)))


def _index_figures(found: dict[str, list[_Cost]]) -> Iterator[Figure]:
    for peer in (SINGLY, FLOOR):
        for side in _Cost._fields:
            ours, other = (median(getattr(one, side) for one in found[name]) for name in (OURS, peer))
            what = f"store, 100 new trajectories into the index: µs of {side} a trajectory beside {peer}"
            print(f"  {what}: {ours:.0f}, {other:.0f}", file=sys.stderr)
            yield Figure(what, f"{ours:.0f}", f"{other:.0f}", f"{ours / other:.2f}", "")


def _ship_figures(found: dict[str, list[_Cost]]) -> Iterator[Figure]:
    client, redis = (median(getattr(one, side) for one in found["shipped"]) for side in _Cost._fields)
    pairs = zip(found["shipped"], found["inserted"], strict=True)
    ratio = median(other.total / ours.total for ours, other in pairs)
    what = (
        "store, logs of 100 trajectories until queryable, fsync: µs of shipper + Redis a trajectory beside SQLite WAL"
    )
    other = median(one.total for one in found["inserted"])
    print(f"  {what}: {client:.0f} + {redis:.0f}, {other:.0f}", file=sys.stderr)
    yield Figure(what, f"{client:.0f} + {redis:.0f}", f"{other:.0f}", f"{ratio:.2f} x its speed", "≥ 0.5")
