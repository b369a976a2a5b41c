"""This file holds what a search promises: the same answer as a plain filter over everything, page by page."""

import random
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import product

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agent_layer.errors import BadInputError
from agent_layer.schema.record import TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Action, StepPart
from agent_layer.store.tombstones import forget

NUM_TRAJECTORIES = 300


@dataclass(frozen=True)
class Model:
    """What is known of one trajectory, in plain Python."""

    id: str
    run: str
    split: str
    task: str
    task_type: str
    status: str
    accepted: bool
    reward: float | None
    cause: str | None
    versions: list[int]
    agents: list[str]
    tools: list[str]
    """[num_calls]; '' where a call asked for none."""
    labels: dict[str, str]
    started_at: float

    def records(self):
        own = {"trajectory_id": self.id, "run": self.run}
        yield AttemptStarted(
            **own,
            rollout_id=self.id[:-2],
            attempt=0,
            task_id=self.task,
            task_type=self.task_type,
            split=self.split,
            labels=self.labels,
            started_at=self.started_at,
        )
        for number, (version, agent, tool) in enumerate(zip(self.versions, self.agents, self.tools, strict=True)):
            message = {"role": "assistant", "tool_calls": [{"function": {"name": tool}}]} if tool else None
            action = Action(message=message, response_token_ids=TokenIds([1]), policy_versions=[(version, 1)])
            part = {**own, "call_id": f"{self.id}/{number}", "source": "gateway", "agent": agent}
            yield StepPart(**part, phase="start", at=self.started_at + 1)
            yield StepPart(**part, phase="end", at=self.started_at + 2, actions=[action], status="ok")
        if self.reward is not None:
            yield Reward(**own, reward_id=f"{self.id}/r", at=1.0, score=self.reward)
        if self.status != "running":
            yield Outcome(**own, status=self.status, cause=self.cause, ended_at=self.started_at + 9)
        if self.accepted:
            yield Accepted(**own, rollout_id=self.id[:-2], accepted_at=self.started_at + 10)

    def passes(self, asked):
        return all(TESTS[name](self, value) for name, value in asked.items() if value not in (None, (None, None)))


def within(value, ends):
    return value is not None and (ends[0] is None or value >= ends[0]) and (ends[1] is None or value <= ends[1])


def meets(one, ends):
    return (
        bool(one.versions) and within(max(one.versions), (ends[0], None)) and within(min(one.versions), (None, ends[1]))
    )


def has_step(one, which):
    if which == "last":
        return bool(one.versions)
    return which[1] in one.tools if isinstance(which, tuple) else len(one.versions) > which


TESTS = {
    "run": lambda one, value: one.run == value,
    "split": lambda one, value: one.split == value,
    "task": lambda one, value: one.task == value,
    "task_type": lambda one, value: one.task_type == value,
    "status": lambda one, value: one.status == value,
    "agent": lambda one, value: value in one.agents,
    "accepted": lambda one, value: one.accepted == value,
    "step": has_step,
    "cause": lambda one, value: one.cause == value,
    "tool": lambda one, value: value in one.tools,
    "labels": lambda one, value: one.labels.items() >= value.items(),
    "policy": meets,
    "reward": lambda one, value: within(one.reward, value),
    "since": lambda one, value: one.started_at >= value,
    "until": lambda one, value: one.started_at <= value,
}

ORDERS = {
    "newest": (lambda one: one.started_at, True),
    "oldest": (lambda one: one.started_at, False),
    "reward": (lambda one: one.reward, True),
    "policy": (lambda one: max(one.versions, default=None), True),
}


CAUSES = {"running": [None], "failed": ["infra"], "completed": [None], "truncated": [None, "policy"]}


