"""Samples: every sampled token is trained exactly once, in its own context."""

from array import array

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_layer.errors import BadInputError, CaptureError
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import AttemptStarted, Outcome
from agent_layer.schema.step import Action, PromptDelta, StepPart
from agent_layer.schema.trajectory import assemble_trajectory
from trainer_adapter.data.samples import samples_of

STARTED = AttemptStarted(
    trajectory_id="t-0", rollout_id="t", attempt=0, run="r", task_id="q", started_at=0.0, group_id="g"
)


def call(call_id, answers, delta, *, at=1.0, parent=None, prefix_length=0, **fields):
    """One call of the policy; token k of an answer has log-probability -token/100 and the given version."""
    version = fields.pop("version", 0)
    actions = [
        Action(
            response_token_ids=TokenIds(ids),
            logprobs=Logprobs([-token / 100 for token in ids]),
            policy_versions=[(version, len(ids))],
        )
        for ids in answers
    ]
    parent_call, parent_choice = parent or (None, 0)
    prompt = PromptDelta(
        delta=TokenIds(delta), parent_call=parent_call, parent_choice=parent_choice, prefix_length=prefix_length
    )
    known = {"role": "policy", "status": "ok", "capture_level": "tokens", **fields}
    return StepPart(
        trajectory_id="t-0",
        call_id=call_id,
        run="r",
        source="gateway",
        phase="end",
        at=at,
        prompt=prompt,
        actions=actions,
        **known,
    )


def trajectory_of(*records, started=STARTED):
    return assemble_trajectory("t-0", [started, *records])


@st.composite
def step_trees(draw):
    """Trajectories of several agents, with best-of-n calls, forks, helpers and steps that did not end well."""
    token_lists = st.lists(st.integers(0, 99), min_size=1, max_size=4)
    calls, lengths = [], {}
    for number in range(draw(st.integers(0, 8))):
        parent = draw(st.sampled_from([None, *lengths]))
        answers = draw(st.lists(token_lists, min_size=1, max_size=3))
        delta = draw(token_lists)
        prefix_length = lengths[parent] if parent else 0
        fields = {
            "role": draw(st.sampled_from(["policy", "policy", "policy", "aux"])),
            "status": draw(st.sampled_from(["ok", "ok", "ok", "aborted", "error"])),
            "agent": draw(st.sampled_from(["writer", "critic"])),
            "temperature": draw(st.sampled_from([1.0, 0.7])),
            "version": draw(st.integers(0, 3)),
        }
        call_id = f"c{number}"
        calls.append(
            call(call_id, answers, delta, at=float(number), parent=parent, prefix_length=prefix_length, **fields)
        )
        for choice, answer in enumerate(answers):
            lengths[call_id, choice] = prefix_length + len(delta) + len(answer)
    return trajectory_of(*calls)


@given(step_trees())
def test_every_sampled_token_is_trained_exactly_once(trajectory):
    found = samples_of(trajectory)

    sampled = sum(len(step.action.response_token_ids) for step in trajectory.steps if step.role == "policy")
    trained = sum(sum(sample.loss_mask) for sample in found.samples)
    assert trained + sum(drop.num_tokens for drop in found.drops) == sampled
    refs = [(ref.call_id, ref.choice) for sample in found.samples for ref in sample.steps]
    ended_well = [step for step in trajectory.steps if step.role == "policy" and step.status == "ok"]
    assert sorted(refs) == sorted((step.call_id, step.choice) for step in ended_well)


@given(step_trees())
def test_each_trained_token_stands_behind_what_the_engine_saw(trajectory):
    steps = {(step.call_id, step.choice): step for step in trajectory.steps}

    for sample in samples_of(trajectory).samples:
        ids = sample.prompt_ids + sample.response_ids
        for ref in sample.steps:
            step = steps[ref.call_id, ref.choice]
            begin = len(sample.prompt_ids) + ref.start
            assert ids[:begin] == step.prompt_token_ids
            assert ids[begin : begin + ref.num_tokens] == step.action.response_token_ids


@given(step_trees())
def test_masks_logprobs_and_versions_line_up_with_the_tokens(trajectory):
    steps = {(step.call_id, step.choice): step for step in trajectory.steps}

    for sample in samples_of(trajectory).samples:
        size = len(sample.response_ids)
        mask, logprobs, versions = array("i", [0] * size), array("f", [0.0] * size), array("i", [-1] * size)
        for ref in sample.steps:
            step, where = steps[ref.call_id, ref.choice], slice(ref.start, ref.start + ref.num_tokens)
            mask[where] = array("i", [1] * ref.num_tokens)
            logprobs[where] = step.action.logprobs
            versions[where] = array("i", [step.action.policy_versions[0][0]] * ref.num_tokens)
        assert (sample.loss_mask, sample.logprobs, sample.versions) == (mask, logprobs, versions)
        assert sample.loss_mask[-1] == 1
        assert {(steps[ref.call_id, ref.choice].agent, steps[ref.call_id, ref.choice].temperature)} == {
            (sample.agent, sample.temperature) for ref in sample.steps
        }


