"""No call of a script keeps Redis, and so everybody's heartbeats, for long.

What counts is the server's processor time beside that of a yardstick, a script of known length, in the same turns:
which machine it is, and what else that does at the moment, say nothing about a script, so these tests need no machine
of their own. How long heartbeats wait in the end is in bench_store_beats.py.
"""

import struct
from collections import Counter, defaultdict
from typing import get_args

import msgspec
import pytest

from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.keys import Keys
from agent_layer.schema.codec import encode, record_owner
from agent_layer.schema.ids import new_id
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Group, Outcome
from agent_layer.schema.step import Action, StepPart
from agent_layer.store.consumers.claims import Consumer, acknowledge
from agent_layer.store.index.aggregate import (
    By,
    count_by_bucket,
    count_by_fields,
    count_trajectories,
    find_newest_starts,
    summarise_trajectories,
)
from agent_layer.store.index.commit import commit_segments
from agent_layer.store.index.deletion import apply_tombstones
from agent_layer.store.index.index import Index
from agent_layer.store.index.search import find_trajectories
from agent_layer.store.maintenance.index_audit import count_orphan_bits, find_inconsistent_rows
from agent_layer.store.segments.format import StoredRecord, build_segment

from ...watching import WatchedRedis

NUM_TRAJECTORIES, NUM_CALLS = 256, 8
NUM_BLOCKS, BLOCK = 72, 2_048
MAX_ENTRIES = 256


class Row(msgspec.Struct):
    """As commit.lua is given it."""

    summary: dict[str, object]
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
        rows = sum(1 + len(one.summary.get("calls", ())) + len(one.rewards) for one in self.trajectories)
        return rows + len(self.policies) + len(self.trained) + len(self.groups)


def make_attempt(name: str, num_calls: int, number: int = 0):
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


def seal_records(records):
    owned = defaultdict(list)
    for record in records:
        owned[record_owner(record)].append(StoredRecord(record, encode(record)))
    return build_segment(new_id(), owned)


def fill_block(redis, keys) -> list[str]:
    """Fill one block with trajectories of one call each; return their ids."""
    records = (record for number in range(BLOCK) for record in make_attempt(f"n{number}", 1, number))
    commit_segments(redis, keys, [seal_records(records)[1]])
    return [f"n{number}-0" for number in range(BLOCK)]


def copy_block(redis, keys) -> None:
    """Make more blocks of the first one, each with later starts."""
    begin = keys.in_block(0, "")
    starts = struct.unpack(f"<{BLOCK}d", redis.get(keys.in_block(0, "started_at")))
    least, greatest, *ends = struct.unpack("<10d", redis.hget(keys.zones, 0))
    names = list(redis.scan_iter(match=f"{begin}*"))
    commands = redis.pipeline(transaction=False)
    for block in range(1, NUM_BLOCKS):
        for key in names:
            commands.copy(key, keys.in_block(block, key.decode().removeprefix(begin)))
        later = [start + block * BLOCK for start in starts]
        commands.set(keys.in_block(block, "started_at"), struct.pack(f"<{BLOCK}d", *later))
        ends_now = struct.pack("<10d", least + block * BLOCK, greatest + block * BLOCK, *ends)
        commands.hset(keys.zones, block, ends_now)
    for key in redis.scan_iter(match=keys.blocks_with("*")):
        commands.set(key, b"\xff" * (NUM_BLOCKS // 8))
    commands.execute()


@pytest.fixture(scope="module")
def index(fault_redis, module_settings):
    """An index of many blocks, for tests that read it."""
    with open_redis(module_settings.model_copy(update={"redis_url": fault_redis.url})) as redis:
        watched, keys = WatchedRedis(connection_pool=redis.connection_pool), Keys(module_settings.namespace)
        fill_block(watched, keys)
        copy_block(watched, keys)
        yield Index(watched, keys)
        redis.flushall()


def test_a_large_segment_is_committed_in_small_scripts(watched, keys):
    records = [one for number in range(NUM_TRAJECTORIES) for one in make_attempt(f"m{number}", NUM_CALLS, number)]
    records += make_attempt("long", 5_000)
    own = {"run": "run-0", "task_id": "t"}
    records += [Group(group_id=f"g{n}", closed_at=float(n), trajectory_ids=[f"m{n}-0"], **own) for n in range(600)]
    _, sealed = seal_records(records)
    first = watched.longest(lambda: commit_segments(watched, keys, [sealed]))
    again = watched.longest(lambda: commit_segments(watched, keys, [sealed], again=True))

    weights = [msgspec.msgpack.decode(given, type=Batch).weight for given in watched.given if given[:1] == b"\x86"]
    print(f"commit {first:.2f} yards, again {again:.2f}, at most {max(weights)} entries of {len(weights)}")  # noqa: T201
    assert max(weights) <= MAX_ENTRIES
    assert len(weights) >= (NUM_TRAJECTORIES * (NUM_CALLS + 2) + 5_600) / MAX_ENTRIES
    assert max(first, again) <= watched.max_allowed


def test_no_audit_or_deletion_keeps_redis_for_long(watched, keys):
    index, ids = Index(watched, keys), fill_block(watched, keys)
    doomed = iter(ids)
    watched.assert_short(
        {
            "audit": lambda: list(find_inconsistent_rows(index, ids[:512])),
            "strays": lambda: count_orphan_bits(watched, keys),
            "forget": lambda: apply_tombstones(watched, keys, [next(doomed) for _ in range(256)], 1.0),
            "acknowledge": lambda: acknowledge(watched, keys, Consumer("c", "r"), ids[:512]),
        },
    )


def test_no_search_or_count_keeps_redis_for_long(index):
    rewarded, sampled = {"reward": (0.1, 0.9)}, {"policy": (0, 48)}
    label = {"labels": {"team": "1"}, "run": "run-1"}
    index.redis.assert_short(
        {
            "find newest": lambda: find_trajectories(index, {}, limit=512),
            "find oldest": lambda: find_trajectories(index, {}, "oldest", 512),
            "find by reward": lambda: find_trajectories(index, {"policy": (10, 40)}, "reward", 512),
            "find by policy": lambda: find_trajectories(index, {"reward": (0.2, 0.9)}, "policy", 512),
            "find by label": lambda: find_trajectories(index, label, "oldest", 512),
            "count": lambda: count_trajectories(index, {"accepted": True}),
            "count by numbers": lambda: count_trajectories(index, {**sampled, "since": 0.0}),
            "count by fields": lambda: count_by_fields(index, get_args(By), {}),
            "count by bucket": lambda: count_by_bucket(index, rewarded),
            "tally": lambda: summarise_trajectories(index, ["policy"], {}),
            "tally by numbers": lambda: summarise_trajectories(index, ["policy"], {**rewarded, **sampled}),
        },
    )


def test_pages_of_blocks_add_up(index):
    num, counts = count_by_fields(index, ["run", "agent", "policy"], {})
    assert num == NUM_BLOCKS * BLOCK
    assert counts["run"] == Counter(f"run-{number % 3}" for number in range(BLOCK) for _ in range(NUM_BLOCKS))
    last = NUM_BLOCKS * BLOCK - 1
    assert sorted(find_newest_starts(index, "run").values()) == [last - 2.0, last - 1.0, float(last)]
    assert counts["policy"] == Counter(number % 50 for number in range(BLOCK) for _ in range(NUM_BLOCKS))
    (line,) = summarise_trajectories(index, [], {"since": float(BLOCK)}, success=0.5)
    assert line.count == (NUM_BLOCKS - 1) * BLOCK
    assert line.num_rewarded == line.count
