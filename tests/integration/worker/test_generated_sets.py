"""Generated sets through a worker: a scripted model acts by tools, and the scorer judges what is stored."""

import msgspec
import pytest

from envs.tasksets import open_taskset

from .conftest import RUN


def _prompt(task):
    return task.input if isinstance(task.input, str) else task.input["prompt"]


@pytest.mark.parametrize("name", [pytest.param("arithmetic", marks=pytest.mark.long), "search"])
async def test_a_model_that_finds_it_is_paid_and_one_that_guesses_is_not(harness, name):
    taskset = open_taskset(name)
    right, wrong = (msgspec.structs.replace(one, run=RUN) for one in taskset.tasks(split="train", level=2, count=2))
    replies = {
        _prompt(right): taskset.solve(right).replies,
        _prompt(wrong): [*taskset.solve(wrong).replies[:-1], taskset.mutants(wrong)[0].replies[-1]],
    }
    harness.engine.script = lambda prompt: replies[prompt.messages[0]["content"]][prompt.turn]

    trajectories = await harness.run(taskset.agent, right, wrong)

    assert {one.task.id: one.reward for one in trajectories} == {right.id: 1.0, wrong.id: 0.0}
    assert all(one.status == "ok" for trajectory in trajectories for one in trajectory.observations)
    assert {one.name for trajectory in trajectories for one in trajectory.observations} >= (
        {"search", "open"} if name == "search" else {"calculator"}
    )


@pytest.mark.long
@pytest.mark.parametrize("agent", ["envs.tasksets.arithmetic:reference", "envs.tasksets.search.search:reference"])
async def test_a_scripted_agent_solves_without_a_model(harness, agent):
    name = agent.split(".")[2].partition(":")[0]
    (task,) = open_taskset(name).tasks(split="eval", level=3, count=1)

    (trajectory,) = await harness.run(agent, msgspec.structs.replace(task, run=RUN))

    assert (trajectory.outcome.status, trajectory.reward) == ("completed", 1.0)
