"""Scripted agents, which need no model: for demonstrations, and as a yardstick of evaluations.

They draw the task again from its id, which an agent that a model writes cannot do in its sandbox.
"""

from collections.abc import Callable

import tracer
from agent_layer.schema import TaskView
from envs.tasksets import Script
from envs.tasksets.repair.environment import RUN_TESTS
from envs.tasksets.repair.scripts import write_independent, write_near_miss, write_reference
from envs.tasksets.repair.tasks import Problem, find_problem

_SECONDS = 20.0


async def reference(task: TaskView, rollout: tracer.Rollout) -> object:
    """Take the bugs back; solves every task."""
    return await _act(task, rollout, write_reference)


async def independent(task: TaskView, rollout: tracer.Rollout) -> object:
    """Write the faulty modules new, by another author; solves every task."""
    return await _act(task, rollout, write_independent)


async def near_miss(task: TaskView, rollout: tracer.Rollout) -> object:
    """Leave code that passes as many visible tests as wrong code can; solves no task."""
    return await _act(task, rollout, write_near_miss)


async def _act(task: TaskView, rollout: tracer.Rollout, write: Callable[[Problem], Script]) -> object:
    problem = find_problem(task.id)
    script = write(problem)
    if problem.choices is not None:
        return script.result
    for path, text in script.files.items():
        if text is not None:
            await rollout.sandbox.write(path, text.encode())
    ran = await rollout.sandbox.exec(RUN_TESTS, seconds=_SECONDS)
    return "visible tests pass" if ran.exit_code == 0 else "visible tests fail"
