"""Rounds as they are stored, and what may go on with one."""

from contextlib import nullcontext

import msgspec
import pytest

from agent_layer.errors import BadInputError
from agent_layer.infra import MemoryObjects
from envs.costs import Price
from envs.evaluation import RoundSettings
from envs.evaluation.figures.figures import TaskRef
from envs.evaluation.prices import Prices
from envs.evaluation.rounds import (
    EvaluatedAgent,
    EvaluatedModel,
    Round,
    RoundStore,
    TaskSource,
    check_round_name,
    check_same,
    take_changes,
)

ROUND = Round(
    name="r1",
    agent=EvaluatedAgent(target="my_agent:agent", version="1"),
    model=EvaluatedModel(kind="engine", name="policy", location="/models/a", fingerprint="f1"),
    source=TaskSource(name="tasks.jsonl"),
    tasks=[TaskRef(id="t1", input_hash="h1")],
    tasks_hash="h",
    yardstick=RoundSettings(n=4, threshold=1.0, seed=0),
    sampling={"temperature": 0.5},
    scorer="agent",
    price=None,
    started_at=1_700_000_000.0,
)


def changed(**fields):
    return msgspec.structs.replace(ROUND, **fields)


def test_a_stored_round_reads_back_equal():
    rounds = RoundStore(MemoryObjects(), "default")
    rounds.write(ROUND)
    rounds.write(changed(name="r0", started_at=1.0))

    assert rounds.get("r1") == ROUND
    assert [one.name for one in rounds.list()] == ["r0", "r1"]
    with pytest.raises(BadInputError, match="eval --list"):
        rounds.get("r2")


def test_the_same_model_may_be_at_another_place():
    check_same(ROUND, changed(model=msgspec.structs.replace(ROUND.model, location="/elsewhere")))


@pytest.mark.parametrize(
    ("fields", "difference"),
    [
        ({"agent": EvaluatedAgent(target="other:agent", version="1")}, "the agent my_agent:agent"),
        ({"agent": EvaluatedAgent(target="my_agent:agent", version="2")}, "the agent in version 1"),
        ({"model": msgspec.structs.replace(ROUND.model, fingerprint="f2")}, "the model with fingerprint f1"),
        ({"model": EvaluatedModel(kind="endpoint", name="policy")}, "a model of kind engine"),
        ({"yardstick": RoundSettings(n=8, threshold=1.0, seed=0)}, "-n 4"),
        ({"sampling": {}}, "sampling"),
        ({"tasks_hash": "i"}, "tasks with hash h"),
        ({"tasks": []}, "the number of tasks 1"),
    ],
)
def test_a_resumed_round_names_what_differs(fields, difference):
    with pytest.raises(BadInputError) as refused:
        check_same(ROUND, changed(**fields))

    assert f"expected {difference}" in str(refused.value)


TASKS = [TaskRef(id=name, input_hash=name, content_hash=name) for name in ("t1", "t2")]
MENDED = TaskRef(id="t2", input_hash="t2", content_hash="another grading")
BEGUN = changed(tasks=TASKS, num_passes=2)


@pytest.mark.parametrize(
    ("fields", "touched", "sentence"),
    [
        ({}, [], None),
        ({"agent": EvaluatedAgent(target="my_agent:agent", version="2")}, ["t1", "t2"], "version: 1, now 2"),
        ({"model": msgspec.structs.replace(ROUND.model, fingerprint="f2")}, ["t1", "t2"], "fingerprint: f1, now f2"),
        ({"sampling": {}}, ["t1", "t2"], 'sampling: {"temperature":0.5}, now {}'),
        ({"yardstick": RoundSettings(n=8, threshold=0.5, seed=0)}, [], "-n: 4, now 8"),
        ({"tasks": [TASKS[0], MENDED], "tasks_hash": "i"}, ["t2"], "hash: h, now i"),
        ({"tasks": [*TASKS, MENDED], "tasks_hash": "i"}, ["t2"], "number of tasks: 2, now 3"),
        ({"tasks": TASKS[:1], "tasks_hash": "i"}, [], "number of tasks: 2, now 1"),
    ],
)
def test_a_change_redoes_what_it_touches_and_is_named(fields, touched, sentence):
    taken, sentences = take_changes(BEGUN, msgspec.structs.replace(BEGUN, num_passes=0, **fields))

    assert taken.replaced == dict.fromkeys(touched, 2)
    assert sentence is None or any(sentence in one for one in sentences), sentences
    assert any("are redone" in one for one in sentences) == bool(touched)
    goes_on = msgspec.structs.replace(taken, num_passes=3)
    assert {name: len([*goes_on.list_groups(name)]) for name in ("t1", "t2")} == {
        name: 1 if name in touched else 3 for name in ("t1", "t2")
    }
    assert len(goes_on.replaced_groups) == 2 * len(touched)


def test_a_round_of_an_earlier_release_redoes_all_when_its_tasks_have_changed():
    earlier = changed(tasks=[TaskRef(id="t1", input_hash="h1")], num_passes=1)
    taken, _ = take_changes(earlier, changed(tasks=TASKS, tasks_hash="i"))

    assert taken.replaced == {"t1": 1}


@pytest.mark.parametrize(("before", "now", "is_same"), [("hermes", "hermes", True), ("hermes", "none", False)])
def test_a_round_goes_on_with_the_parsers_with_which_it_began(before, now, is_same):
    began, goes_on = (
        changed(model=msgspec.structs.replace(ROUND.model, tool_parser=one, reasoning_parser="none"))
        for one in (before, now)
    )

    with nullcontext() if is_same else pytest.raises(BadInputError, match="expected --tool-parser hermes"):
        check_same(began, goes_on)
    check_same(ROUND, goes_on)  # ROUND is of a release that did not note them


@pytest.mark.parametrize("name", ["", "a b", "x/y", "n" * 97])
def test_a_name_that_cannot_stand_in_keys_is_refused(name):
    with pytest.raises(BadInputError):
        check_round_name(name)


def test_prices_come_from_the_caller_or_the_table():
    table, own = Prices(), Prices(Price(prompt=1.0, response=10.0))

    assert own.find("anything", is_policy=True).cost(500_000, 100_000) == pytest.approx(1.5)
    assert own.find("openai/gpt-4o-mini", is_policy=False) == table.find("gpt-4o-mini", is_policy=True)
    assert table.find("gpt-4o-mini", is_policy=True).cost(1_000_000, 1_000_000) > 0
    assert table.find("no such model", is_policy=True) is None
