"""Samples: every sampled token is trained exactly once, in its own context."""

from array import array

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from agent_layer.errors import BadInputError, CaptureError
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.step import Action, StepPart
from trainer_adapter.data.samples import read_samples, samples_of

from ...profiles import num_examples
from .step_trees import STARTED, call, make_trajectory, step_trees


def action_with(**fields):
    known = {"response_token_ids": TokenIds([3]), "logprobs": Logprobs([-0.1]), "policy_versions": [(0, 1)], **fields}
    return {"actions": [Action(**known)]}


FAULTS = {
    "no answer ids": ({"actions": [Action(message={"content": "text"})]}, "no_token_ids", "ids of its answer"),
    "no prompt ids": ({"prompt": None}, "no_token_ids", "ids of its prompt"),
    "a judge without a role": (
        {"source": "hook", "prompt": None, "actions": [Action(message={})], "capture_level": "text"},
        "no_token_ids",
        "needs the role 'aux'",
    ),
    "no log-probabilities": (action_with(logprobs=None), "no_logprobs", "log-probability"),
    "no version": (action_with(policy_versions=None), "no_policy_version", "policy version"),
    "a version before the first": (action_with(policy_versions=[(-1, 1)]), "no_policy_version", "policy version"),
    "versions that add up by chance": (
        action_with(policy_versions=[(0, -1), (1, 2)]),
        "no_policy_version",
        "policy version",
    ),
    "an image": ({"findings": ["images"]}, "images", "prompt without images"),
    "greedy": ({"temperature": 0.0}, "greedy", "temperature above 0"),
    "as good as greedy": ({"temperature": 0.005}, "greedy", "temperature above 0"),
    "a temperature that is no number": ({"temperature": float("nan")}, "greedy", "temperature above 0"),
    "unknown temperature": (
        {"temperature": None, "sampling_applied": {"max_tokens": 4}},
        "unknown_temperature",
        "temperature at which",
    ),
    "no sampling recorded": ({"temperature": None}, "unknown_temperature", "temperature at which"),
    "raw": ({"temperature": 0.7, "logprobs_mode": "raw"}, "raw_logprobs", "processed log-probabilities"),
    "unknown kind": ({"temperature": 0.7, "logprobs_mode": None}, "unknown_logprobs", "raw or processed"),
    "NaN": (action_with(logprobs=Logprobs([float("nan")])), "bad_logprobs", "above -9999"),
    "infinite": (action_with(logprobs=Logprobs([float("-inf")])), "bad_logprobs", "above -9999"),
    "clamped by vLLM": (action_with(logprobs=Logprobs([-9999.0])), "bad_logprobs", "above -9999"),
    "top_p": ({"sampling_applied": {"top_p": 0.8}}, "unreproducible:top_p", "without top_p"),
    "only asked": ({"sampling_asked": {"top_k": 50}}, "unreproducible:top_k", "without top_k"),
    "a finding": ({"findings": ["unreproducible:logit_bias"]}, "unreproducible:logit_bias", "without logit_bias"),
}


@st.composite
def faulty_lives(draw):
    """Trees with up to two more calls that cannot be trained; also the kinds of the faults that count."""
    records, kinds = list(draw(step_trees(as_records=True))), []
    for name in draw(st.lists(st.sampled_from(sorted(FAULTS)), max_size=2)):
        change, kind, _ = FAULTS[name]
        place = {
            "role": draw(st.sampled_from(["policy", None, "aux"])),
            "status": draw(st.sampled_from(["ok", "aborted"])),
        }
        at = draw(st.floats(0, 9))
        records.append(msgspec.structs.replace(call(f"f{len(records)}", [[3]], [1], at=at, **place), **change))
        if place["role"] != "aux" and place["status"] == "ok":
            kinds.append(kind)
    return make_trajectory(*draw(st.permutations(records))), kinds


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

    (sample,) = samples_of(make_trajectory(first, second, reward)).samples

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

    samples = samples_of(make_trajectory(*records)).samples

    assert [(sample.agent, sum(sample.loss_mask)) for sample in samples] == [("x", 5), ("y", 5)]


def test_four_samples_of_one_prompt_are_all_trained():
    samples = samples_of(make_trajectory(call("a", [[3], [4], [3], [5]], [1, 2]))).samples

    assert [list(sample.response_ids) for sample in samples] == [[3], [4], [3], [5]]


