"""Known tasks: when two tasks ask the same question, and what happens to repeated ones."""

import msgspec
import pytest
from hypothesis import given, strategies as st

from agent_layer.dispatcher.tasks import TaskWithOrigin, new_tasks
from agent_layer.errors import BadInputError
from agent_layer.schema.codec import decode, encode
from agent_layer.schema.task import Limits, RewardSpec, Task, hash_input
from agent_layer.schema.wire.gateway_api import OpenRequest, make_attempt_started

TASKS = [Task(id=f"t{number}", run="r", input={"n": number % 3}) for number in range(4)]
PLACED = [TaskWithOrigin(task, f"line {number}") for number, task in enumerate(TASKS, start=1)]


def in_store(*numbers):
    hashes = {hash_input(Task(id="other", run="r", input={"n": number})) for number in numbers}
    return lambda _, input_hash: input_hash in hashes


def test_all_tasks_are_kept_unless_asked_otherwise():
    assert new_tasks(PLACED, "all", in_store(0, 1, 2)) == TASKS


def test_known_tasks_are_left_out_those_of_the_same_file_too():
    assert [task.id for task in new_tasks(PLACED, "skip", in_store())] == ["t0", "t1", "t2"]
    assert [task.id for task in new_tasks(PLACED, "skip", in_store(1))] == ["t0", "t2"]
    assert new_tasks(PLACED, "skip", in_store(0, 1, 2)) == []


def test_the_first_known_task_is_named_when_it_is_refused():
    with pytest.raises(BadInputError, match=r"^line 3: .* but the store has one with the same input \(task 't2'"):
        new_tasks(PLACED, "refuse", in_store(2))
    with pytest.raises(BadInputError, match=r"^line 4: .* but line 1 has one"):
        new_tasks(PLACED, "refuse", in_store())
    assert new_tasks(PLACED[:3], "refuse", in_store(9)) == TASKS[:3]


inputs = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
)


@given(inputs, st.randoms())
def test_the_same_question_has_one_hash_however_it_is_written(value, random):
    task = Task(id="a", run="r", input=value, seed=1)
    shuffled = dict(random.sample([*value.items()], len(value))) if isinstance(value, dict) else value
    other = Task(
        id="b", run="q", input=shuffled, seed=1, grading=7, rewards={"x": RewardSpec()}, limits=Limits(turns=1)
    )

    assert hash_input(other) == hash_input(task) == hash_input(decode(encode(task)))


@pytest.mark.parametrize("change", [{"input": 2}, {"seed": 2}, {"task_type": "code"}, {"env": "maze"}])
def test_another_question_has_another_hash(change):
    task = Task(id="a", run="r", input=1)

    assert hash_input(msgspec.structs.replace(task, **change)) != hash_input(task)


def test_an_attempt_says_what_it_asks_and_which_environment_answers():
    task = Task(id="a", run="r", input=1, env="maze")
    request = OpenRequest(task_id="a", env_version="3", input_hash="said")

    known = make_attempt_started(request, rollout_id="a.0", run="r", at=1.0, task=task)
    answer = make_attempt_started(request, rollout_id="a.0", run="r", at=1.0)

    assert (known.input_hash, known.env, known.env_version) == (hash_input(task), "maze", "3")
    assert (answer.input_hash, answer.env, answer.env_version) == ("said", None, "3")
