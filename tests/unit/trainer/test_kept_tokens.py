"""What an update computed for each token stays with its trajectory, and any change of it is found."""

import msgspec
import pytest

from agent_layer.schema.codec import decode, encode
from agent_layer.schema.record import Advantages, Logprobs
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.training import AdvantageRule, DistillRule, LengthRule
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.consumers.follower import GroupDelivery
from trainer_adapter.data.advantages import Credits, select_batch, value_advantages
from trainer_adapter.data.exclusions import find_exclusions
from trainer_adapter.data.groups import read_group
from trainer_adapter.data.replay import rebuild_batch, record_batch
from trainer_adapter.data.update_record import TokenColumns, gap_by_engine, list_calls, record_tokens

from ...builders import closed_group
from .step_trees import STARTED, call

GRPO = AdvantageRule(estimator="grpo")


def rollout(name, score, *, status="completed", version=0):
    """Two calls of two tokens and one, with a tool between."""
    own = {"trajectory_id": f"{name}-0"}
    records = [
        call("a", [[3, 4]], [1, 2], at=1.0, version=version),
        call("b", [[6]], [5], at=2.0, parent=("a", 0), prefix_length=4, version=version),
        Reward(trajectory_id="", reward_id=f"{name}/w", run="r", at=3.0, score=score),
        Outcome(trajectory_id="", run="r", status=status, ended_at=4.0),
        msgspec.structs.replace(STARTED, rollout_id=name),
    ]
    return assemble_trajectory(f"{name}-0", [msgspec.structs.replace(record, **own) for record in records])


def intake(*trajectories, group_id="g", max_staleness=0, policy_version=0, **rules):
    group = closed_group(group_id, *[one.trajectory_id for one in trajectories], group_size=len(trajectories))
    return read_group(GroupDelivery(group, list(trajectories), lambda: None), policy_version, max_staleness, **rules)


def updated(*trajectories, advantages=(0.5, -0.5), rule=GRPO):
    """The record of an update that computed these advantages, and its trajectories as they are stored then."""
    batch = select_batch([intake(*trajectories).samples], keep_equal=False)
    record = record_batch(batch, "r", 1, 0, advantages=rule)
    columns = [
        TokenColumns(
            calls=calls,
            logprobs=Logprobs([-0.25, -0.5, -0.75]),
            advantages=Advantages([advantage] * 3),
            mask=b"\x01\x01\x01",
        )
        for calls, advantage in zip(list_calls(batch), advantages, strict=True)
    ]
    kept = {one.trajectory_id: one for one in record_tokens(record, columns)}
    stored = {
        one.trajectory_id: msgspec.structs.replace(one, trained=[kept[one.trajectory_id]]) for one in trajectories
    }
    return record, stored


DISTILL = DistillRule(teacher="large", coefficient=2.0)
TAUGHT = msgspec.structs.replace(GRPO, distill=DISTILL)
TEACHER = [-0.5, -0.25, -0.75]


def taught(reward_advantages, rule=TAUGHT):
    """An update with a teacher: 2 x (its log-probability - the trainer's) is added to each token's advantage."""
    record, stored = updated(rollout("x", 1.0), rollout("y", 0.0), rule=rule)
    for name, advantage in zip(stored, reward_advantages, strict=True):
        own = Advantages([advantage - 0.5, advantage + 0.5, advantage])
        stored = changed(stored, name, advantages=own, teacher_logprobs=Logprobs(TEACHER))
    return record, stored


def changed(stored, trajectory_id, **fields):
    one = stored[trajectory_id]
    return stored | {
        trajectory_id: msgspec.structs.replace(one, trained=[msgspec.structs.replace(one.trained[0], **fields)])
    }


def test_what_an_update_kept_is_what_its_batch_gives_again():
    record, stored = updated(rollout("x", 1.0), rollout("y", 0.0))

    replayed = rebuild_batch(record, stored.__getitem__)

    assert (replayed.differences, replayed.has_tokens) == ([], True)
    assert stored["x-0"].trained[0].calls == [("a", 0, 2), ("b", 0, 1)]


FLIPS = {
    "an advantage": ({"advantages": Advantages([-0.5, -0.5, 0.5])}, "expected the advantage -0.5, found 0.5"),
    "a mask": ({"mask": b"\x01\x01\x00"}, "expected the mask 1, found 0"),
    "a log-probability": ({"logprobs": Logprobs([-1, -1, float("nan")])}, "expected a log-probability, found nan"),
}


