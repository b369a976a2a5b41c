"""Calls a scorer of either form, and makes its answer or failure a verdict."""

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from agent_layer.errors import SandboxError, UnreachableError
from agent_layer.schema import Task, Trajectory
from envs.failures import ModelCallError, describe_error
from envs.grading.scorer import Scorer, ScoringContext, Verdict
from envs.grading.verdict_reader import read_verdict

ScorerFunction: TypeAlias = Callable[[Task, Trajectory, object], Awaitable[object]]
AnyScorer: TypeAlias = ScorerFunction | Scorer
_SERVER_ERROR = 500


async def call_scorer(scorer: AnyScorer, context: ScoringContext) -> Verdict:
    """Return the scorer's verdict; a failure is one, too, with the reason as ``error`` of its evidence."""
    try:
        if isinstance(scorer, Scorer):
            answer: object = await scorer.score(context)
        else:
            answer = await scorer(context.task, context.trajectory, context.result)
    except (SandboxError, UnreachableError) as error:
        return Verdict(status="infra_error", evidence={"error": describe_error(error)})
    except ModelCallError as error:
        status = "infra_error" if error.status_code >= _SERVER_ERROR else "verifier_error"
        return Verdict(status=status, evidence={"error": describe_error(error)})
    except TimeoutError as error:
        return Verdict(status="timeout", evidence={"error": describe_error(error)})
    except Exception as error:  # noqa: BLE001  # a scorer may raise anything, and must not fail the worker
        return Verdict(status="verifier_error", evidence={"error": describe_error(error)})
    return read_verdict(answer, only_reward(context.task))


def can_score(found: object) -> bool:
    """Whether an object has a form that ``call_scorer`` can call."""
    return inspect.iscoroutinefunction(found if inspect.isroutine(found) else getattr(found, "score", found))


def only_reward(task: Task) -> str:
    """Return the name of the reward that a plain number is the score of."""
    return next(iter(task.rewards)) if len(task.rewards) == 1 else "reward"
