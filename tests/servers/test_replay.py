"""Replay returns the trained bytes, whatever is rescored, lost or rebuilt later."""

import time

import msgspec
import pytest
from hypothesis import given, strategies as st

from agent_layer.cli.main import build
from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.recorder import open_recorder
from agent_layer.schema.record import Advantages, Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.step import PromptDelta
from agent_layer.schema.training import AdvantageRule, TrainedBatch
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.consumers.follower import GroupDelivery
from agent_layer.store.consumers.trained_batches import list_batches
from trainer_adapter.data.advantages import select_batch
from trainer_adapter.data.groups import read_group
from trainer_adapter.data.replay import rebuild_batch, record_batch
from trainer_adapter.data.update_record import TokenColumns, list_calls, record_tokens

from ..builders import attempt, call, closed_group, sampled


def make_attempt(tid, score, tokens=(5, 6)):
    fields = {"prompt": PromptDelta(delta=TokenIds([1, 2])), "capture_level": "tokens", "temperature": 1.0}
    return attempt(tid, *call(tid, "c", sampled(*tokens, logprob=-0.1), **fields), score=score, group_id="g")


def make_delivery(*trajectories):
    ids = [one.trajectory_id for one in trajectories]
    return GroupDelivery(closed_group("g", *ids, group_size=len(ids)), list(trajectories), lambda: None)


def trained(step, *trajectories):
    batch = select_batch([read_group(make_delivery(*trajectories), 0, 1).samples], keep_equal=False)
    return record_batch(batch, "r", step, 0)


@pytest.fixture
def learned(store, write):
    """A store in which step 1 has learned from two rollouts; return its record."""
    write(*make_attempt("x.0-0", 0.0), *make_attempt("x.1-0", 1.0))
    record = trained(1, store.get("x.0-0"), store.get("x.1-0"))
    write(record)
    return record


def replayed(store):
    (record,) = list_batches(store.redis, store.keys, "r")
    return rebuild_batch(record, store.get)


def test_what_was_trained_is_rebuilt_to_the_byte(store, learned):
    replay = replayed(store)

    assert replay.record == learned
    assert replay.differences == []
    assert (learned.num_tokens, [one.num_tokens for one in learned.rollouts]) == (4, [2, 2])
    assert [(one.trajectory_id, one.reward) for one in learned.rollouts] == [("x.0-0", 0.0), ("x.1-0", 1.0)]
    assert replay.content == rebuild_batch(learned, store.get).content


def test_late_rewards_and_a_lost_index_change_nothing(store, objects_settings, learned):
    before = replayed(store)
    assert before.record == learned
    store.reward("x.0-0", 7.0)
    store.reward("x.1-0", None)
    assert open_recorder(objects_settings).flush().pending == 0
    open_recorder(objects_settings).close()
    assert store.row("x.0-0").reward == 7.0

    assert replayed(store) == before
    store.redis.delete(*store.redis.keys(store.keys.name("*")))
    assert list_batches(store.redis, store.keys, "r") == []
    store.admin.reindex(drop=True)
    assert replayed(store) == before
    assert store.admin.check().is_sound


def test_every_difference_is_named(store, learned):
    changed = {one.trajectory_id: one for one in learned.rollouts}
    lower = msgspec.structs.replace(changed["x.0-0"], reward=-1.0)
    other = msgspec.structs.replace(changed["x.1-0"], samples_hash="another")
    lost = msgspec.structs.replace(changed["x.0-0"], reward_ids=["gone"])
    honest = changed["x.1-0"].samples_hash
    away = msgspec.structs.replace(changed["x.0-0"], trajectory_id="z.0-0")

    def differences(*rollouts):
        return rebuild_batch(msgspec.structs.replace(learned, rollouts=list(rollouts)), store.get).differences

    assert differences(lower, other) == [
        "step 1 of run r, trajectory x.0-0: expected the reward -1, but its judgements of then give 0.0",
        f"step 1 of run r, trajectory x.1-0: expected samples with the hash another, found {honest}",
    ]
    assert "gone is not stored" in differences(lost)[0]
    assert "trajectory 'z.0-0': expected it in the store" in differences(away)[0]
    assert "record of their order is not" in differences(*learned.rollouts[::-1])[0]


def test_a_changed_record_is_a_difference(store, write):
    write(*make_attempt("x.0-0", 0.0))
    honest = assemble_trajectory("x.1-0", make_attempt("x.1-0", 1.0))
    write(*make_attempt("x.1-0", 1.0, tokens=(5, 7)), trained(1, store.get("x.0-0"), honest))

    (difference,) = replayed(store).differences

    assert difference.startswith("step 1 of run r, trajectory x.1-0: expected samples with the hash")


def test_of_a_step_that_was_trained_again_the_later_batch_stands(store, write, learned):
    later = msgspec.structs.replace(trained(1, store.get("x.1-0"), store.get("x.0-0")), trained_at=time.time() + 60)
    second = trained(2, store.get("x.0-0"), store.get("x.1-0"))
    write(second, later)
    write(later)

    assert list_batches(store.redis, store.keys, "r") == [later, second]
    assert list_batches(store.redis, store.keys, "other") == []
    assert isinstance(learned, TrainedBatch)


