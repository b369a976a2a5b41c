"""Scorers: turn the outcome of an attempt into rewards, outside of the agent.

A scorer is ``async def score(task, trajectory, result) -> float | dict | None``, or a ``Scorer`` with
``async def score(self, context)``. It sees the grading and the stored trajectory, and runs after the agent has ended.
With the scorer ``agent`` no scorer runs: the agent's own report counts, for tasks that trust it.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import (
    TAMPERING,
    Reward,
    RewardSource,
    RewardSpec,
    RewardStatus,
    Task,
    current_rewards,
    json_text,
    new_id,
    plain_number,
)
from envs.grading import (
    AnyScorer,
    GroupScorer,
    ScoringRun,
    Verdict,
    call_scorer,
    can_score,
    has_shared_judge,
    only_reward,
    read_scores,
    zero_scores,
)
from envs.registry import find_object, hash_scorer

AGENT = "agent"
"""Name of the scorer with which the agent reports its own scores."""
FAILED_STATUSES: Final[frozenset[RewardStatus]] = frozenset({"verifier_error", "infra_error", "timeout"})
"""The scorer, or what it stands on, failed: no judgement, and it is asked again."""
_MAX_EVIDENCE_LENGTH = 4000
"""Characters of evidence that a reward keeps."""
_MAX_ERROR_LENGTH = 2000


def load_scorer(name: str) -> AnyScorer | None:
    """Find the scorer of this name; None for the agent itself. A class is made into one object per process.

    Raises: BadInputError: no such scorer exists, or it has no form that can score.
    """
    if name == AGENT:
        return None
    found = find_object(name, "scorer")
    if isinstance(found, type):
        found = _make_scorer(name, cast("type[object]", found))
    if not can_score(found):
        raise BadInputError(
            f"scorer {name!r}: is a {type(found).__name__}, neither 'def score(task, trajectory, result)' nor an object"
            " with 'def score(self, context)', each plain or async; make it one of these"
        )
    return cast("AnyScorer", found)


@cache
def _make_scorer(name: str, kind: type[object]) -> object:
    try:
        return kind()
    except Exception as error:  # its constructor may raise anything
        raise BadInputError(
            f"scorer {name!r}: {kind.__name__}() failed with {error!r}; name an object of it, or give its arguments"
            " defaults"
        ) from error


def load_group_scorer(name: str) -> GroupScorer | None:
    """Find the scorer of this name if it judges whole groups; None: it judges single attempts, or is the agent.

    Raises: BadInputError: no such scorer exists.
    """
    found = None if name == AGENT else find_object(name, "scorer")
    if isinstance(found, type) and hasattr(cast("type[object]", found), "score_group"):
        found = _make_scorer(name, cast("type[object]", found))
    return found if isinstance(found, GroupScorer) and not isinstance(found, type) else None


def declared_rewards(task: Task, scorer: object) -> dict[str, RewardSpec]:
    """Return the rewards that count. With a scorer, undeclared ones never do: the agent could have reported them."""
    return task.rewards or ({"reward": RewardSpec()} if scorer else {})


def reported_scores(task: Task, result: object) -> dict[str, float]:
    """Parse the return value of an agent as scores by name; empty when it has none.

    A plain number, of any type, is the score of the only declared reward, else of ``reward``. Where the task declares
    no rewards, a mapping with anything but finite numbers has none.
    """
    report = read_scores(result, only_reward(task))
    return report.scores if task.rewards or not report.refused else {}


def explain_no_score(task: Task, result: object, rewards: Iterable[Reward]) -> dict[str, str]:
    """Return why what an agent returned is no score, by name of the reward.

    Where the task declares rewards, anything else than a finite number in their place is none. Elsewhere NaN and
    infinities are none, and texts are results.

    Args:
        task: the attempt's task.
        result: what the agent returned.
        rewards: rewards so far; what they judge needs no explanation.
    """
    only = only_reward(task)
    refused = read_scores(result, only).refused
    given = {one.name for one in current_rewards(list(rewards)) if one.scope == "rollout"}
    if task.rewards:
        return {name: why for name, why in refused.items() if name in task.rewards and name not in given}
    named = cast("Mapping[object, object]", result) if isinstance(result, Mapping) else {only: result}
    numbers = [
        refused[str(name)] for name, one in named.items() if str(name) in refused and plain_number(one) is not None
    ]
    return {only: "; ".join(numbers)[:_MAX_ERROR_LENGTH]} if numbers and not given else {}


def make_report(task: Task, trajectory_id: str, result: object, known: Iterable[Reward] = ()) -> list[Reward]:
    """Return the rewards that an agent returned; what is no score is null and says why.

    Args:
        task: the attempt's task.
        trajectory_id: the attempt.
        result: what the agent returned.
        known: rewards so far; what they judge is not made null.
    """
    rewards = make_rewards(task, trajectory_id, reported_scores(task, result), "agent")
    for name, why in explain_no_score(task, result, [*known, *rewards]).items():
        rewards += null_rewards(task, trajectory_id, [name], "missing", why, "agent")
    return rewards


def missing_scores(task: Task, rewards: Iterable[Reward]) -> dict[str, float]:
    """Return 0 for each required reward that a truncated attempt has not earned.

    Args:
        task: the attempt's task.
        rewards: rewards so far.
    """
    given = {one.name for one in current_rewards(list(rewards)) if one.scope == "rollout" and one.status != "missing"}
    if not task.rewards:
        return {} if given else {"reward": 0.0}
    return {name: 0.0 for name, spec in task.rewards.items() if spec.required and name not in given}


async def run_scorer(scorer: AnyScorer, run: ScoringRun, seconds: float, name: str | None = None) -> list[Reward]:
    """Run the scorer, close what it took, and return its rewards with its name and version.

    A missing reward is null and says why. When a box was lost every reward is null, whatever the scorer answers.
    Out of time it is null; 0 if a command still ran in a box that answers, for that is what is judged.

    Args:
        scorer: the scorer.
        run: what it sees.
        seconds: its longest time.
        name: under which it was found; None: not known.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            verdict = await call_scorer(scorer, run)
    except TimeoutError:
        error = f"the scorer took longer than score_seconds ({seconds:g})"
        if await run.was_commanding(limit.when()):  # what is judged was slow
            verdict = Verdict(scores=zero_scores(run.task), evidence={"error": error})
        else:
            verdict = Verdict(status="timeout", evidence={"error": error})
    finally:
        await run.close()
    if run.lost is not None:
        verdict = Verdict(status="infra_error", evidence={"error": run.lost})
    rewards = _make_verdict_rewards(run, declared_rewards(run.task, scorer), verdict)
    version, judge = hash_scorer(scorer), "shared" if verdict.judge == "shared" or has_shared_judge(scorer) else None
    return [msgspec.structs.replace(one, scorer=name, verifier_hash=version, judge=judge) for one in rewards]