@pytest.mark.parametrize(("change", "message"), FLIPS.values(), ids=FLIPS)
def test_a_changed_number_is_named_by_trajectory_step_and_token(change, message):
    record, stored = updated(rollout("x", 1.0), rollout("y", 0.0))

    (difference,) = rebuild_batch(record, changed(stored, "y-0", **change).__getitem__).differences

    assert difference == f"step 1 of run r, trajectory y-0, step 1, token 0 (call b, choice 0): {message}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask": b"\x01"}, "a number for each of 3 trained tokens, found [3, 3, 1]"),
        ({"calls": [("a", 0, 3)]}, "expected the tokens of the calls"),
    ],
)
def test_columns_of_another_form_are_a_difference(change, message):
    record, stored = updated(rollout("x", 1.0), rollout("y", 0.0))

    (difference,) = rebuild_batch(record, changed(stored, "y-0", **change).__getitem__).differences

    assert message in difference


@pytest.mark.parametrize("replaces_rewards", [False, True])
def test_the_teachers_part_of_an_advantage_is_computed_again(replaces_rewards):
    distill = msgspec.structs.replace(DISTILL, replaces_rewards=replaces_rewards)
    rule = msgspec.structs.replace(TAUGHT, distill=distill)
    record, stored = taught((0.0, 0.0) if replaces_rewards else (0.5, -0.5), rule)

    assert rebuild_batch(record, stored.__getitem__).differences == []
    assert decode(encode(stored["x-0"].trained[0])) == stored["x-0"].trained[0]
    assert decode(encode(record)) == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"teacher_logprobs": Logprobs([-0.5, -0.5, -0.75])},
            "token 1 (call a, choice 0): expected the advantage -0.5",
        ),
        ({"teacher_logprobs": Logprobs(TEACHER[:2])}, "for each of 3 trained tokens, found [3, 3, 3, 2]"),
        ({"teacher_logprobs": None}, "expected the log-probabilities of the teacher large, found none"),
        ({"logprobs": Logprobs([-0.25, -0.5, -0.8])}, "token 0 (call b, choice 0): expected the advantage -0.4"),
    ],
)
def test_a_changed_number_of_the_teacher_is_named(change, message):
    record, stored = taught((0.5, -0.5))

    (difference,) = rebuild_batch(record, changed(stored, "y-0", **change).__getitem__).differences

    assert message in difference


def test_numbers_of_a_teacher_that_the_update_did_not_have_are_a_difference():
    record, stored = updated(rollout("x", 1.0), rollout("y", 0.0))
    stored = changed(stored, "y-0", teacher_logprobs=Logprobs(TEACHER))

    (difference,) = rebuild_batch(record, stored.__getitem__).differences

    assert difference.endswith("trajectory y-0: expected no teacher, found log-probabilities of one")


def test_a_batch_is_the_same_whatever_its_teacher_answers():
    batch = select_batch([intake(rollout("x", 1.0), rollout("y", 0.0)).samples], keep_equal=False)
    answered = msgspec.structs.replace(batch, teacher_logprobs=[Logprobs([-1.0, -1.0, 0.0, -1.0])] * 2)

    assert record_batch(answered, "r", 1, 0).batch_hash == record_batch(batch, "r", 1, 0).batch_hash


def test_a_rollout_without_its_numbers_is_a_difference_and_an_update_without_any_was_not_completed():
    record, stored = updated(rollout("x", 1.0), rollout("y", 0.0))
    without = {name: msgspec.structs.replace(one, trained=[]) for name, one in stored.items()}

    (difference,) = rebuild_batch(record, (stored | {"y-0": without["y-0"]}).__getitem__).differences
    nothing = rebuild_batch(record, without.__getitem__)

    assert difference.endswith("trajectory y-0: expected what the update computed for it, found nothing")
    assert (nothing.differences, nothing.has_tokens) == ([], False)


def test_a_record_of_a_trainer_that_kept_nothing_is_replayed_as_before():
    record, stored = updated(rollout("x", 1.0), rollout("y", 0.0))
    old = msgspec.structs.replace(record, advantages=None)

    replayed = rebuild_batch(old, changed(stored, "y-0", mask=b"").__getitem__)

    assert (replayed.differences, replayed.has_tokens) == ([], None)
    assert b"advantages" not in encode(old)


def test_rejected_tokens_are_no_difference_where_correction_rejects():
    rule = msgspec.structs.replace(GRPO, can_reject=True)
    record, stored = updated(rollout("x", 1.0), rollout("y", 0.0), rule=rule)

    assert rebuild_batch(record, changed(stored, "y-0", mask=b"\x00\x01\x00").__getitem__).differences == []
    assert rebuild_batch(record, changed(stored, "y-0", mask=b"\x00\x01\x07").__getitem__).differences != []


def test_after_a_deletion_the_rest_keeps_its_numbers():
    record, stored = updated(rollout("x", 1.0), rollout("y", 0.0), rollout("z", 0.5), advantages=(0.5, -0.5, 0.0))
    left = msgspec.structs.replace(record, rollouts=record.rollouts[:2], num_deleted=1)

    assert rebuild_batch(left, stored.__getitem__).differences == []
    assert rebuild_batch(left, changed(stored, "y-0", mask=b"\x00\x00\x00").__getitem__).differences != []


