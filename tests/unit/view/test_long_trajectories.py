"""Answers about one trajectory of thousands of steps: what they look at grows with its steps, not with their square."""

from collections.abc import Iterator

import msgspec
import pytest

from agent_layer.schema import Trajectory, assemble_trajectory
from agent_layer.schema.record import Advantages, Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.step import Observation, PromptDelta
from agent_layer.schema.training import TrainedTokens
from agent_layer.view.reads.tokens.forks import lay_out_forks
from agent_layer.view.reads.tokens.tokens import lay_out
from agent_layer.view.reads.trajectories import step_lines

from ...builders import attempt, call, sampled

_NUM = 5_000
_CHAIN = 10
"""Steps that continue one another; then the next chain begins."""
_LOOKS = 16
"""Most looks at each step, or at what belongs to it."""


class _Counted(list):
    """A list that counts how many of its items were looked at."""

    num_seen = 0

    def __iter__(self) -> Iterator:
        for one in super().__iter__():
            _Counted.num_seen += 1
            yield one


@pytest.fixture(scope="module")
def whole() -> Trajectory:
    name, own = "long.0-0", {"trajectory_id": "long.0-0", "run": "r"}
    records = []
    for at in range(_NUM):
        parent = at - 1 if at % _CHAIN else None
        prompt = PromptDelta(
            delta=TokenIds([at]),
            parent_call=None if parent is None else f"{name}/{parent}",
            prefix_length=0 if parent is None else 2 * (at % _CHAIN),
        )
        caller = {"parent_call": f"{name}/{at - 1}"} if at and parent is None else {}
        records += call(name, str(at), sampled(at), at=2.0 + at, prompt=prompt, **caller)
        records.append(
            Observation(**own, observation_id=str(at), name="look", at=2.7 + at, call_id=f"{name}/{at}", output=at)
        )
    rewards = [Reward(**own, reward_id=str(at), at=9.0, score=1.0, scope="step", step=at) for at in range(_NUM)]
    trained = TrainedTokens(
        **own,
        batch_id="b",
        step=1,
        policy_version=1,
        at=9.0,
        calls=_Counted((f"{name}/{at}", 0, 1) for at in range(_NUM)),
        logprobs=Logprobs([-0.5] * _NUM),
        advantages=Advantages([0.5] * _NUM),
        mask=bytes([1] * _NUM),
    )
    found = assemble_trajectory(name, attempt(name, *records, *rewards))
    return msgspec.structs.replace(
        found,
        steps=_Counted(found.steps),
        observations=_Counted(found.observations),
        rewards=_Counted(found.rewards),
        trained=[trained],
    )


@pytest.mark.parametrize(
    "answer",
    [lambda whole: step_lines(whole, {}, whole.steps), lambda whole: lay_out(whole, whole.steps), lay_out_forks],
    ids=["steps", "tokens", "forks"],
)
def test_each_step_is_looked_at_a_few_times(whole, answer):
    _Counted.num_seen = 0
    answer(whole)

    assert _NUM <= _Counted.num_seen <= _LOOKS * _NUM


def test_answers_name_parents_callers_rewards_and_updates(whole):
    lines, parts, forks = step_lines(whole, {}, whole.steps), lay_out(whole, whole.steps), lay_out_forks(whole)

    assert [line.parent for line in lines] == [None, *range(_NUM - 1)]
    assert [part.parent for part in parts] == [at - 1 if at % _CHAIN else None for at in range(_NUM)]
    assert [node.link for node in forks.nodes[: _CHAIN + 1]] == [None, *["tokens"] * (_CHAIN - 1), "call"]
    assert len(forks.rows) == _NUM // _CHAIN
    assert {line.reward for line in lines} == {1.0}
    assert [[one.output for one in line.observations] for line in lines] == [[at] for at in range(_NUM)]
    assert {part.update for part in parts} == {1}
