"""Episodes a second: our task sets played by scripted agents, each graded, stored and accepted.

Everything is real but the model: queue, worker, boxes, scorers, shipper, store. The floor of a set without boxes is an
agent that does nothing and a scorer that looks at nothing. The floor of one with boxes is the same boxes and commands
in one process, without a queue, a worker or a store.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
from bench_table import Figure
from proxies import HERE, start_process

from agent_layer.dispatcher import connect
from agent_layer.infra.processes.addresses import free_port
from agent_layer.infra.processes.supervised import start_supervised
from agent_layer.local.stack import Stack, run_stack
from agent_layer.schema.sandbox import Sandbox
from agent_layer.schema.task import Task
from agent_layer.settings import Settings
from agent_layer.store import open_store
from envs.sandbox import PoolOptions, open_pool
from envs.script import Script
from envs.tasksets import open_taskset
from envs.tasksets.gate.script_judge import ScriptJudge
from envs.tasksets.repair.environment import RUN_TESTS
from envs.tasksets.terminal.problems import find_problem, prepare_files, run_program

__all__ = ["measure_episodes"]

NUM_ROUNDS = 2
GROUP_SIZE = 8
WAIT_SECONDS = 300.0
WORK = [sys.executable, "-m", "agent_layer.cli", "work"]
LEVEL = 1


class _Set(NamedTuple):
    name: str
    target: str
    num_episodes: int
    slots: int
    aim: str


SETS = (
    _Set("arithmetic", "envs.tasksets.arithmetic:reference", 240, 32, "≥ 100"),
    _Set("search", "envs.tasksets.search.search:reference", 160, 32, "≥ 40"),
    _Set("repair", "envs.tasksets.repair:reference", 32, 8, "≥ 8"),
    _Set("terminal", "envs.tasksets.terminal.terminal:reference", 40, 8, "≥ 4"),
)
"""Scripted agents that call the tools themselves."""
MODELLED = (
    _Set("arithmetic", "envs.tasksets.arithmetic:ArithmeticEnvironment", 80, 32, ""),
    _Set("search", "envs.tasksets.search.library:SearchEnvironment", 80, 32, ""),
    _Set("terminal", "envs.tasksets.terminal.terminal:TerminalEnvironment", 24, 8, ""),
)
"""The same with a scripted model, where each turn is a captured call; prompts of repair are alike, so it has none."""


def measure_episodes(directory: Path) -> list[Figure]:
    """Measure each set, then its floor."""
    port = free_port()
    model = [sys.executable, "-m", "agent_layer.local.scripted", f"--port={port}"]
    model.append(f"--script={HERE / 'episodes_model.py'}:play")
    with (
        start_process(model, port, directory / "engine.log"),
        run_stack(Settings(dir=directory / "ours", run="bench"), f"http://127.0.0.1:{port}") as stack,
    ):
        idle = _rate(stack, _Set("arithmetic", "episodes_model:rest", 240, 32, ""), _make_idle)
        scripted = [_rate(stack, one) for one in SETS if one.name not in ACTS]
        figures = [_figure(one, rate, idle) for one, rate in zip(SETS, scripted, strict=False)]
        boxed = SETS[len(scripted) :]
        figures += [_figure(one, _rate(stack, one), asyncio.run(_box_rate(one))) for one in boxed]  # floor after set
        modelled = {one.name: _rate(stack, one) for one in MODELLED}
    return figures + [
        Figure(
            f"{one.name} episodes/s, graded, stored; a scripted model, each turn captured", f"{rate:.1f}", "", "", ""
        )
        for one, rate in ((one, modelled[one.name]) for one in MODELLED)
    ]


def _figure(one: _Set, rate: float, floor: float) -> Figure:
    beside = "the same boxes and commands in one process" if one.name in ACTS else "an agent and scorer that rest"
    what = f"{one.name} episodes/s, graded, stored; a scripted agent (floor: {beside})"
    return Figure(what, f"{rate:.1f}", f"{floor:.1f}", f"{rate / floor:.2f}", one.aim)


def _rate(stack: Stack, one: _Set, change: Callable[[Task], Task] = lambda task: task) -> float:
    """Episodes per second, from submit until the last group is closed; the median of the rounds after the first."""
    run = f"bench-{one.target.rpartition(':')[2]}-{one.name}"
    drawn = open_taskset(one.name).tasks(split="eval", level=LEVEL, count=one.num_episodes // GROUP_SIZE)
    tasks = [change(msgspec.structs.replace(task, run=run, group_size=GROUP_SIZE)) for task in drawn]
    worker = start_supervised(
        [*WORK, one.target, f"--slots={one.slots}", f"--run={run}"],
        {**stack.settings.environment(), "PYTHONPATH": f"{HERE}:{HERE.parents[1]}"},
        stack.settings.dir / "worker.log",
    )
    with ExitStack() as cleanup:
        cleanup.callback(worker.stop)
        rates = [_play_round(stack, tasks, number) for number in range(NUM_ROUNDS + 1)][1:]
    rows = open_store(stack.settings).query(run=run, limit=1000).items
    print(f"{one.target}: {median(rates):.1f} episodes/s", file=sys.stderr, flush=True)
    if wrong := [row for row in rows if row.reward != 1.0]:
        first = open_store(stack.settings).get(wrong[0].trajectory_id)
        raise RuntimeError(
            f"{one.name}: expected rewards of 1, found others in {len(wrong)} of {len(rows)}, such as"
            f" {wrong[0].trajectory_id}: {first.outcome} {first.rewards}"
        )
    return median(rates)


def _play_round(stack: Stack, tasks: list[Task], number: int) -> float:
    num_episodes = len(tasks) * GROUP_SIZE
    with connect(stack.settings) as dispatcher:
        began = time.monotonic()
        groups = dispatcher.wait(dispatcher.submit(tasks, round=number), timeout=WAIT_SECONDS)
        seconds = time.monotonic() - began
    if (num := sum(group.num_accepted or 0 for group in groups)) != num_episodes:
        raise RuntimeError(f"expected {num_episodes} accepted episodes in {WAIT_SECONDS:.0f} s, found {num}")
    return num_episodes / seconds


def _make_idle(task: Task) -> Task:
    return msgspec.structs.replace(task, scorer="episodes_model:accept", rewards={})


async def _box_rate(one: _Set) -> float:
    """Episodes per second of the same boxes and commands, without the layer."""
    taskset, act = open_taskset(one.name), ACTS[one.name]
    tasks = list(taskset.tasks(split="eval", level=LEVEL, count=one.num_episodes // GROUP_SIZE)) * GROUP_SIZE
    scripts = {task.id: taskset.solve(task) for task in tasks}
    free = asyncio.Semaphore(one.slots)
    async with open_pool(PoolOptions(ready_per_spec=2)) as pool:

        async def play(task: Task) -> None:
            async with free:
                assert task.sandbox is not None
                box = await pool.take(task.sandbox, owner="bench")
                for path, text in task.files.items():
                    await box.write(path, text.encode())
                await act(box, task, scripts[task.id])
                await box.snapshot(task.artifacts)
                await box.close()
                judged = await ScriptJudge(pool).judge(task, scripts[task.id])
                assert judged.reward == 1.0, judged

        rates = [await _timed_rate([play(task) for task in tasks]) for _ in range(NUM_ROUNDS + 1)]
    return median(rates[1:])


async def _repair(box: Sandbox, _: Task, script: Script) -> None:
    for path, text in script.files.items():
        await box.write(path, (text or "").encode())
    await box.exec(RUN_TESTS)


async def _work_at_terminal(box: Sandbox, task: Task, _: Script) -> None:
    await prepare_files(box, task.id)
    await run_program(box, find_problem(task.id).chore.solution, task.id)


ACTS = {"repair": _repair, "terminal": _work_at_terminal}
"""What the agents of sets with boxes do there."""


async def _timed_rate(episodes: Sequence[Awaitable[None]]) -> float:
    began = time.monotonic()
    await asyncio.gather(*episodes)
    return len(episodes) / (time.monotonic() - began)