def make_models(seed, num_models=NUM_TRAJECTORIES, spread=1):
    chance = random.Random(seed)
    for number in range(num_models):
        num_calls = chance.choice([0, 1, 1, 3])
        status = chance.choice(["running", "completed", "completed", "truncated", "failed"])
        yield Model(
            id=f"x.{number}-0",
            run=chance.choice(["r", "r", "s"]),
            split=chance.choice(["train", "train", "eval"]),
            task=f"t{chance.randrange(40)}",
            task_type=chance.choice(["math", "code"]),
            status=status,
            accepted=status in ("completed", "truncated") and chance.random() < 0.8,
            reward=None if status == "failed" else chance.choice([None, -1.5, 0.0, 0.25, chance.random(), 1.0, 40.0]),
            cause=chance.choice(CAUSES[status]),
            versions=[chance.randrange(9) for _ in range(num_calls)],
            agents=[chance.choice(["solver", "solver", "judge"]) for _ in range(num_calls)],
            tools=[chance.choice(["", "search", "x" * 100]) for _ in range(num_calls)],
            labels={"team": chance.choice("ab"), **({"long": "v" * 90} if chance.random() < 0.1 else {})},
            started_at=float(chance.randrange(1_000, 1_000 + 100 * spread)),
        )


MODELS = list(make_models(seed=4))


def answer_of(asked, order, models=MODELS):
    key, descending = ORDERS[order]
    found = [one for one in models if one.passes(asked) and key(one) is not None]
    return [one.id for one in sorted(found, key=lambda one: (key(one), one.started_at, one.id), reverse=descending)]


@pytest.fixture
def objects_settings(settings):
    """One kind of object store is enough here: a search reads Redis only."""
    return settings


@pytest.fixture
def full_store(store, write):
    write(*(record for model in MODELS for record in model.records()))
    return store


def pages(store, asked, order, limit):
    cursor = None
    while True:
        page = store.query(**asked, order=order, limit=limit, cursor=cursor)
        assert len(page.items) == limit or page.cursor is None
        yield from [row.trajectory_id for row in page.items]
        if page.cursor is None:
            return
        cursor = page.cursor


def ranges(values):
    ends = st.none() | values
    return st.tuples(ends, ends)


ASKED = st.fixed_dictionaries(
    {},
    optional={
        "run": st.sampled_from(["r", "s", "none"]),
        "split": st.sampled_from(["train", "eval"]),
        "task": st.sampled_from(["t1", "t2", "none"]),
        "task_type": st.sampled_from(["math", "code"]),
        "status": st.sampled_from(["running", "completed", "failed"]),
        "agent": st.sampled_from(["solver", "judge", "none"]),
        "accepted": st.none() | st.booleans(),
        "step": st.integers(0, 3) | st.sampled_from(["last", ("tool", "search"), ("tool", "none")]),
        "cause": st.sampled_from(["infra", "policy", "user"]),
        "tool": st.sampled_from(["search", "x" * 100, "none"]),
        "labels": st.sampled_from([{}, {"team": "a"}, {"team": "b", "long": "v" * 90}, {"nobody": "x"}]),
        "policy": ranges(st.integers(-1, 9)),
        "reward": ranges(st.sampled_from([-1.5, 0.0, 0.1, 0.3, 1.0, 39.0])),
        "since": st.integers(995, 1_105).map(float),
        "until": st.integers(995, 1_105).map(float),
    },
)


def test_a_search_answers_what_a_plain_filter_would(full_store):
    @hypothesis_settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(ASKED, st.sampled_from(list(ORDERS)), st.integers(1, 60))
    def check(asked, order, limit):
        assert list(pages(full_store, asked, order, limit)) == answer_of(asked, order)

    check()


def test_every_filter_alone_answers_what_a_plain_filter_would(full_store):
    for asked in [{}, {"run": "r"}, {"task": "t1"}, {"reward": (1.0, None)}, {"policy": (8, 8)}, {"accepted": False}]:
        for order in ORDERS:
            assert list(pages(full_store, asked, order, 7)) == answer_of(asked, order), (asked, order)


def test_counts_and_scans_see_what_a_plain_filter_would(full_store):
    @hypothesis_settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(ASKED)
    def check(asked):
        wanted = answer_of(asked, "oldest")
        assert full_store.count(**asked) == len(wanted)
        assert [row.trajectory_id for row in full_store.scan(**asked)] == wanted

    check()


FIELDS = {
    "run": lambda one: [one.run],
    "task_type": lambda one: [one.task_type],
    "status": lambda one: [one.status],
    "agent": lambda one: set(one.agents),
    "policy": lambda one: [max(one.versions, default=None)],
}