def test_a_shared_beginning_is_context_in_the_second_branch():
    root = call("a", [[3]], [1], at=1.0)
    branches = [call(name, [[6]], [5], at=2.0, parent=("a", 0), prefix_length=2) for name in "bc"]

    samples = samples_of(make_trajectory(root, *branches)).samples

    assert [list(sample.loss_mask) for sample in samples] == [[1, 0, 1], [0, 0, 1]]


def test_an_infrastructure_failure_is_not_a_reward_of_zero():
    reward = Reward(trajectory_id="t-0", reward_id="w", run="r", at=3.0, score=0.0)
    failed = Outcome(trajectory_id="t-0", run="r", status="failed", cause="infra", ended_at=4.0)

    (sample,) = samples_of(make_trajectory(call("a", [[3]], [1]), reward, failed)).samples

    assert sample.reward is None


def test_a_step_that_never_ended_is_listed():
    started = StepPart(trajectory_id="t-0", call_id="a", run="r", source="gateway", phase="start", at=1.0)

    found = samples_of(make_trajectory(started))

    assert [(drop.call_id, drop.reason, drop.num_tokens) for drop in found.drops] == [("a", "unfinished", 0)]
    assert not found.samples


@pytest.mark.parametrize(("change", "kind", "named"), FAULTS.values(), ids=FAULTS)
def test_a_step_that_cannot_be_trained_fails_loudly_and_excludes_its_rollout_by_name(change, kind, named):
    trajectory = make_trajectory(call("b", [[3]], [1]), msgspec.structs.replace(call("a", [[3]], [1]), **change))

    excluded = read_samples(trajectory)

    assert (excluded.trajectory_id, excluded.kind) == ("t-0", kind)
    assert named in excluded.reason
    with pytest.raises(CaptureError, match=named):
        samples_of(trajectory)


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"findings": ["unreproducible:tools.strict"]}, "tools.strict"),
        ({"sampling_applied": {"temperature": 1.0, "response_format": {"type": "json_object"}}}, "response_format"),
        ({"sampling_applied": {"temperature": 1.0, "tool_choice": "required"}}, "tool_choice"),
    ],
)
def test_what_a_grammar_guided_is_left_out_alone_unless_nothing_else_is_there(change, name, is_alone):
    guided = msgspec.structs.replace(call("a", [[3, 4]], [1]), **change)

    found = read_samples(make_trajectory(guided, *([] if is_alone else [call("b", [[5]], [1])])))

    if is_alone:
        assert found.kind == f"unreproducible:{name}"
    else:
        assert [list(one.response_ids) for one in found.samples] == [[5]]
        assert [(one.call_id, one.reason, one.num_tokens) for one in found.drops] == [
            ("a", f"unreproducible:{name}", 2)
        ]


@pytest.mark.parametrize(
    "change",
    [
        {"sampling_applied": {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "max_tokens": 4, "seed": 1}},
        {"sampling_applied": {"temperature": 1.0}, "sampling_asked": {"top_p": 0.5}, "findings": ["neutralised:top_p"]},
        {"role": "aux", "temperature": 0.0, "sampling_applied": {"top_p": 0.5}},
        {"temperature": 1.0, "logprobs_mode": "raw"},
        {"actions": [Action(response_token_ids=TokenIds(), logprobs=Logprobs())], "temperature": None},
        {"status": "aborted", "temperature": 0.0, "prompt": None},
    ],
    ids=["neutral", "neutralised", "of a judge", "raw at temperature 1", "without an answer", "cut off"],
)
def test_what_changes_no_trained_probability_excludes_nothing(change):
    trajectory = make_trajectory(call("b", [[3]], [1]), msgspec.structs.replace(call("a", [[3]], [1]), **change))

    assert read_samples(trajectory).samples


@settings(max_examples=num_examples(4000, in_default=100))
@given(faulty_lives())
def test_a_life_is_trained_whole_or_excluded_by_name_and_never_stops_a_trainer(life):
    trajectory, kinds = life

    found = read_samples(trajectory)

    if kinds:
        assert (found.trajectory_id, found.kind in kinds) == ("t-0", True)
    else:
        sampled = sum(len(step.action.response_token_ids or ()) for step in trajectory.steps if step.role == "policy")
        trained = sum(sum(sample.loss_mask) for sample in found.samples)
        assert trained + sum(drop.num_tokens for drop in found.drops) == sampled


def test_eval_rollouts_never_become_samples():
    started = msgspec.structs.replace(STARTED, split="eval")

    with pytest.raises(BadInputError, match="split 'train'"):
        samples_of(make_trajectory(call("a", [[3]], [1]), started=started))
