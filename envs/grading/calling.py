"""Calls a scorer of either form, and makes its answer or failure a verdict; reads numbers of any type as scores."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from typing import TypeAlias, cast

import msgspec

from agent_layer.errors import BadInputError, SandboxError, UnreachableError
from agent_layer.schema import JsonObject, Task, Trajectory, json_value, plain_number, read_score
from envs.failures import ModelCallError, describe_error, is_of_box_commands
from envs.grading.scorer import Scorer, ScoringContext, Verdict

ScorerFunction: TypeAlias = Callable[[Task, Trajectory, object], Awaitable[object] | object]
AnyScorer: TypeAlias = ScorerFunction | Scorer
_SERVER_ERROR = 500


async def call_scorer(scorer: AnyScorer, context: ScoringContext) -> Verdict:
    """Return the scorer's verdict; a failure is one, too, with the reason as ``error`` of its evidence."""
    try:
        if isinstance(scorer, Scorer):
            answer: object = await call_function(scorer.score, context)
        else:
            answer = await call_function(scorer, context.task, context.trajectory, context.result)
    except Exception as error:  # noqa: BLE001  # a scorer may raise anything, and must not fail the worker
        return _judge_failure(error, context.task)
    return read_verdict(answer, only_reward(context.task))


def _judge_failure(error: Exception, task: Task) -> Verdict:
    evidence: JsonObject = {"error": describe_error(error)}
    if is_of_box_commands(error):  # what is judged did that, and so earns nothing
        return Verdict(scores=zero_scores(task), evidence=evidence)
    match error:
        case SandboxError() | UnreachableError():
            return Verdict(status="infra_error", evidence=evidence)
        case ModelCallError(status_code=code) if code >= _SERVER_ERROR:
            return Verdict(status="infra_error", evidence=evidence)
        case TimeoutError():
            return Verdict(status="timeout", evidence=evidence)
        case _:
            return Verdict(status="verifier_error", evidence=evidence)


async def call_function(function: Callable[..., object], *args: object) -> object:
    """Call a function of a scorer, plain or async.

    A plain one runs in a thread of its own, so that it keeps no other scorer waiting, and the end of the process does
    not wait for one that never ends.
    """
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    answered: Future[object] = Future()
    answered.set_running_or_notify_cancel()
    context = copy_context()

    def run() -> None:
        try:
            answered.set_result(context.run(function, *args))
        except BaseException as error:  # noqa: BLE001 - a scorer may raise anything, such as exit()
            can_be_raised = isinstance(error, Exception) and not isinstance(error, StopIteration)
            answered.set_exception(error if can_be_raised else RuntimeError(describe_error(error)))

    Thread(target=run, name="scorer", daemon=True).start()
    answer = await asyncio.wrap_future(answered)
    return await answer if inspect.isawaitable(answer) else answer


def can_score(found: object) -> bool:
    """Whether an object has a form that ``call_scorer`` can call, which takes the arguments of a scorer."""
    if inspect.isroutine(found) or inspect.iscoroutinefunction(found):
        function, num_arguments = found, 3
    else:
        function, num_arguments = None if isinstance(found, type) else getattr(found, "score", None), 1
    try:
        inspect.signature(cast("Callable[..., object]", function)).bind(*[None] * num_arguments)
    except (TypeError, ValueError):  # the latter: a function in C that does not show its arguments
        return False
    return True


def has_shared_judge(scorer: object) -> bool:
    """Whether judged code could force the verdicts of this scorer, because it shares an interpreter with its judge."""
    return getattr(scorer, "judge", "own") == "shared"


def final_answer(trajectory: Trajectory, result: object) -> str:
    """Return the text that an agent returned, else the last text of the policy; empty: there is none."""
    if isinstance(result, str):
        return result
    for step in reversed(trajectory.steps):
        content = (step.action.message or {}).get("content")
        if step.role == "policy" and isinstance(content, str):
            return content
    return ""


def only_reward(task: Task) -> str:
    """Return the name of the reward that a plain number is the score of."""
    return next(iter(task.rewards)) if len(task.rewards) == 1 else "reward"


def zero_scores(task: Task) -> dict[str, float]:
    """Return 0 for each reward of a task."""
    return dict.fromkeys(task.rewards, 0.0) or {only_reward(task): 0.0}


def read_verdict(answer: object, only_reward: str) -> Verdict:
    """Return the answer of a scorer as a verdict, which names what is no finite number.

    Args:
        answer: what it returned.
        only_reward: name of the reward that a plain number is the score of.
    """
    if not isinstance(answer, Verdict):
        return read_scores(answer, only_reward)
    if answer.tampering and answer.status == "ok":
        answer = msgspec.structs.replace(answer, status="tampering")
    found = read_scores(answer.scores, only_reward)
    steps = {step: read_scores(scores, only_reward) for step, scores in answer.step_scores.items()}
    refused = {f"{name} of step {step}": why for step, one in steps.items() for name, why in one.refused.items()}
    return msgspec.structs.replace(
        answer,
        scores=found.scores,
        step_scores={step: one.scores for step, one in steps.items()},
        refused={**answer.refused, **refused, **found.refused},
    )


def read_scores(value: object, only_reward: str) -> Verdict:
    """Return a number, or a mapping of names to numbers, as a verdict; None gives no score."""
    found = cast("Mapping[object, object]", value) if isinstance(value, Mapping) else {only_reward: value}
    scores, refused = dict[str, float](), dict[str, str]()
    for name, score in found.items():
        if score is None:
            continue
        try:
            scores[str(name)] = read_score(score, f"score {str(name)!r}")
        except BadInputError as error:
            refused[str(name)] = str(error)
    return Verdict(scores=scores, refused=refused)


def plain_result(result: object) -> object:
    """Return what an agent returned as JSON, numbers of any type as numbers; NaN and infinities stay what they are."""
    if isinstance(result, Mapping):
        fields = cast("Mapping[object, object]", result)
        if all(isinstance(name, str) for name in fields):
            return {cast("str", name): _plain_field(value) for name, value in fields.items()}
    return _plain_field(cast("object", result))


def _plain_field(value: object) -> object:
    number = plain_number(value)
    return number if isinstance(number, float) else json_value(value if number is None else number)