def test_of_two_updates_of_one_step_each_is_compared_with_its_own_numbers():
    members = rollout("x", 1.0), rollout("y", 0.0)
    first, then = updated(*members), updated(*members)
    both = {
        name: msgspec.structs.replace(one, trained=[*first[1][name].trained, *one.trained])
        for name, one in changed(then[1], "y-0", advantages=Advantages([9, 9, 9])).items()
    }

    assert rebuild_batch(first[0], both.__getitem__).differences == []
    assert "found 9" in rebuild_batch(then[0], both.__getitem__).differences[0]


def test_numbers_and_reasons_belong_to_their_trajectory():
    record, stored = updated(rollout("x", 1.0), rollout("y", 0.0))
    (kept,) = stored["x-0"].trained
    (left_out,) = find_exclusions([intake(rollout("x", None))], select_batch([], keep_equal=False), "r", 1)

    found = assemble_trajectory("x-0", [decode(encode(left_out)), decode(encode(kept)), kept, left_out])

    assert (found.trained, found.exclusions) == ([kept], [left_out])
    assert record.batch_id == kept.batch_id


@pytest.mark.parametrize(
    ("estimator", "scale", "expected"),
    [
        ("grpo", False, [0.5, -0.5, 0.0]),
        ("grpo", True, [0.7071, -0.7071, 0.0]),
        ("rloo", False, [1.0, -1.0, 0.0]),
        ("reinforce++", False, [-0.2182, -0.8729, 1.0911]),  # of 1, 0, 3: mean 4/3, variance 7/3
    ],
)
def test_advantages_of_the_record_are_those_of_the_formulas(estimator, scale, expected):
    judged = Credits(values=[1.0, 0.0, 3.0], baselines=["g", "g", "lone"], spans=[])

    found = value_advantages(judged, AdvantageRule(estimator=estimator, scale_by_std=scale))

    assert found == pytest.approx(expected, abs=1e-4)


def test_each_accepted_rollout_is_trained_or_has_a_reason():
    groups = [
        intake(rollout("a", 1.0), rollout("b", 0.0), rollout("c", None), group_id="trained"),
        intake(rollout("d", 1.0), rollout("e", 1.0), group_id="equal"),
        intake(rollout("f", 1.0), rollout("g", None), group_id="lone"),
        intake(rollout("h", 1.0), rollout("i", 0.0, version=1), group_id="stale", policy_version=1),
        intake(
            rollout("j", 1.0),
            rollout("k", 0.0),
            rollout("l", 0.5, status="truncated"),
            group_id="long",
            lengths=LengthRule(overlong="mask"),
        ),
    ]
    batch = select_batch([group.samples for group in groups], keep_equal=False)

    found = find_exclusions(groups, batch, "r", 4)

    assert {one.trajectory_id: one.kind for one in found} == {
        "c-0": "no_reward",
        "d-0": "equal_rewards",
        "e-0": "equal_rewards",
        "f-0": "lone_reward",
        "g-0": "no_reward",
        "h-0": "stale",
        "i-0": "stale",
        "l-0": "overlong",
    }
    trained = {batch.trajectory_ids[position] for position in batch.rollout_of}
    assert trained.isdisjoint(one.trajectory_id for one in found)
    assert len(trained) + len(found) == sum(len(group.group.trajectory_ids) for group in groups)
    assert {(one.run, one.step) for one in found} == {("r", 4)}


def test_the_gap_of_an_engine_is_over_tokens_that_it_sampled_by_the_trained_weights():
    fresh, old = rollout("x", 1.0, version=1), rollout("y", 0.0)
    batch = select_batch([intake(fresh, old, max_staleness=1, policy_version=1).samples], keep_equal=False)
    columns = [
        TokenColumns(calls=calls, logprobs=Logprobs(own), advantages=Advantages([0.5] * 3), mask=b"\x01\x01\x01")
        for calls, own in zip(list_calls(batch), ([-0.13, -0.04, -0.56], [-9.0, -9.0, -9.0]), strict=True)
    ]

    # the engine's are -token / 100: of call a -0.03 and -0.04, of call b -0.06
    both = gap_by_engine(batch, columns, {"a": "http://one:1", "b": "http://two:2"}, 1)
    assert both == pytest.approx({"http://one:1": 0.05, "http://two:2": 0.5})
    assert gap_by_engine(batch, columns, {"b": "http://two:2"}, 1) == pytest.approx({"http://two:2": 0.5})
    assert gap_by_engine(batch, columns, {"a": "http://one:1"}, 2) == {}


def test_a_group_knows_the_engine_of_each_call_that_has_one():
    steps = [msgspec.structs.replace(rollout("x", 1.0).steps[0], engine="http://one:1"), rollout("x", 1.0).steps[1]]

    assert intake(msgspec.structs.replace(rollout("x", 1.0), steps=steps)).engines == {"a": "http://one:1"}
