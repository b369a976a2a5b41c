"""A search returns the same trajectories as a plain filter over everything, page by page."""

import math
import random
from dataclasses import replace
from itertools import islice, product

import pytest
from hypothesis import HealthCheck, example, given, settings as hypothesis_settings, strategies as st
from redis import Redis
from redis.client import Pipeline

from agent_layer.errors import BadInputError
from agent_layer.infra import batched
from agent_layer.store.index.deletion import apply_tombstones
from agent_layer.store.index.index import BLOCK, IDS_TOGETHER

from ...profiles import num_examples

NUM_TRAJECTORIES = 300


def pages(store, wanted, order, limit):
    cursor = None
    while True:
        page = store.query(**wanted, order=order, limit=limit, cursor=cursor)
        assert len(page.items) == limit or page.cursor is None
        yield from [row.trajectory_id for row in page.items]
        if page.cursor is None:
            return
        cursor = page.cursor


def test_a_search_answers_what_a_plain_filter_would(full_store, models):
    @hypothesis_settings(max_examples=num_examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(models.requests, st.sampled_from(models.orders), st.integers(1, 60))
    def check(wanted, order, limit):
        assert list(pages(full_store, wanted, order, limit)) == models.answer(wanted, order)

    check()


def test_every_filter_alone_answers_what_a_plain_filter_would(full_store, models):
    for request in [{}, {"run": "r"}, {"task": "t1"}, {"reward": (1.0, None)}, {"policy": (8, 8)}, {"accepted": False}]:
        for order in models.orders:
            assert list(pages(full_store, request, order, 7)) == models.answer(request, order), (request, order)


def test_an_index_of_many_blocks_answers_what_a_plain_filter_would(store, write, models):
    many = list(models.make(seed=5, num_models=4_200, spread=3))
    write(*(record for model in many for record in model.records()))
    chance = random.Random(6)

    for _ in range(40):
        fields = {"task_type": chance.choice([None, "math"]), "reward": chance.choice([None, (0.3, 0.4), (1.0, None)])}
        fields |= {"policy": chance.choice([None, (3, 4)]), "labels": chance.choice([None, {"team": "a"}])}
        order, limit = chance.choice(models.orders), chance.choice([7, 400])
        first = store.query(**fields, order=order, limit=limit)
        second = store.query(**fields, order=order, limit=limit, cursor=first.cursor) if first.cursor else None
        given = [row.trajectory_id for page in (first, second) if page for row in page.items]
        assert given == models.answer(fields, order, many)[: 2 * limit], (fields, order)
    assert store.explain().num_blocks == 3


def write_in_blocks(store, write, many, size):
    """Commit ``size`` trajectories to each block."""
    for number, those in enumerate(batched(many, size)):
        store.redis.set(store.keys.name("ordinals"), number * BLOCK)
        write(*(record for model in those for record in model.records()))


@pytest.mark.parametrize("sizes", ["as they are", "small"])
def test_pages_and_counts_of_scattered_blocks_are_those_of_a_plain_filter(store, write, models, monkeypatch, sizes):
    if sizes == "small":  # each way of reading takes turns with the others
        for name, size in {"_DENSE": 8, "FEW_MEMBERS": 20, "_MAX_PICKED": 9, "_MAX_BUCKETS": 5}.items():
            monkeypatch.setattr(f"agent_layer.store.index.members.{name}", size)
        for name, size in {"_FIRST_BLOCKS": 1, "_MAX_BLOCKS": 6, "FEW_MEMBERS": 20, "_MAX_TESTED": 50}.items():
            monkeypatch.setattr(f"agent_layer.store.index.bounded_search.{name}", size)
    many = list(models.make(seed=11, num_models=900, spread=6))
    if sizes == "small":  # and blocks differ in their best rewards
        many.sort(key=lambda one: one.reward or 0.0)
    write_in_blocks(store, write, many, 40)
    apply_tombstones(store.redis, store.keys, [one.id for one in many[::9]], 1.0)
    left = [one for number, one in enumerate(many) if number % 9]

    @hypothesis_settings(max_examples=num_examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(models.requests, st.sampled_from(models.orders), st.sampled_from([3, 32, 400]))
    @example({}, "reward", 32)  # most requests that are drawn have small answers
    @example({"task_type": "math"}, "reward", 32)
    @example({"reward": (0.0, 1.0)}, "newest", 32)
    def check(wanted, order, limit):
        expected = models.answer(wanted, order, left)
        assert list(islice(pages(store, wanted, order, limit), 6 * limit)) == expected[: 6 * limit]
        assert store.count(**wanted) == len(models.answer(wanted, "newest", left))

    check()


@pytest.mark.parametrize("limit", [7, 200])
def test_members_whose_ids_were_lost_take_no_place_on_a_page(full_store, models, limit):
    redis, keys = full_store.redis, full_store.keys
    left = [one for one in models.all if int(redis.hget(keys.trajectory(one.id), "ordinal")) >= IDS_TOGETHER]
    assert redis.delete(keys.in_block(0, "ids:0")) == 1

    for order in models.orders:
        assert list(islice(pages(full_store, {}, order, limit), 40)) == models.answer({}, order, left)[:40]


def test_a_page_takes_few_turns_with_redis(store, write, models, monkeypatch):
    """The map of blocks, bitmaps, those of buckets or more, numbers, rows."""
    many = list(models.make(seed=12, num_models=1_600, spread=30))
    write_in_blocks(store, write, sorted(many, key=lambda one: one.started_at), 40)
    store.query(order="reward", limit=1)  # a server that does not know the script yet takes more turns
    turns = []
    for kind, name in ((Redis, "execute_command"), (Pipeline, "execute")):
        run = getattr(kind, name)

        def count(client, *given, run=run, **named):
            if client.connection_pool is store.redis.connection_pool:  # not another thread's
                turns.append(given[:2])
            return run(client, *given, **named)

        monkeypatch.setattr(kind, name, count)

    requests = [{}, {"run": "s", "split": "eval"}, {"agent": "judge", "reward": (0.5, None)}, {"tool": "search"}]
    for wanted, order in product(requests, ["newest", "oldest", "reward"]):
        turns.clear()
        assert len(store.query(**wanted, order=order, limit=8).items) == 8
        assert len(turns) <= 5, (wanted, order, turns)


def test_new_trajectories_do_not_disturb_pages_that_follow(full_store, write, models):
    first = full_store.query(limit=10)
    newer = replace(models.all[0], id="new-0", started_at=9_999.0)
    write(*newer.records())

    second = full_store.query(limit=10, cursor=first.cursor)

    assert [row.trajectory_id for row in first.items + second.items] == models.answer({}, "newest")[:20]


def test_a_cursor_holds_when_its_trajectory_has_left(full_store, models):
    first = full_store.query(limit=10)
    apply_tombstones(full_store.redis, full_store.keys, [first.items[-1].trajectory_id], 1.0)

    second = full_store.query(limit=10, cursor=first.cursor)

    assert [row.trajectory_id for row in second.items] == models.answer({}, "newest")[10:20]


@pytest.mark.parametrize("limit", [30, 299, 300, 10**30])
def test_a_long_answer_is_put_together_from_several_searches(full_store, models, monkeypatch, limit):
    monkeypatch.setattr("agent_layer.store.index.search.MAX_SEARCH", 7)

    for order in models.orders:
        page = full_store.query(order=order, limit=limit)

        assert [row.trajectory_id for row in page.items] == models.answer({}, order)[:limit]
        assert bool(page.cursor) == (len(models.answer({}, order)) > limit)


def test_rewards_beyond_all_measure_are_found(store, write, models):
    (model,) = models.make(1, num_models=1)
    judged = replace(model, status="completed", cause=None)
    huge, small = replace(judged, id="huge.0-0", reward=1e308), replace(judged, id="small.0-0", reward=-1e308)
    write(*huge.records(), *small.records())

    first = store.query(order="reward", limit=1)

    assert [row.trajectory_id for row in first.items] == ["huge.0-0"]
    assert [row.trajectory_id for row in store.query(order="reward", cursor=first.cursor).items] == ["small.0-0"]
    assert [row.trajectory_id for row in store.query(reward=(1e308, None)).items] == ["huge.0-0"]
    assert store.count(reward=(-1e308, 1e308)) == 2


@pytest.mark.parametrize("huge", [2**63, 10**400], ids=["64 bits", "401 digits"])
def test_ends_beyond_all_measure_are_open_ends_or_none_at_all(full_store, models, huge):
    everyone = models.answer({"policy": (0, None)}, "newest")
    for wanted in ({"step": huge}, {"policy": (huge, None)}, {"policy": (None, -huge)}, {"reward": (huge, None)}):
        assert (full_store.count(**wanted), full_store.query(**wanted).items) == (0, [])
    for wanted in ({"policy": (None, huge)}, {"policy": (-huge, huge)}):
        assert [row.trajectory_id for row in full_store.query(**wanted, limit=999).items] == everyone


def test_labels_whose_names_hold_an_equals_sign_are_told_apart(store, write, models):
    (model,) = models.make(1, num_models=1)
    attributes = {"x.0-0": {"a=b": "c"}, "x.1-0": {"a": "b=c"}, "x.2-0": {"a\0": "b=c"}}
    write(*(record for id_, labels in attributes.items() for record in replace(model, id=id_, labels=labels).records()))

    for id_, labels in attributes.items():
        assert [row.trajectory_id for row in store.query(labels=labels).items] == [id_]
    assert store.admin.check().findings == []


def test_what_is_entered_again_leaves_what_it_was_filed_under(store, write, models):
    (model,) = models.make(1, num_models=1)
    for status, cause in (("running", None), ("failed", "infra")):
        write(*replace(model, id="x.0-0", status=status, cause=cause, accepted=False).records())

    assert [row.status for row in store.query().items] == ["failed"]
    assert (store.count(status="running"), store.query(status="running").items) == (0, [])


def test_a_version_that_no_trainer_makes_does_not_spoil_what_all_others_ask(store, write, models):
    (model,) = models.make(1, num_models=1)
    write(*replace(model, id="x.0-0", versions=[2**63 - 1], agents=["a"], tools=[""]).records())

    assert [row.policy_max for row in store.query().items] == [2**53]
    assert store.count(policy=(2**53, None)) == 1


@pytest.mark.parametrize(
    ("wanted", "subject"),
    [
        ({"order": "best"}, "order 'best'"),
        ({"limit": 0}, "limit 0"),
        ({"cursor": "x"}, "cursor 'x'"),
        ({"cursor": "oldest,1.0,x-0"}, "cursor"),
        ({"since": "soon"}, "since 'soon'"),
        ({"split": "test"}, "split 'test'"),
        ({"status": "done"}, "status 'done'"),
        ({"colour": "red"}, "filter 'colour'"),
        ({"cause": "fate"}, "cause 'fate'"),
        ({"step": -1}, "step -1"),
        ({"step": "first"}, "step 'first'"),
        ({"reward": (math.nan, 1.0)}, "range of reward"),
        ({"cursor": "newest,nan,0.0,x-0"}, "cursor"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(store, wanted, subject):
    with pytest.raises(BadInputError, match=subject):
        store.query(**wanted)


def test_answers_stay_through_deletion_compaction_and_rebuilds(full_store, models):
    chance = random.Random(8)
    left = [one for number, one in enumerate(models.all) if number % 7]
    gone = [one.id for number, one in enumerate(models.all) if number % 7 == 0]
    requests = [{}, {"tool": "search", "reward": (0.0, 1.0)}, {"accepted": False}, {"policy": (3, 5), "run": "r"}]
    apply_tombstones(full_store.redis, full_store.keys, gone, 1.0)

    for move in (None, full_store.admin.compact, full_store.admin.reindex):
        if move:
            move()
        for wanted in requests:
            order = chance.choice(models.orders)
            assert list(pages(full_store, wanted, order, 40)) == models.answer(wanted, order, left), (move, wanted)
            assert full_store.count(**wanted) == len(models.answer(wanted, "newest", left))
