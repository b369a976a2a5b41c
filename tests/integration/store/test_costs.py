"""What maintenance and commits cost, counted in commands and bytes: as much again for as much more, never more."""

from contextlib import contextmanager
from itertools import permutations

import pytest
from msgspec import structs

from agent_layer.schema.reward import Reward, rollout_reward
from agent_layer.store import enter_segments, open_store, read_footer, read_rewards, segment_key

from ...builders import attempt, call, closed_group, sampled
from ...stored import collect_answers, put_segment, write_segment

RICH_CALL = {"agent": "solver", "engine": "http://10.0.0.7:8000", "findings": ["cut: here"]}
ODD_RUNS = ["r", "r:x", "r*", "r?", "r[a-z]", "r\\", "*", "group:r", "batch:r:1", "r:trainer", "größe"]


@pytest.fixture(scope="module")
def redis_url(own_redis_url):
    return own_redis_url


@pytest.fixture
def store(settings):
    return open_store(settings)


class Cost:
    """Commands that Redis served, by name, and the bytes that it sent."""

    commands: dict[str, int]
    num_bytes: int


@contextmanager
def measure_cost(redis):
    """``with measure_cost(redis) as cost``: of the block."""
    cost = Cost()
    redis.config_resetstat()
    yield cost
    cost.commands = {name.removeprefix("cmdstat_"): one["calls"] for name, one in redis.info("commandstats").items()}
    cost.num_bytes = redis.info("stats")["total_net_output_bytes"]


def write_run(store, run, *consumers):
    """A run of one closed group of one attempt, acknowledged by these consumers."""
    group, trajectory = f"g-{run}", f"g-{run}.0-0"
    write_segment(store, *attempt(trajectory, run=run, group_id=group), closed_group(group, trajectory, run=run))
    for consumer in consumers:
        store.redis.sadd(store.keys.acked(run, consumer), group)


def test_a_run_is_kept_by_its_own_consumers_alone_whatever_it_is_called(store):
    for run in ODD_RUNS:
        write_run(store, run, "trainer")
    for run in ODD_RUNS[::2]:
        store.redis.sadd(store.keys.acked(run, "other"), "another group")

    report = store.admin.expire(older_than=1e9)

    assert {run for run, _, _ in report.counts} == set(ODD_RUNS[1::2])
    assert report.num_unread == len(ODD_RUNS[::2])


def test_retention_over_many_runs_passes_the_keys_of_the_server_once(store):
    costs = []
    for num_runs in (10, 40):
        for at in range(num_runs):
            write_run(store, f"{num_runs}-{at}", "trainer")
        with measure_cost(store.redis) as cost:
            store.admin.expire(older_than=1e9, dry_run=True)
        costs.append(cost)
        num_keys = store.redis.dbsize()
        assert cost.commands["scan"] <= 2 + num_keys / 500
    few, many = costs
    assert sum(many.commands.values()) <= 5.5 * sum(few.commands.values())  # 50 runs in place of 10


def make_reward(number, **fields):
    common = {"trajectory_id": "a.0-0", "reward_id": f"w{number}", "run": "r", "at": 10.0 + number, "score": number / 7}
    return Reward(**common | {"scope": "step", "step": number} | fields)


REWARDS = {
    "of steps": make_reward,
    "of agents": lambda number: make_reward(number, scope="agent", step=None, agent=f"agent {number % 5}"),
    "of steps, judged again": lambda number: make_reward(
        number, step=number // 2, supersedes=f"w{number - 1}" if number % 2 else None
    ),
}


@pytest.mark.parametrize("make", REWARDS.values(), ids=REWARDS.keys())
def test_a_reward_for_each_step_costs_the_same_however_many_there_are(store, make):
    write_segment(store, *attempt("a.0-0", status="running", score=0.5))
    costs = []
    for begin in (0, 400):
        write_segment(store, make(begin))
        with measure_cost(store.redis) as cost:
            write_segment(store, make(begin + 1))
        costs.append(cost)
        write_segment(store, *(make(number) for number in range(begin + 2, begin + 400)))
    first, last = costs

    assert last.num_bytes <= 1.1 * first.num_bytes + 100
    assert sum(last.commands.values()) <= 1.1 * sum(first.commands.values())
    assert len(read_rewards(store.redis, store.keys, "a.0-0")) == 801
    assert store.row("a.0-0").reward == 0.5
    assert store.admin.check().findings == []


@pytest.mark.parametrize("part", [{"step": 1}, {"agent": "solver"}], ids=["step", "agent"])
def test_a_judgement_of_a_part_reads_the_same_however_many_others_there_are(store, part):
    calls = [part for name in "ab" for part in call("a.0-0", name, sampled(1), **RICH_CALL)]
    scope = {"scope": next(iter(part)), "step": None} | part
    write_segment(store, *attempt("a.0-0", *calls, score=0.5), make_reward(0, name="ours", **scope))
    costs = []
    for begin in (1, 400):
        write_segment(store, *(make_reward(number) for number in range(begin, begin + 400)))
        with measure_cost(store.redis) as cost:  # a known id appends nothing, so no shipper's commands count
            assert store.reward("a.0-0", 1.0, name="ours", reward_id="w0", **part).score == 0.0
        costs.append(cost)
    first, last = costs

    assert last.commands == first.commands
    assert last.num_bytes <= first.num_bytes + 100


