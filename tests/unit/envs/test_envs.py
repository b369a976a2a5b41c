"""Pure parts of workers: which party caused an error, and how results become scores."""

import pickle

import pytest
from langgraph.errors import GraphRecursionError

from agent_layer.schema.reward import Reward
from agent_layer.schema.task import RewardSpec, Task
from envs.failures import ModelCallError, classify_failure
from envs.scorers import declared_rewards, load_scorer, missing_scores, reported_scores

MaxTurnsExceeded = type("MaxTurnsExceeded", (Exception,), {"__module__": "agents.exceptions"})  # 2 s to import


class RefusedError(Exception):
    """Has the shape of an SDK's error."""

    def __init__(self, status_code, code=None):
        super().__init__(f"refused with {status_code}")
        self.status_code, self.code = status_code, code


def raised_from(inner):
    error = ValueError("agent stumbled")
    error.__cause__ = inner
    return error


@pytest.mark.parametrize(
    ("error", "status", "cause"),
    [
        (ValueError("broke"), "failed", "user"),
        (RefusedError(400), "failed", "user"),
        (RefusedError(429, "rollout_limit"), "truncated", "policy"),
        (raised_from(RefusedError(429, "rollout_limit")), "truncated", "policy"),
        (ExceptionGroup("parallel tools", [RefusedError(429, "rollout_limit")]), "truncated", "policy"),
        (MaxTurnsExceeded("10 turns"), "truncated", "policy"),
        (raised_from(GraphRecursionError("25 steps")), "truncated", "policy"),
        (RefusedError(502), "lost", "infra"),
        (ConnectionResetError(), "lost", "infra"),
        (raised_from(TimeoutError()), "lost", "infra"),
    ],
)
def test_who_is_to_blame(error, status, cause):
    ending = classify_failure(error)

    assert (ending.status, ending.cause) == (status, cause)


def test_an_error_that_leads_back_to_itself_is_looked_at_once():
    error = ValueError("a")
    error.__context__ = other = ValueError("b")
    other.__context__ = error

    assert classify_failure(error).cause == "user"


def test_a_refused_call_pickles():
    error = pickle.loads(pickle.dumps(ModelCallError("call c: refused", 503)))

    assert (str(error), error.status_code) == ("call c: refused", 503)


def task(**rewards):
    return Task(id="t", run="r", rewards=rewards)


@pytest.mark.parametrize(
    ("declared", "result", "scores"),
    [
        ({}, 1, {"reward": 1.0}),
        ({}, True, {"reward": 1.0}),
        ({"found": RewardSpec()}, 0.5, {"found": 0.5}),
        ({"a": RewardSpec(), "b": RewardSpec()}, 0.5, {"reward": 0.5}),
        ({}, {"a": 1, "b": 0.25}, {"a": 1.0, "b": 0.25}),
        ({}, {"a": 1, "b": "no number"}, {}),
        ({}, None, {}),
        ({}, "42", {}),
        ({}, float("nan"), {}),
    ],
)
def test_results_read_as_scores(declared, result, scores):
    assert reported_scores(task(**declared), result) == scores


def test_under_a_scorer_only_declared_rewards_count():
    async def scorer(*_):
        return 1.0

    assert declared_rewards(task(), scorer) == {"reward": RewardSpec()}
    assert declared_rewards(task(), None) == {}
    assert declared_rewards(task(a=RewardSpec()), scorer) == {"a": RewardSpec()}
    assert load_scorer("agent") is None


def judged(name, status="ok"):
    score = 1.0 if status == "ok" else None
    return Reward(trajectory_id="x", reward_id=name, run="r", at=0.0, name=name, score=score, status=status)


def test_out_of_turns_earns_nothing_only_where_nothing_was_judged():
    declared = task(a=RewardSpec(), b=RewardSpec(), c=RewardSpec(required=False))

    assert missing_scores(declared, [judged("a"), judged("b", "missing")]) == {"b": 0.0}
    assert missing_scores(task(), []) == {"reward": 0.0}
    assert missing_scores(task(), [judged("any")]) == {}