def test_of_a_batch_that_lost_rollouts_the_rest_is_still_compared(store, learned):
    assert replayed(store).record.num_deleted == 0
    store.delete("x.0-0")

    rest = replayed(store)
    assert rest.differences == []
    assert [one.trajectory_id for one in rest.record.rollouts] == ["x.1-0"]
    assert (rest.record.num_deleted, rest.record.batch_hash) == (1, learned.batch_hash)
    (left,) = rest.record.rollouts
    changed = msgspec.structs.replace(rest.record, rollouts=[msgspec.structs.replace(left, samples_hash="another")])
    assert "expected samples with the hash another" in rebuild_batch(changed, store.get).differences[0]


@pytest.fixture
def replay(objects_settings, monkeypatch, capsys):
    """``replay("--run", "r")`` gives what the command prints."""
    for name, value in objects_settings.environment().items():
        monkeypatch.setenv(name, value)

    def run(*arguments):
        build()(["replay", *arguments], standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_the_command_writes_what_was_trained(store, learned, replay, tmp_path):
    message = replay("--run", "r", "--out", str(tmp_path / "batches"))

    assert message == f"step    1  version    0     2 rollouts    2 samples {learned.batch_hash}  identical\n"
    (written,) = (tmp_path / "batches").iterdir()
    assert written.read_bytes() == rebuild_batch(learned, store.get).content
    assert msgspec.msgpack.decode(written.read_bytes())["rewards"] == [0.0, 1.0]
    with pytest.raises(NotFoundError, match="step 2 of run 'r'"):
        replay("--run", "r", "--step", "2")


@pytest.mark.parametrize("purge", [True, False])
def test_the_command_counts_what_was_deleted_and_writes_no_part_of_a_batch(store, learned, replay, tmp_path, purge):
    store.delete("x.0-0", purge=purge)

    message = replay("--run", "r", "--out", str(tmp_path / "batches"))

    assert message.endswith(f"2 rollouts    2 samples {learned.batch_hash}  deleted: 1 rollouts, the rest identical\n")
    assert not (tmp_path / "batches").exists()


def test_the_command_fails_when_anything_differs(store, write, replay):
    write(*make_attempt("x.0-0", 0.0))
    write(trained(1, store.get("x.0-0"), assemble_trajectory("x.1-0", make_attempt("x.1-0", 1.0))))

    with pytest.raises(CorruptRecordError, match=r"found 1 differences; the first: step 1 of run r, trajectory x\.1-0"):
        replay("--run", "r")


def test_an_update_without_its_numbers_is_named_unless_it_is_the_last(store, write, replay):
    write(*make_attempt("x.0-0", 0.0), *make_attempt("x.1-0", 1.0))
    rollouts, rule = [store.get("x.0-0"), store.get("x.1-0")], AdvantageRule(estimator="grpo")
    batch = select_batch([read_group(make_delivery(*rollouts), 0, 1).samples], keep_equal=False)
    write(record_batch(batch, "r", 1, 0, advantages=rule))

    assert replay("--run", "r").endswith("identical, its update was not completed\n")
    second = record_batch(batch, "r", 2, 0, advantages=rule)
    columns = [
        TokenColumns(calls=calls, logprobs=Logprobs([-1, -1]), advantages=Advantages([one] * 2), mask=b"\x01\x01")
        for calls, one in zip(list_calls(batch), (-0.5, 0.5), strict=True)
    ]
    write(second, *record_tokens(second, columns))
    with pytest.raises(CorruptRecordError, match="step 1 of run r: expected what the update computed, found nothing"):
        replay("--run", "r")
    assert replay("--run", "r", "--step", "2").endswith("identical\n")
    store.redis.delete(*store.redis.keys(store.keys.name("*")))
    store.admin.reindex(drop=True)
    assert replay("--run", "r", "--step", "2").endswith("identical\n")
    assert store.admin.check().is_sound


late = st.builds(
    Reward,
    trajectory_id=st.sampled_from(["x.0-0", "x.1-0"]),
    reward_id=st.integers(0, 99).map(str),
    run=st.just("r"),
    at=st.floats(0, 99),
    name=st.sampled_from(["reward", "style"]),
    score=st.none() | st.floats(-1, 1),
    supersedes=st.none() | st.sampled_from(["x.0-0/w", "x.1-0/w"]),
    void=st.booleans(),
)


@given(st.lists(late, max_size=5))
def test_no_later_judgement_alters_what_was_trained(judgements):
    """Also rewards whose time is earlier, from a slow clock."""
    records = {tid: make_attempt(tid, score) for tid, score in (("x.0-0", 0.0), ("x.1-0", 1.0))}
    record = trained(1, *(assemble_trajectory(tid, found) for tid, found in records.items()))

    def read(tid):
        return assemble_trajectory(tid, records[tid] + [one for one in judgements if one.trajectory_id == tid])

    assert rebuild_batch(record, read).differences == []