@pytest.mark.parametrize(
    "by", [[], ["task_type"], ["policy"], ["task_type", "policy"], ["run", "status", "agent"], ["policy", "run"]]
)
@pytest.mark.parametrize("asked", [{}, {"run": "r", "reward": (0.0, None)}, {"agent": "solver", "since": 1_050.0}])
def test_a_summary_says_what_a_plain_sum_would(full_store, by, asked):
    lines = defaultdict(list)
    for one in (model for model in MODELS if model.passes(asked)):
        for values in product(*(FIELDS[field](one) for field in by)):
            lines[values].append(one.reward)

    found = full_store.summarise(by, success=0.5, **asked)

    assert {tuple(one.by.values()): (one.count, one.num_rewarded) for one in found} == {
        values: (len(rewards), sum(reward is not None for reward in rewards)) for values, rewards in lines.items()
    }
    for one in found:
        known = [reward for reward in lines[tuple(one.by.values())] if reward is not None]
        assert list(one.by) == by
        assert one.mean_reward == (pytest.approx(sum(known) / len(known)) if known else None)
        assert one.success_rate == (sum(reward >= 0.5 for reward in known) / len(known) if known else None)


def test_a_summary_by_something_unknown_is_refused(store):
    with pytest.raises(BadInputError, match="summary by 'colour'"):
        store.summarise(["colour"])


def test_an_explanation_names_the_rarest_condition_and_the_work(full_store):
    told = full_store.explain(run="r", task="t1", reward=(0.0, None), accepted=False)

    counts = {name: sum(one.passes(asked) for one in MODELS) for name, asked in EXPLAINED.items()}
    assert told.conditions == counts
    assert told.lead == "task=t1"
    assert (told.num_trajectories, told.num_blocks) == (NUM_TRAJECTORIES, 1)
    assert told.num_found <= told.num_tested <= counts["task=t1"]


EXPLAINED = {
    "run=r": {"run": "r"},
    "task=t1": {"task": "t1"},
    "rewarded": {"reward": (-99.0, None)},
    "not accepted=1": {"accepted": False},
    "0 <= reward <= inf": {"reward": (0.0, None)},
}


@pytest.mark.timeout(300)
def test_an_index_of_many_blocks_answers_what_a_plain_filter_would(store, write):
    models = list(make_models(seed=5, num_models=5_000, spread=3))
    write(*(record for model in models for record in model.records()))
    chance = random.Random(6)

    for _ in range(40):
        asked = {"task_type": chance.choice([None, "math"]), "reward": chance.choice([None, (0.3, 0.4), (1.0, None)])}
        asked |= {"policy": chance.choice([None, (3, 4)]), "labels": chance.choice([None, {"team": "a"}])}
        order, limit = chance.choice(list(ORDERS)), chance.choice([7, 400])
        first = store.query(**asked, order=order, limit=limit)
        second = store.query(**asked, order=order, limit=limit, cursor=first.cursor) if first.cursor else None
        given = [row.trajectory_id for page in (first, second) if page for row in page.items]
        assert given == answer_of(asked, order, models)[: 2 * limit], (asked, order)
    assert store.explain().num_blocks == 3


def test_new_trajectories_do_not_disturb_pages_that_follow(full_store, write):
    first = full_store.query(limit=10)
    newer = replace(MODELS[0], id="new-0", started_at=9_999.0)
    write(*newer.records())

    second = full_store.query(limit=10, cursor=first.cursor)

    assert [row.trajectory_id for row in first.items + second.items] == answer_of({}, "newest")[:20]


def test_a_cursor_holds_when_its_trajectory_has_left(full_store):
    first = full_store.query(limit=10)
    forget(full_store.redis, full_store.keys, [first.items[-1].trajectory_id], 1.0)

    second = full_store.query(limit=10, cursor=first.cursor)

    assert [row.trajectory_id for row in second.items] == answer_of({}, "newest")[10:20]


@pytest.mark.parametrize(
    ("asked", "subject"),
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
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(store, asked, subject):
    with pytest.raises(BadInputError, match=subject):
        store.query(**asked)
