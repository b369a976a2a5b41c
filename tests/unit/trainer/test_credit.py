"""Credit: rewards of steps and agents reach the tokens that earned them; expectations are worked out by hand."""

import msgspec
import pytest

from agent_layer.schema.codec import encode
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import AttemptStarted, Group, Outcome
from agent_layer.schema.step import Action, PromptDelta, StepPart
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.consumers.follower import GroupDelivery
from trainer_adapter.algorithms import OverlongPenalty
from trainer_adapter.data.advantages import assign_credit, select_batch
from trainer_adapter.data.credit import CreditRule, returns_to_go
from trainer_adapter.data.groups import read_group
from trainer_adapter.data.replay import rebuild_batch, record_batch

TURN = CreditRule(credit="turn")
AGENT = CreditRule(credit="agent")


def played(name, outcome, *calls, **part_rewards):
    """A trajectory of one-token calls by these agents, step k with a reward ``step_k``, agent a with ``agent_a``.

    The agent ``judge`` is not trained.
    """
    own = {"trajectory_id": f"{name}-0", "run": "r"}
    records = [AttemptStarted(**own, rollout_id=name, attempt=0, task_id="t", started_at=0.0)]
    for number, agent in enumerate(calls):
        answer = Action(response_token_ids=TokenIds([5]), logprobs=Logprobs([-0.1]), policy_versions=[(0, 1)])
        parent = {"parent_call": f"c{number - 1}", "parent_choice": 0, "prefix_length": number * 2} if number else {}
        records.append(
            StepPart(
                **own,
                call_id=f"c{number}",
                source="gateway",
                phase="end",
                at=1.0 + number,
                agent=agent,
                role="aux" if agent == "judge" else "policy",
                prompt=PromptDelta(delta=TokenIds([1]), **parent),
                actions=[answer],
                status="ok",
                capture_level="tokens",
                temperature=1.0,
            )
        )
    records.append(Reward(**own, reward_id=f"{name}/outcome", at=20.0, score=outcome))
    for part, score in part_rewards.items():
        scope, _, rest = part.partition("_")
        place = {"step": int(rest)} if scope == "step" else {"agent": rest}
        status = "ok" if score is not None else "verifier_error"
        judged = {"score": score, "scope": scope, "status": status, **place}
        records.append(Reward(**own, reward_id=f"{name}/{part}", at=21.0, name="part", **judged))
    records.append(Outcome(**own, status="completed", ended_at=30.0))
    return assemble_trajectory(f"{name}-0", records)


def intake(rule, *trajectories):
    members = [one.trajectory_id for one in trajectories]
    group = Group(group_id="g", run="r", task_id="t", closed_at=40.0, group_size=len(members), trajectory_ids=members)
    return read_group(GroupDelivery(group, list(trajectories), lambda: None), 0, 0, rule)


def values_of_tokens(rule, *trajectories):
    """(baseline, value) of each trained token, by row."""
    batch = select_batch([intake(rule, *trajectories).samples], keep_equal=True, rule=rule)
    found = assign_credit(batch, rule)
    return [
        [(found.baselines[value], found.values[value]) for start, size, value in spans for _ in range(size)]
        for spans in found.spans
    ]


def test_a_return_to_go_discounts_what_follows():
    assert returns_to_go([1.0, 0.0, 2.0], 4.0, 0.5) == [1 + 0.5 * 3.0, 0.5 * 6.0, 6.0]
    assert returns_to_go([0.0, 0.0], 1.0, 1.0) == [1.0, 1.0]
    assert returns_to_go([], 1.0, 0.9) == []


def test_each_turn_is_compared_with_the_turn_of_the_same_position():
    long = played("a", 1.0, "x", "x", step_0=0.5)
    short = played("b", 0.0, "x", step_0=-1.0)

    assert values_of_tokens(CreditRule(credit="turn", discount=0.5), long, short) == [
        [("g 0", 0.5 + 0.5 * 1.0), ("g 1", 1.0)],
        [("g 0", -1.0)],
    ]


def test_a_reward_of_a_step_that_is_no_turn_counts_for_the_turn_before_it():
    one = played("a", 0.0, "x", "x", step_5=0.25)
    other = played("b", 0.0, "x", "x", step_0=0.0)

    assert values_of_tokens(TURN, one, other)[0] == [("g 0", 0.25), ("g 1", 0.25)]


