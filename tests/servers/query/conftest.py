"""Trajectories in plain Python, and the answer that a search over them must return."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st

from agent_layer.schema.record import TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Action, StepPart

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
    engines: list[str | None]
    """[num_calls]."""
    findings: list[str]
    """Of the outcome; none while it runs."""
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
        for number, (version, agent, tool, engine) in enumerate(self._calls()):
            message = {"role": "assistant", "tool_calls": [{"function": {"name": tool}}]} if tool else None
            action = Action(message=message, response_token_ids=TokenIds([1]), policy_versions=[(version, 1)])
            part = {**own, "call_id": f"{self.id}/{number}", "source": "gateway", "agent": agent, "engine": engine}
            yield StepPart(**part, phase="start", at=self.started_at + 1)
            yield StepPart(**part, phase="end", at=self.started_at + 2, actions=[action], status="ok")
        if self.reward is not None:
            yield Reward(**own, reward_id=f"{self.id}/r", at=1.0, score=self.reward)
        if self.status != "running":
            end = {"status": self.status, "cause": self.cause, "findings": self.findings}
            yield Outcome(**own, **end, ended_at=self.started_at + 9)
        if self.accepted:
            yield Accepted(**own, rollout_id=self.id[:-2], accepted_at=self.started_at + 10)

    def _calls(self):
        return zip(self.versions, self.agents, self.tools, self.engines, strict=True)

    def passes(self, wanted):
        return all(TESTS[name](self, value) for name, value in wanted.items() if value not in (None, (None, None)))


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
    "engine": lambda one, value: value.removesuffix("/v1") in one.engines,
    "finding": lambda one, value: one.status != "running" and value in [reply.split(":")[0] for reply in one.findings],
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


_ENGINES = [None, "http://a:8000", "http://b:8000"]
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
            engines=[chance.choice(_ENGINES) for _ in range(num_calls)],
            findings=chance.choice([[], [], ["refused: a", "refused: b"], ["no_policy_call", "refused: a"]]),
            labels={"team": chance.choice("ab"), **({"long": "v" * 90} if chance.random() < 0.1 else {})},
            started_at=float(chance.randrange(1_000, 1_000 + 100 * spread)),
        )


MODELS = list(make_models(seed=4))


def find_answer(wanted, order, models=MODELS):
    key, descending = ORDERS[order]
    found = [one for one in models if one.passes(wanted) and key(one) is not None]
    return [one.id for one in sorted(found, key=lambda one: (key(one), one.started_at, one.id), reverse=descending)]


def ranges(values):
    ends = st.none() | values
    return st.tuples(ends, ends)


CONDITIONS = st.fixed_dictionaries(
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
        "engine": st.sampled_from(["http://a:8000", "http://b:8000/v1", "http://c:8000", "litellm"]),
        "finding": st.sampled_from(["refused", "no_policy_call", "none"]),
        "labels": st.sampled_from([{}, {"team": "a"}, {"team": "b", "long": "v" * 90}, {"nobody": "x"}]),
        "policy": ranges(st.integers(-1, 9)),
        "reward": ranges(st.sampled_from([-1.5, 0.0, 0.1, 0.3, 1.0, 39.0])),
        "since": st.integers(995, 1_105).map(float),
        "until": st.integers(995, 1_105).map(float),
    },
)


class Models:
    """Trajectories that are in ``full_store``, in plain Python."""

    all = MODELS
    requests = CONDITIONS
    """Any filters."""
    orders = tuple(ORDERS)
    make = staticmethod(make_models)

    def answer(self, request, order, among=MODELS):
        """Ids of those that pass all filters, in order."""
        return find_answer(request, order, among)


@pytest.fixture
def models():
    return Models()


@pytest.fixture
def objects_settings(settings):
    """One kind of object store is enough here: a search reads Redis only."""
    return settings


@pytest.fixture
def full_store(store, write):
    write(*(record for model in MODELS for record in model.records()))
    return store
