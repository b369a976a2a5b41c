"""Rollout speed of the main job: the same agent through the whole layer, and straight to vLLM."""

import asyncio
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench_table import Figure

from agent_layer.dispatcher import connect
from agent_layer.infra.processes.supervised import start_supervised
from agent_layer.local.stack import Stack, run_stack
from agent_layer.local.vllm import VllmServer
from agent_layer.schema.task import Task
from agent_layer.settings import Settings
from agent_layer.store import open_store
from envs.tasksets.guess_number import agent
from envs.tasksets.guess_number.game import HIGHEST

__all__ = ["measure_rollouts"]

NUM_GAMES = 240
NUM_ROUNDS = 3
SLOTS = 16
NUMBERS = {"allowed_token_ids": list(range(12, 12 + HIGHEST))}
"""Only numbers of the game: the untrained model would end most games with a foul at its first word."""


def measure_rollouts(directory: Path, model: Path) -> list[Figure]:
    """Play the same games both ways, in turns, and compare calls per second."""
    settings = Settings(dir=directory, run="bench")
    server = VllmServer(model=model, log=directory / "vllm.log", max_model_len=64)
    with run_stack(settings, server) as stack:
        work = [
            sys.executable,
            "-m",
            "agent_layer.cli",
            "work",
            "envs.tasksets.guess_number.agent:play",
            f"--slots={SLOTS}",
        ]
        worker = start_supervised(work, stack.settings.environment(), directory / "worker.log")
        with ExitStack() as cleanup:
            cleanup.callback(worker.stop)
            loop = cleanup.enter_context(asyncio.Runner())
            pairs = [
                (_through_the_layer(stack, number), loop.run(_straight(stack.engine.url)))
                for number in range(NUM_ROUNDS + 1)
            ][1:]
    ours, floor = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
    ratio = median(pair[0] / pair[1] for pair in pairs)
    what = f"main job's rollouts, {SLOTS} at a time, calls/s (floor: the same agent straight to vLLM)"
    return [Figure(what, f"{ours:.1f}", f"{floor:.1f}", f"{ratio:.2f}", "≥ 0.8")]


def _through_the_layer(stack: Stack, number: int) -> float:
    tasks = [
        Task(
            id=f"g{hidden}",
            run="bench",
            input={"hidden": hidden},
            scorer="agent",
            group_size=NUM_GAMES // HIGHEST,
            sampling=NUMBERS,
        )
        for hidden in range(1, HIGHEST + 1)
    ]
    dispatcher, store = connect(stack.settings), open_store(stack.settings)
    began = time.monotonic()
    groups = dispatcher.submit(tasks, round=number)
    dispatcher.wait(groups, timeout=300)
    seconds = time.monotonic() - began
    found = store.query(run="bench", since=f"{seconds + 1:.0f}s", limit=1000).items
    return sum(row.num_steps for row in found if row.group_id in groups) / seconds


async def _straight(url: str) -> float:
    agent.model.root_async_client.base_url = f"{url}/v1/"
    agent.model.extra_body = NUMBERS
    free = asyncio.Semaphore(SLOTS)

    async def play(hidden: int) -> int:
        async with free:
            return len((await agent.graph.ainvoke(agent.new_game(hidden)))["guesses"])

    began = time.monotonic()
    num_calls = sum(await asyncio.gather(*(play(1 + number % HIGHEST) for number in range(NUM_GAMES))))
    return num_calls / (time.monotonic() - began)
