"""This file holds scorers: how what came out of an attempt becomes rewards, outside the agent.

A scorer is ``async def score(task, trajectory, result) -> float | dict | None``. It sees the grading and the
stored
trajectory, and runs when the agent has ended and can change nothing any more. The scorer ``agent`` is none: the
agent's own report counts, for tasks that trust it.
"""

import asyncio
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from numbers import Real
from typing import TypeAlias, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import Reward, RewardSource, RewardSpec, RewardStatus, Task, Trajectory, current_rewards, new_id
from envs.failures import describe
from envs.registry import find_object, hash_scorer

AGENT = "agent"
"""Name of the scorer that leaves the judgement to the agent."""

Scorer: TypeAlias = Callable[[Task, Trajectory, object], Awaitable[object]]


def load_scorer(name: str) -> Scorer | None:
    """Find the scorer of this name; None for the agent itself.

    Raises: BadInputError: there is none, or it is no coroutine function.
    """
    if name == AGENT:
        return None
    found = find_object(name, "scorer")
    if not inspect.iscoroutinefunction(found):
        raise BadInputError(
            f"scorer {name!r}: expected 'async def score(task, trajectory, result)', found {type(found).__name__};"
            " make it a coroutine function"
        )
    return cast("Scorer", found)


def declared_rewards(task: Task, scorer: Scorer | str | None) -> dict[str, RewardSpec]:
    """Rewards that count. Under a scorer never an undeclared one, which the agent could have reported itself."""
    return task.rewards or ({"reward": RewardSpec()} if scorer else {})


def reported_scores(task: Task, result: object) -> dict[str, float]:
    """Read what an agent or scorer gave as scores by name; empty when it gave none.

    A plain number is the score of the only declared reward, else of ``reward``.
    """
    if isinstance(result, Mapping):
        found = {str(name): _score(value) for name, value in cast("Mapping[object, object]", result).items()}
        scores = {name: score for name, score in found.items() if score is not None}
        return scores if len(scores) == len(found) else {}
    score = _score(result)
    if score is None:
        return {}
    return {next(iter(task.rewards)) if len(task.rewards) == 1 else "reward": score}


def missing_scores(task: Task, rewards: Iterable[Reward]) -> dict[str, float]:
    """What a policy that ran out of turns or tokens gets where it earned nothing: 0 for each required reward.

    Args:
        task: what was tried.
        rewards: what was judged so far.
    """
    given = {one.name for one in current_rewards(list(rewards)) if one.scope == "rollout" and one.status != "missing"}
    if not task.rewards:
        return {} if given else {"reward": 0.0}
    return {name: 0.0 for name, spec in task.rewards.items() if spec.required and name not in given}


async def judge(scorer: Scorer, task: Task, trajectory: Trajectory, result: object, seconds: float) -> list[Reward]:
    """Let the scorer judge, under its version. A reward that it does not give is null and says why.

    Args:
        scorer: who judges.
        task: with its grading.
        trajectory: as it is stored.
        result: what the agent returned.
        seconds: longest time that it may take.
    """
    rewards = await _ask(scorer, task, trajectory, result, seconds)
    return [msgspec.structs.replace(reward, verifier_hash=hash_scorer(scorer)) for reward in rewards]


async def _ask(scorer: Scorer, task: Task, trajectory: Trajectory, result: object, seconds: float) -> list[Reward]:
    declared, trajectory_id = declared_rewards(task, scorer), trajectory.trajectory_id
    try:
        async with asyncio.timeout(seconds):
            given = await scorer(task, trajectory, result)
    except TimeoutError:
        error = f"the scorer took longer than score_seconds ({seconds:g})"
        return null_rewards(task, trajectory_id, declared, "timeout", error)
    except Exception as error:  # noqa: BLE001  # a scorer may raise anything; its failure is no failure of the worker
        return null_rewards(task, trajectory_id, declared, "verifier_error", describe(error))
    scores = _total(task, reported_scores(task, given))
    absent = [name for name in declared if name not in scores]
    rewards = make_rewards(task, trajectory_id, scores, "verifier")
    return rewards + null_rewards(task, trajectory_id, absent, "missing", "the scorer did not give it")


def make_rewards(task: Task, trajectory_id: str, scores: Mapping[str, float], source: RewardSource) -> list[Reward]:
    """Write scores down."""
    return [
        Reward(
            trajectory_id=trajectory_id,
            reward_id=new_id(),
            run=task.run,
            at=time.time(),
            name=name,
            score=score,
            source=source,
        )
        for name, score in scores.items()
    ]


def null_rewards(
    task: Task, trajectory_id: str, names: Iterable[str], status: RewardStatus, error: str
) -> list[Reward]:
    """Write down that there is no judgement, which is not zero."""
    return [
        Reward(
            trajectory_id=trajectory_id,
            reward_id=new_id(),
            run=task.run,
            at=time.time(),
            name=name,
            source="verifier",
            status=status,
            error=error,
        )
        for name in names
    ]


def _total(task: Task, scores: dict[str, float]) -> dict[str, float]:
    """Where the task declares nothing, the sum of what a scorer gave is the reward."""
    if task.rewards or "reward" in scores or not scores:
        return scores
    return {**scores, "reward": sum(scores.values())}


def _score(value: object) -> float | None:
    """The value as a number, NumPy's scalars included; None when it is none, or too large to be one."""
    if not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
