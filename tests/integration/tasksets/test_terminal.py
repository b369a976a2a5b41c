"""Chores at a terminal in real boxes: each solution finds the result, which was calculated without it, and is paid."""

import asyncio
import random

import pytest

from agent_layer.schema import Trajectory
from agent_layer.settings import load_settings
from envs.grading import ScoringRun
from envs.sandbox import PoolOptions, open_pool
from envs.scorers import load_scorer
from envs.script import Script
from envs.tasksets import HarborTasks, open_taskset
from envs.tasksets.gate.script_judge import ScriptJudge
from envs.tasksets.terminal.problems import find_problem, prepare_files, run_program

from ...boxes import require_kind
from ..sandbox.root_directory import make_root_directory


async def _play(pool, task, program):
    """Prepare a box, run a program in it, and let the scorer judge what it leaves in another box."""
    box = await pool.take(task.sandbox, owner="test")
    for path, text in task.files.items():
        await box.write(path, text.encode())
    await prepare_files(box, task.id)
    await run_program(box, program, task.id)
    artifacts = await box.snapshot([path for path in task.artifacts if path in {one.name for one in await box.list()}])
    await box.close()
    run = ScoringRun(
        task,
        Trajectory(trajectory_id="t"),
        "done",
        artifacts=artifacts,
        take_box=lambda spec: pool.take(spec or task.sandbox, owner="judge"),
    )
    verdict = await load_scorer(task.scorer).score(run)
    await run.close()
    return verdict.scores["solved"]


def _play_all(tasks):
    async def play():
        async with open_pool() as pool:
            solved = [await _play(pool, task, find_problem(task.id).chore.solution) for task in tasks]
            return solved, await _play(pool, tasks[0], "true")

    return asyncio.run(play())


def _draw(count, first=0):
    split, seed = random.choice(["train", "eval"]), random.randrange(10**6)
    return [
        task
        for level in range(4)
        for task in list(open_taskset("terminal").tasks(split=split, seed=seed, level=level, count=first + count))[
            first:
        ]
    ]


@pytest.fixture(autouse=True)
def _boxes():
    require_kind("namespace", "session")


def test_a_kind_of_each_level_is_solved_and_an_untouched_box_is_not():
    assert _play_all(_draw(1, first=random.randrange(5))) == ([1.0] * 4, 0.0)


@pytest.mark.long
def test_every_kind_is_solved_over_many_draws():
    assert _play_all([task for _ in range(3) for task in _draw(5)]) == ([1.0] * 60, 0.0)


@pytest.mark.long
def test_directories_are_read_as_harbor_tasks_whose_reference_scores_1_and_nothing_0(tmp_path):
    taskset = open_taskset("terminal")
    for task in (one for one in _draw(5) if one.labels["kind"] in ("sessions", "cron", "join", "settings")):
        taskset.write_directory(task, tmp_path / "chores" / task.id)  # these need bash and Python only
    root = make_root_directory(tmp_path / "root", "bash")
    options = {"dir": tmp_path / "data", "image_map": f"python:3.11-bookworm={root}"}
    read = HarborTasks(tmp_path / "chores", load_settings().model_copy(update=options))
    tasks = list(read.tasks(split="train"))

    async def judge():
        async with open_pool(PoolOptions(ready_per_spec=0)) as pool:
            scripts = [(task, script) for task in tasks for script in (read.solve(task), Script(name="nothing"))]
            return [(await ScriptJudge(pool).judge(task, script)).reward for task, script in scripts]

    assert [str(one) for one in read.refused] == []
    assert asyncio.run(judge()) == [1.0, 0.0] * 4