def test_topics_of_rewards_that_the_index_lost_are_found_and_restored(store):
    write_segment(store, *attempt("a.0-0"), *map(make_reward, range(3)))
    topics = store.keys.reward_topics("a.0-0")
    before = store.redis.zrange(topics, 0, -1)
    store.redis.zrem(topics, before[1])

    assert store.admin.check(repair=True).findings != []
    assert store.admin.check().findings == []
    assert store.redis.zrange(topics, 0, -1) == before
    store.admin.reindex(drop=True)
    assert store.redis.zrange(topics, 0, -1) == before


@pytest.mark.parametrize("num_lost", [1, 2], ids=["some", "all"])
def test_a_judgement_of_a_part_supersedes_the_earlier_one_though_the_index_lacks_topics(store, num_lost):
    """An index of before there were topics has none."""
    calls = call("a.0-0", "a", sampled(1))
    write_segment(store, *attempt("a.0-0", *calls, score=0.5), make_reward(0, name="ours", step=0), make_reward(1))
    topics = store.keys.reward_topics("a.0-0")
    store.redis.zrem(topics, *[one for one in store.redis.zrange(topics, 0, -1) if num_lost == 2 or b"ours" in one])

    assert store.reward("a.0-0", 1.0, name="ours", step=0).supersedes == "w0"


def test_a_reward_of_a_step_that_supersedes_one_of_the_rollout_counts_in_any_order(store):
    of_rollout = make_reward(0, scope="rollout", step=None, score=1.0)
    of_step = make_reward(1, supersedes="w0")
    again = make_reward(2, step=1, supersedes="w1")
    for at, order in enumerate(permutations((of_rollout, of_step, again))):
        name = f"a{at}.0-0"
        write_segment(store, *attempt(name, status="running", score=0.25))
        for reward in order:
            write_segment(store, structs.replace(reward, trajectory_id=name))
        rewards = read_rewards(store.redis, store.keys, name)
        assert store.row(name).reward == rollout_reward({}, rewards, None) == 0.25
        assert {one.reward_id for one in rewards} == {f"{name}/r", "w0", "w1", "w2"}
    before = collect_answers(store)
    store.admin.reindex(drop=True)
    assert collect_answers(store) == before
    assert store.admin.check().findings == []


def test_the_embedded_server_keeps_what_belongs_to_an_attempt_in_one_piece_of_memory_each(store):
    records = [*attempt("a.0-0"), make_reward(1), make_reward(2, name="as long as most are", comment="right " * 8)]
    write_segment(store, *records)
    for rebuild in (False, True):
        if rebuild:
            store.admin.reindex(drop=True)
        for key in store.redis.scan_iter(store.keys.trajectory("a.0-0") + "*"):
            assert store.redis.object("encoding", key) in (b"listpack", b"ziplist"), (key, rebuild)


def test_a_row_is_written_once_however_much_it_says(store):
    first = attempt("a.0-0"), call("a.0-0", "a", sampled(1, version=3), **RICH_CALL)
    write_segment(store, *first[0], *first[1])  # what a block has for the first time costs more
    plain, rich = (
        (*attempt("b.0-0"), *call("b.0-0")),
        (*attempt("c.0-0"), *call("c.0-0", "a", sampled(1, version=3), **RICH_CALL)),
    )
    num_writes = []
    for records in (plain, rich):
        with measure_cost(store.redis) as cost:
            write_segment(store, *records)
        num_writes.append(cost.commands["hset"])
    assert num_writes[0] == num_writes[1]
    assert store.row("c.0-0").agents == ["solver"]
    assert store.row("c.0-0").policy_max == 3


def test_rewards_that_an_earlier_version_stored_together_are_read_once(store):
    write_segment(store, *attempt("a.0-0", score=0.5), make_reward(1), make_reward(2))
    together = store.redis.hgetall(store.keys.part_rewards("a.0-0"))
    store.redis.hset(store.keys.rewards("a.0-0"), mapping=together)
    store.redis.delete(store.keys.part_rewards("a.0-0"))

    assert [one.reward_id for one in read_rewards(store.redis, store.keys, "a.0-0")] == ["a.0-0/r", "w1", "w2"]
    assert store.admin.check().findings == []
    write_segment(store, make_reward(2), make_reward(3))
    assert [one.reward_id for one in read_rewards(store.redis, store.keys, "a.0-0")] == ["a.0-0/r", "w1", "w2", "w3"]
    assert store.row("a.0-0").reward == 0.5
    store.admin.delete("a.0-0")
    assert not store.redis.keys(store.keys.name("t", "a.0-0", "*"))


def test_many_new_trajectories_of_a_segment_enter_the_index_together(store):
    name = put_segment(store, *(record for number in range(100) for record in attempt(f"g.{number}-0")))
    sealed = read_footer(store.objects, segment_key(store.keys, name))

    with measure_cost(store.redis) as cost:
        enter_segments(store.redis, store.keys, [sealed])

    assert store.count() == 100
    assert cost.commands["setbit"] + cost.commands["setrange"] < 100, "a bitmap takes the bits of all at once"
