"""Rows that a model cannot read, and numbers that are no log-probabilities, exclude their rollout by name."""

import msgspec
import pytest

from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.rollout import Group
from agent_layer.schema.step import PromptDelta
from agent_layer.schema.training import LengthRule
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.consumers.follower import GroupDelivery
from trainer_adapter.data.groups import read_group
from trainer_adapter.data.lengths import ModelBounds, read_bounds

from ...builders import attempt, call, sampled

BOUNDS = ModelBounds(vocab_size=100, max_positions=10)
NAN, INF = float("nan"), float("inf")


def rollout(name, *, prompt=(1, 2), response=(3, 4), logprobs=None, score=1.0):
    action = msgspec.structs.replace(sampled(*response), logprobs=Logprobs(logprobs or [-0.5] * len(response)))
    seen = {"temperature": 1.0, "capture_level": "tokens"}
    begun, ended = call(f"{name}.0-0", "c", action, prompt=PromptDelta(delta=TokenIds(prompt)), **seen)
    return assemble_trajectory(f"{name}.0-0", attempt(f"{name}.0-0", begun, ended, score=score))


def read(*trajectories, **rules):
    group = Group(
        group_id="g", run="r", task_id="t", closed_at=9.0, trajectory_ids=[one.trajectory_id for one in trajectories]
    )
    return read_group(GroupDelivery(group, list(trajectories), lambda: None), 0, 0, **{"bounds": BOUNDS} | rules)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"response": (3, 100)}, "bad_token_ids"),
        ({"prompt": (100, 1)}, "bad_token_ids"),
        ({"response": (-1, 3)}, "bad_token_ids"),
        ({"prompt": (1, -5)}, "bad_token_ids"),
        ({"response": (2**31 - 1, 3)}, "bad_token_ids"),
        ({"prompt": (1,) * 9}, "long_row"),
        ({"response": (1,) * 9}, "long_row"),
        ({"logprobs": (-0.5, 1e-6)}, "bad_logprobs"),
        ({"logprobs": (0.5, -0.5)}, "bad_logprobs"),
        ({"logprobs": (-0.5, NAN)}, "bad_logprobs"),
        ({"logprobs": (-INF, -0.5)}, "bad_logprobs"),
        ({"logprobs": (INF, -INF)}, "bad_logprobs"),
        ({"logprobs": (-9999.0, -0.5)}, "bad_logprobs"),
    ],
)
def test_what_cannot_be_trained_leaves_its_group_by_name(fault, kind):
    group = read(rollout("a"), rollout("b", score=0.0), rollout("bad", **fault))

    assert [one.trajectory_id for one in group.samples.rollouts] == ["a.0-0", "b.0-0"]
    assert [(one.trajectory_id, one.kind) for one in group.excluded] == [("bad.0-0", kind)]
    assert "bad.0-0" in group.excluded[0].reason
    assert not group.is_void


@pytest.mark.parametrize(
    "sound",
    [
        {"response": (0, 99)},
        {"prompt": (1,) * 8},
        {"logprobs": (0.0, -0.0)},
        {"logprobs": (-9998.0, -1e-30)},
    ],
)
def test_what_stands_at_the_bounds_is_trained(sound):
    group = read(rollout("a", **sound), rollout("b", score=0.0))

    assert not group.excluded
    assert len(group.samples.rollouts) == 2


def test_a_row_that_is_cut_to_the_positions_of_its_model_is_trained():
    lengths = LengthRule(max_row_tokens=10, long_rows="cut_end")

    group = read(rollout("a", response=(1,) * 30), rollout("b", score=0.0), lengths=lengths)

    assert not group.excluded
    assert len(group.samples.rollouts[0].samples[0].response_ids) == 8


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, (None, None)),
        ({"vocab_size": 7, "max_position_embeddings": 9}, (7, 9)),
        ({"vocab_size": 7, "n_positions": 9}, (7, 9)),
        ({"text_config": {"vocab_size": 7, "max_position_embeddings": 9}}, (7, 9)),
        ({"max_position_embeddings": 9, "rope_scaling": {"factor": 4.0}}, (None, 36)),
        ({"max_position_embeddings": 9, "rope_scaling": None}, (None, 9)),
        ({"vocab_size": "many", "max_position_embeddings": -1}, (None, None)),
    ],
)
def test_bounds_are_those_of_the_model(config, expected):
    assert read_bounds(config) == ModelBounds(vocab_size=expected[0], max_positions=expected[1])


def test_a_model_that_names_no_bounds_has_those_of_every_model():
    assert not read(rollout("a", response=(2**31 - 1,)), rollout("b"), bounds=ModelBounds()).excluded
    assert read(rollout("a", response=(-1,)), rollout("b"), bounds=ModelBounds()).excluded


@pytest.mark.parametrize("accepted", [False, True])
def test_what_its_own_code_could_reward_is_trained_only_where_that_is_accepted(accepted):
    forced = rollout("forced")
    rewards = [msgspec.structs.replace(one, judge="shared", scorer="m:swe") for one in forced.rewards]
    forced = msgspec.structs.replace(forced, rewards=rewards)

    group = read(rollout("a", score=0.0), forced, accepts_shared_judge=accepted)

    assert [one.trajectory_id for one in group.samples.rollouts] == ["a.0-0", *["forced.0-0"] * accepted]
    assert [one.kind for one in group.excluded] == ([] if accepted else ["shared_judge"])
