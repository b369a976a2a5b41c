"""Task sets of foreign packages: what they list, and that stored answers alone decide a grade."""

import json

import msgspec
import pytest

from agent_layer.errors import BadInputError
from agent_layer.schema import Action, Step, StepState, Trajectory, content_hash
from envs.adapters.foreign_set import ForeignScorer, ForeignSet
from envs.grading import ScoringRun


def make_step(text, *prompts, number=0, role="policy"):
    """Return a step whose prompt ended with this message."""
    hashes = [content_hash(json.dumps({"role": "user", "content": one}).encode()) for one in prompts]
    return Step(
        trajectory_id="t", call_id=f"c{number}", choice=0, run="r", started_at=float(number), role=role,
        state=StepState(messages=hashes), action=Action(message={"role": "assistant", "content": text}),
    )  # fmt: skip


async def score(task, *steps, ask_judge=None):
    trajectory = Trajectory(trajectory_id="t", steps=list(steps))
    return await ForeignScorer().score(ScoringRun(task, trajectory, None, ask_judge=ask_judge))


@pytest.fixture
def draw(toy):
    def draw(options="", **words):
        return list(ForeignSet(toy, f"sums{options}").tasks(**{"split": "train", **words}))

    return draw


def test_tasks_are_the_same_twice_and_each_is_in_one_split(draw):
    train, held_out = draw(), draw(split="eval")
    assert (len(train), len(held_out)) == (32, 8)
    assert not {task.id for task in train} & {task.id for task in held_out}
    assert draw() == train
    assert draw(count=3) == train[:3]
    other = draw(seed=2)
    assert {task.id for task in other} == {task.id for task in train}
    assert other != train
    assert "answer" not in json.dumps(msgspec.to_builtins([task.view() for task in train]))
    assert {task.id for task in draw("?num=39")}.isdisjoint(task.id for task in train)


@pytest.mark.parametrize("options", ["?a=2&a.b=1", "?a.b=1&a=2", "?id=other", "?id.x=1"])
def test_options_that_contradict_each_other_are_refused(toy, options):
    with pytest.raises(BadInputError, match=r"option '(a|id|id\.x)' cannot be given so"):
        ForeignSet(toy, f"sums{options}")


async def test_the_packages_own_rubric_judges_the_stored_answers(draw):
    tasks = draw("?turns=2", count=4)
    for index, task in enumerate(tasks):
        prompt = task.input["messages"][0]["content"]
        right = str(task.input["index"] + task.input["index"] % 7)
        for text, reward in ((f"it is {right}", 1.0), ("no idea", 0.0), ("", 0.0)):
            verdict = await score(task, make_step(text, prompt), make_step("yes", "sure? 0 ", number=1))
            assert (verdict.status, verdict.scores) == ("ok", {"turns": 2.0, "right": reward, "reward": reward}), index


async def test_an_attempt_that_was_cut_off_is_scored_as_it_stands(draw):
    (task,) = draw("?turns=2", count=1)
    assert (await score(task)).scores["reward"] == 0.0
    verdict = await score(task, make_step("0"))
    assert (verdict.scores["reward"], verdict.evidence["stop"]) == (1.0, "ended")


async def test_a_world_that_is_not_the_same_twice_gives_no_verdict(draw):
    (task,) = draw("?turns=2&drifts=true", count=1)
    prompt = task.input["messages"][0]["content"]
    verdict = await score(task, make_step("0", prompt), make_step("yes", "sure? 0 0.123", number=1))
    assert (verdict.status, verdict.scores) == ("verifier_error", {})
    assert "before answer 2 the package asked otherwise" in verdict.evidence["error"]

    (task,) = draw(count=1)
    verdict = await score(task, make_step("0"), make_step("more", number=1))
    assert "ended after 1 of 2 stored answers" in verdict.evidence["error"]


async def test_steps_of_judges_are_no_answers_and_judges_are_asked_through_the_context(draw):
    async def ask_judge(messages, sampling):
        return f"0.{len(messages[0]['content'])}{sampling['temperature']}"

    (task,) = draw("?judged=true", count=1)
    steps = make_step("12345"), make_step("unheard", number=1, role="aux")
    assert (await score(task, *steps, ask_judge=ask_judge)).scores == {"reward": 0.5}


async def test_a_task_that_changed_since_it_was_drawn_is_refused(draw):
    (task,) = draw(count=1)
    changed = msgspec.structs.replace(task, input={**task.input, "key": "another"})
    with pytest.raises(BadInputError, match="not what it was"):
        await score(changed, make_step("0"))
    with pytest.raises(BadInputError, match="expected one of an adapter"):
        await score(msgspec.structs.replace(task, input="text"))


def test_scripts_of_a_set_score_as_the_gate_expects(draw, toy):
    taskset = ForeignSet(toy, "sums")
    task = draw(count=12)[-1]
    assert [one["content"] for one in taskset.solve(task).replies] == [
        str(task.input["index"] + task.input["index"] % 7)
    ]
    assert len({one.replies[0]["content"] for one in taskset.mutants(task)}) >= 20
    cheats = [one.replies[0]["content"] for one in taskset.cheats(task)]
    assert len(cheats) >= 20
    assert task.input["messages"][0]["content"] in cheats
    assert {taskset._earned(task, one) for one in taskset.rewrites(task)} == {1.0}