def test_a_reward_of_a_step_before_the_first_turn_counts_for_that():
    one = played("a", 0.0, "judge", "x", "x", step_0=0.25)
    other = played("b", 0.0, "judge", "x", "x")

    assert values_of_tokens(TURN, one, other)[0] == [("g 0", 0.25), ("g 1", 0.0)]


def test_each_agent_has_the_teams_reward_and_its_own():
    both = played("a", 1.0, "solver", "critic", agent_solver=0.5)
    other = played("b", 0.0, "solver", "critic", agent_critic=-0.25)

    tokens = values_of_tokens(AGENT, both, other)

    assert sorted({token for row in tokens for token in row}) == [
        ("g 'critic'", -0.25),
        ("g 'critic'", 1.0),
        ("g 'solver'", 0.0),
        ("g 'solver'", 1.5),
    ]


def test_a_judge_whose_rewards_alone_differ_teaches_nothing():
    one, other = (played(name, 1.0, "x", "judge", agent_judge=score) for name, score in (("a", 0.0), ("b", 1.0)))
    distinct = played("c", 1.0, "x", "judge", agent_x=0.5)

    assert not intake(AGENT, one, other).teaches
    assert intake(AGENT, one, distinct).teaches


def test_rewards_of_parts_change_nothing_for_a_rollout_as_a_whole():
    rule = CreditRule()
    with_parts = played("a", 1.0, "x", step_0=0.5, agent_x=3.0)

    batch = select_batch([intake(rule, with_parts, played("b", 0.0, "x")).samples], keep_equal=False, rule=rule)

    assert assign_credit(batch, rule).values == [1.0, 0.0]
    assert batch.reward_ids == [["a/outcome"], ["b/outcome"]]
    assert (batch.turns, batch.agent_rewards) == ([], [])


@pytest.mark.parametrize(("rule", "part"), [(TURN, "step_0"), (AGENT, "agent_x")])
def test_equal_outcomes_teach_where_parts_differ(rule, part):
    trajectories = [played("a", 1.0, "x", **{part: 0.5}), played("b", 1.0, "x")]

    assert intake(rule, *trajectories).teaches
    assert not intake(CreditRule(), *trajectories).teaches
    assert select_batch([intake(rule, *trajectories).samples], keep_equal=False, rule=rule).rewards == [1.0, 1.0]


@pytest.mark.parametrize(("rule", "part"), [(TURN, "step_0"), (AGENT, "agent_x")])
def test_a_judge_that_failed_leaves_its_rollout_out_by_name_and_is_no_zero(rule, part):
    trajectories = [played("a", 1.0, "x", **{part: None}), played("b", 1.0, "x"), played("c", 0.0, "x")]

    group = intake(rule, *trajectories)

    assert [(one.trajectory_id, one.kind) for one in group.excluded] == [("a-0", "unscored")]
    assert [one.trajectory_id for one in group.samples.rollouts] == ["b-0", "c-0"]
    assert intake(CreditRule(), *trajectories).excluded == []


def test_a_rollout_that_is_too_long_loses_reward_in_proportion():
    rule = CreditRule(overlong_penalty=OverlongPenalty(max_tokens=4, buffer_tokens=2))
    trajectories = [played(str(number), 1.0, *["x"] * number) for number in (1, 2, 3, 4, 5)]

    batch = select_batch([intake(rule, *trajectories).samples], keep_equal=False, rule=rule)

    assert assign_credit(batch, rule).values == [1.0, 1.0, 0.5, 0.0, 0.0]
    assert batch.rewards == [1.0] * 5, "the record holds what judges said"


@pytest.mark.parametrize(("rule", "part"), [(TURN, "step_0"), (AGENT, "agent_x")])
def test_a_batch_with_rewards_of_parts_is_rebuilt_to_the_byte_whatever_is_judged_later(rule, part):
    then = [played("a", 1.0, "x", "x", **{part: 0.5}), played("b", 1.0, "x")]
    batch = select_batch([intake(rule, *then).samples], keep_equal=False, rule=rule)
    record = record_batch(batch, "r", 1, 0)

    later = Reward(
        trajectory_id="a-0", run="r", reward_id="later", at=50.0, name="other", score=9.0, scope="step", step=1
    )
    stored = {one.trajectory_id: msgspec.structs.replace(one, rewards=[*one.rewards, later]) for one in then}
    rebuilt = rebuild_batch(record, stored.__getitem__)

    assert rebuilt.differences == []
    assert rebuilt.content == encode(batch)
    assert f"a/{part}" in record.rollouts[0].reward_ids
