"""No call of a script keeps Redis, and so everybody's heartbeats, for long: measured by the server itself.

What a script takes is read from the server's slow log, as the least of several calls that do the same: what else the
machine does at that moment says nothing about a script. How long heartbeats wait is in bench_store_beats.py.
"""

from collections import defaultdict

import msgspec
import pytest
from redis import Redis

from agent_layer.schema.codec import encode, owner_of
from agent_layer.schema.group import Group
from agent_layer.schema.ids import new_id
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Action, StepPart
from agent_layer.store.claims import Consumer, acknowledge
from agent_layer.store.clients import open_redis
from agent_layer.store.commit import commit_segments
from agent_layer.store.filing import find_misfiled
from agent_layer.store.filters import conditions_of
from agent_layer.store.index import Index, seek
from agent_layer.store.query import _MOST_BLOCKS
from agent_layer.store.segments import StoredRecord, build_segment
from agent_layer.store.strays import count_strays
from agent_layer.store.summaries import _BLOCKS_AT_ONCE
from agent_layer.store.tombstones import forget

LONGEST_MS = 10.0
NUM_TRAJECTORIES, NUM_CALLS = 256, 8
NUM_BLOCKS, BLOCK = 4, 2_048
NUM_TRIES = 5
MOST_ENTRIES = 256


class WatchedRedis(Redis):
    """Keeps what commit.lua was given."""

    def execute_command(self, *args, **options):
        if args[0] == "EVALSHA" and isinstance(args[-1], bytes) and len(args) == 5:
            self.__dict__.setdefault("batches", []).append(args[-1])
        return super().execute_command(*args, **options)


class Row(msgspec.Struct):
    """As commit.lua is given it."""

    said: dict[str, object]
    rewards: dict[str, msgspec.Raw]


class Batch(msgspec.Struct):
    """As commit.lua is given it."""

    trajectories: list[Row]
    policies: list[msgspec.Raw]
    trained: list[msgspec.Raw]
    groups: list[msgspec.Raw]

    @property
    def weight(self) -> int:
        """Rows, calls and rewards that one script merges."""
        rows = sum(1 + len(one.said.get("calls", ())) + len(one.rewards) for one in self.trajectories)
        return rows + len(self.policies) + len(self.trained) + len(self.groups)


class Watch:
    """What scripts took on a server of our own."""

    def __init__(self, redis) -> None:
        self.redis = redis
        redis.config_set("slowlog-log-slower-than", 0)
        redis.config_set("slowlog-max-len", 100_000)

    def longest_ms(self, act) -> float:
        """The longest script of those that ``act`` runs; of several times, the one with the least."""
        return min(self._once(act) for _ in range(NUM_TRIES))

    def _once(self, act) -> float:
        self.redis.slowlog_reset()
        act()
        took = [one["duration"] / 1_000 for one in self.redis.slowlog_get(100_000) if one["command"][:4] == b"EVAL"]
        assert took, "no script ran"
        return max(took)


@pytest.fixture
def watch(own_redis, settings):
    """A server that nobody else uses."""
    with open_redis(settings.model_copy(update={"redis_url": own_redis.url})) as redis:
        yield Watch(redis)


def attempt_of(name: str, num_calls: int, number: int = 0):
    """One trajectory with everything that a row can have."""
    own = {"trajectory_id": f"{name}-0", "run": f"run-{number % 3}"}
    yield AttemptStarted(
        **own,
        rollout_id=name,
        attempt=0,
        task_id=f"task-{number // 8}",
        task_type=("math", "code")[number % 2],
        group_id=f"g{number // 8}",
        started_at=float(number),
        labels={"team": str(number % 5), "suite": str(number % 7)},
        input_hash=f"{number // 8:064d}",
        env="env",
        env_version="1",
    )
    for call in range(num_calls):
        part = {**own, "call_id": f"{name}/{call}", "source": "gateway", "agent": ("solver", "judge")[call % 2]}
        yield StepPart(**part, phase="start", at=number + 1.0)
        action = Action(policy_versions=[(number % 50, 1)])
        yield StepPart(**part, phase="end", at=number + 2.0, actions=[action], status="ok")
    yield Reward(**own, reward_id=f"{name}/r", at=number + 3.0, score=(number % 101) / 100)
    yield Outcome(**own, status="completed", ended_at=number + 4.0, num_calls=num_calls)
    yield Accepted(**own, rollout_id=name, accepted_at=number + 5.0)