def _make_verdict_rewards(run: ScoringRun, declared: Mapping[str, RewardSpec], verdict: Verdict) -> list[Reward]:
    task, trajectory_id = run.task, run.trajectory.trajectory_id
    match verdict.status:
        case "ok":
            refused = verdict.refused
            scores = _total(task, verdict.scores) if task.rewards or not refused else {}  # no sum of a part
            absent = [name for name in declared if name not in scores]
            rewards = make_rewards(task, trajectory_id, scores, "verifier")
            for name in dict.fromkeys([*absent, *refused]):
                why = refused.get(name) or "; ".join(refused.values()) or "the scorer did not give it"
                rewards += null_rewards(task, trajectory_id, [name], "missing", why[:_MAX_ERROR_LENGTH])
            rewards += [
                msgspec.structs.replace(reward, scope="step", step=step)
                for step, given in verdict.step_scores.items()
                for reward in make_rewards(task, trajectory_id, given, "verifier")
            ]
        case "tampering":
            found = "; ".join(verdict.tampering)[:_MAX_ERROR_LENGTH] or "the scorer found tampering"
            rewards = [
                msgspec.structs.replace(reward, status=TAMPERING, error=found)
                for reward in make_rewards(task, trajectory_id, dict.fromkeys(declared, 0.0), "verifier")
            ]
        case status:
            error = str(verdict.evidence.get("error", f"the scorer answered {status}"))[:_MAX_ERROR_LENGTH]
            return null_rewards(task, trajectory_id, declared, status, error)
    if verdict.evidence and rewards:
        evidence = json_text(verdict.evidence).decode()[:_MAX_EVIDENCE_LENGTH]
        rewards[0] = msgspec.structs.replace(rewards[0], comment=evidence)
    return rewards


def make_rewards(task: Task, trajectory_id: str, scores: Mapping[str, float], source: RewardSource) -> list[Reward]:
    """Return scores as rewards."""
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
    task: Task,
    trajectory_id: str,
    names: Iterable[str],
    status: RewardStatus,
    error: str,
    source: RewardSource = "verifier",
) -> list[Reward]:
    """Return rewards without a score, which is not zero."""
    return [
        Reward(
            trajectory_id=trajectory_id,
            reward_id=new_id(),
            run=task.run,
            at=time.time(),
            name=name,
            source=source,
            status=status,
            error=error,
        )
        for name in names
    ]


def _total(task: Task, scores: dict[str, float]) -> dict[str, float]:
    """Add the sum as the reward, if the task declares none."""
    if task.rewards or "reward" in scores or not scores:
        return scores
    return {**scores, "reward": sum(scores.values())}