def test_a_conversation_with_tools_is_one_sample():
    first = call("a", [[3, 4]], [1, 2], at=1.0)
    second = call("b", [[6]], [5], at=2.0, parent=("a", 0), prefix_length=4, version=1)
    reward = Reward(trajectory_id="t-0", reward_id="w", run="r", at=3.0, score=0.5)

    (sample,) = samples_of(trajectory_of(first, second, reward)).samples

    assert list(sample.prompt_ids) == [1, 2]
    assert list(sample.response_ids) == [3, 4, 5, 6]
    assert list(sample.loss_mask) == [1, 1, 0, 1]
    assert list(sample.versions) == [0, 0, -1, 1]
    assert list(sample.logprobs) == pytest.approx([-0.03, -0.04, 0.0, -0.06])
    assert (sample.reward, sample.group_id, sample.task_id, sample.sample_id) == (0.5, "g", "q", "t-0.0")


def test_two_interleaved_agents_give_two_samples_however_many_turns_they_take():
    records, lengths, last = [], {"x": 0, "y": 0}, {"x": None, "y": None}
    for turn in range(10):
        agent = "xy"[turn % 2]
        parent = (last[agent], 0) if last[agent] else None
        call_id = f"{agent}{turn}"
        records.append(
            call(call_id, [[7]], [8], at=float(turn), parent=parent, prefix_length=lengths[agent], agent=agent)
        )
        lengths[agent], last[agent] = lengths[agent] + 2, call_id

    samples = samples_of(trajectory_of(*records)).samples

    assert [(sample.agent, sum(sample.loss_mask)) for sample in samples] == [("x", 5), ("y", 5)]


def test_four_samples_of_one_prompt_are_all_trained():
    samples = samples_of(trajectory_of(call("a", [[3], [4], [3], [5]], [1, 2]))).samples

    assert [list(sample.response_ids) for sample in samples] == [[3], [4], [3], [5]]


def test_a_shared_beginning_is_context_in_the_second_branch():
    root = call("a", [[3]], [1], at=1.0)
    branches = [call(name, [[6]], [5], at=2.0, parent=("a", 0), prefix_length=2) for name in "bc"]

    samples = samples_of(trajectory_of(root, *branches)).samples

    assert [list(sample.loss_mask) for sample in samples] == [[1, 0, 1], [0, 0, 1]]


def test_an_infrastructure_failure_is_not_a_reward_of_zero():
    reward = Reward(trajectory_id="t-0", reward_id="w", run="r", at=3.0, score=0.0)
    failed = Outcome(trajectory_id="t-0", run="r", status="failed", cause="infra", ended_at=4.0)

    (sample,) = samples_of(trajectory_of(call("a", [[3]], [1]), reward, failed)).samples

    assert sample.reward is None


def test_a_step_that_never_ended_is_listed():
    started = StepPart(trajectory_id="t-0", call_id="a", run="r", source="gateway", phase="start", at=1.0)

    found = samples_of(trajectory_of(started))

    assert [(drop.call_id, drop.reason, drop.num_tokens) for drop in found.drops] == [("a", "unfinished", 0)]
    assert not found.samples


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"actions": [Action(message={"content": "text"})]}, "ids of its answer"),
        ({"actions": [Action(response_token_ids=TokenIds([3]), policy_versions=[(0, 1)])]}, "log-probability"),
        ({"actions": [Action(response_token_ids=TokenIds([3]), logprobs=Logprobs([0.0]))]}, "policy version"),
        ({"prompt": None}, "ids of its prompt"),
        ({"temperature": 0.0}, "temperature above 0"),
        ({"temperature": 0.7, "logprobs_mode": "raw"}, "processed log-probabilities"),
    ],
)
def test_a_step_that_cannot_be_trained_fails_loudly(change, named):
    step = msgspec.structs.replace(call("a", [[3]], [1]), **change)

    with pytest.raises(CaptureError, match=named):
        samples_of(trajectory_of(step))


def test_eval_rollouts_never_become_samples():
    started = msgspec.structs.replace(STARTED, split="eval")

    with pytest.raises(BadInputError, match="split 'train'"):
        samples_of(trajectory_of(call("a", [[3]], [1]), started=started))