def sealed_of(records):
    owned = defaultdict(list)
    for record in records:
        owned[owner_of(record)].append(StoredRecord(record, encode(record)))
    return build_segment(new_id(), owned)


def commit_many(redis, keys, num_trajectories: int) -> list[str]:
    """Trajectories of one call each, in blocks that are full; gives their ids."""
    records = (record for number in range(num_trajectories) for record in attempt_of(f"n{number}", 1, number))
    commit_segments(redis, keys, [sealed_of(records)[1]])
    return [f"n{number}-0" for number in range(num_trajectories)]


def test_a_large_segment_is_committed_in_small_scripts(watch, keys):
    records = [one for number in range(NUM_TRAJECTORIES) for one in attempt_of(f"m{number}", NUM_CALLS, number)]
    records += attempt_of("long", 5_000)
    own = {"run": "run-0", "task_id": "t"}
    records += [Group(group_id=f"g{n}", closed_at=float(n), trajectory_ids=[f"m{n}-0"], **own) for n in range(600)]
    _, sealed = sealed_of(records)
    watched = WatchedRedis(connection_pool=watch.redis.connection_pool)

    first = watch.longest_ms(lambda: commit_segments(watched, keys, [sealed]))
    again = watch.longest_ms(lambda: commit_segments(watched, keys, [sealed], again=True))

    weights = [msgspec.msgpack.decode(batch, type=Batch).weight for batch in watched.batches]
    print(f"commit {first:.1f} ms, again {again:.1f} ms, at most {max(weights)} entries of {len(weights)}")  # noqa: T201
    assert max(weights) <= MOST_ENTRIES
    assert len(weights) > 2 * NUM_TRIES * (NUM_TRAJECTORIES * (NUM_CALLS + 2) + 5_600) / MOST_ENTRIES * 0.9
    assert max(first, again) <= LONGEST_MS


def test_no_search_count_audit_or_deletion_keeps_redis_for_long(watch, keys):
    """Scans look into a few full blocks again and again: that is as much work as into many."""
    redis, index = watch.redis, Index(watch.redis, keys)
    ids = commit_many(redis, keys, NUM_BLOCKS * BLOCK)
    many, some = ([*range(NUM_BLOCKS)] * (most // NUM_BLOCKS) for most in (_MOST_BLOCKS, _BLOCKS_AT_ONCE))
    doomed = iter(ids)

    def find(column="started_at", limit=512, **filters):
        sought = seek(conditions_of(filters), many)
        return lambda: index.find(msgspec.structs.replace(sought, column=column, limit=limit))

    def tally(**filters):
        return lambda: index.tally(msgspec.structs.replace(seek(conditions_of(filters), some), by="policy_max"))

    acts = {
        "find newest": find(),
        "find by reward": find("reward", policy=(10, 40)),
        "find by policy": find("policy_max", reward=(0.2, 0.9)),
        "find nothing among many": find("reward", reward=(0.0001, 0.0002), policy=(0, 49), accepted=True),
        "find by label": find(labels={"team": "1"}, run="run-1"),
        "count": lambda: index.count(seek(conditions_of({"accepted": True}), some)),
        "count by numbers": lambda: index.count(seek(conditions_of({"policy": (0, 49), "since": 0.0}), some)),
        "tally": tally(),
        "tally by numbers": tally(reward=(0.1, 0.9), policy=(0, 49)),
        "audit": lambda: list(find_misfiled(index, ids[:512])),
        "strays": lambda: count_strays(redis, keys),
        "forget": lambda: forget(redis, keys, [next(doomed) for _ in range(256)], 1.0),
        "acknowledge": lambda: acknowledge(redis, keys, Consumer("c", "r"), ids[:512]),
    }
    took = {name: watch.longest_ms(act) for name, act in acts.items()}

    print({name: round(longest, 1) for name, longest in took.items()})  # noqa: T201  # figures for who looks
    assert {name: longest for name, longest in took.items() if longest > LONGEST_MS} == {}
