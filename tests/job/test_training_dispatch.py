"""Training and dispatcher together: whose tasks and when groups begin, which ones count, why a run ends."""

import msgspec
import pytest

from agent_layer.dispatcher import connect
from agent_layer.dispatcher.models import Report
from agent_layer.errors import AgentLayerError
from agent_layer.health.progress import StepProgress
from agent_layer.store import open_store
from agent_layer.store.consumers.trained_batches import list_batches
from trainer_adapter.config import SourceConfig
from trainer_adapter.loop.checkpoint import CheckpointDirectory

from ..queues import open_queue
from .conftest import RUN, acknowledged, train

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other


def completed(lease):
    return Report(lease=lease, ending="completed")


def test_a_group_that_is_asked_ahead_begins_only_when_its_version_serves(configure, settings, player):
    reports = train(configure(4, max_staleness=0, ask_ahead_steps=2), settings)

    assert [(one.step, one.policy_version, one.staleness_max) for one in reports] == [
        (step, step, 0) for step in (1, 2, 3, 4)
    ]
    assert sum(one.num_stale_rollouts for one in reports) == 0
    assert {start for start in player.starts.values() if start} >= {1, 2, 3}
    assert all(player.played[group_id] >= (start or 0) for group_id, start in player.starts.items())


def test_a_dropped_group_is_replaced_acknowledged_and_never_trained(configure, settings, player, redis):
    lost = set()

    def lose_one(lease):
        if not lost and lease.rollout_id.endswith(".1"):
            lost.add(lease.group_id)
            return Report(lease=lease, ending="dead", error="infra: gone")
        return completed(lease)

    player.fate = lose_one
    reports = train(configure(3, partial="drop", max_staleness=0), settings)

    store = open_store(settings)
    batches = list_batches(store.redis, store.keys, RUN)
    assert [one.num_dropped_groups for one in reports] == [1, 0, 0]
    assert [one.num_whole_groups for one in reports] == [2, 2, 2]
    assert lost < acknowledged(redis, player.keys)
    assert lost.isdisjoint(one.trajectory_id.partition(".")[0] for batch in batches for one in batch.rollouts)
    assert [one.num_null_rewards for one in reports] == [1, 0, 0]


def test_a_step_trains_the_groups_of_its_positions_though_later_ones_close_first(configure, settings, player):
    def hold_the_first_until_the_second_step_has_closed(lease):
        order.setdefault(lease.group_id, len(order))
        if order[lease.group_id] == 0 and len(ended) < 3:
            return None
        ended.add(lease.group_id)
        return completed(lease)

    order, ended = {}, set()
    player.fate = hold_the_first_until_the_second_step_has_closed
    reports = train(configure(2, max_staleness=1), settings)

    store = open_store(settings)
    batches = list_batches(store.redis, store.keys, RUN)
    trained = [list(dict.fromkeys(one.group_id for one in batch.rollouts)) for batch in batches]
    assert trained == [list(order)[:2], list(order)[2:4]]
    assert all(report.success_by_task.keys() == {"a", "b"} for report in reports)


def test_a_group_with_a_rollout_that_is_too_old_is_redone_whole(configure, settings, player, redis):
    late = set()

    def one_is_late(lease, version):
        if version == 2 and lease.task.id == "a" and lease.rollout_id.endswith(".1") and late <= {lease.group_id}:
            late.add(lease.group_id)
            return 0
        return version

    player.sampled_by = one_is_late
    reports = train(configure(4, max_staleness=1), settings)

    store = open_store(settings)
    batches = list_batches(store.redis, store.keys, RUN)
    (redone,) = [report for report in reports if report.num_stale_rollouts]
    assert (redone.redone_by_task, redone.num_stale_rollouts) == ({"a": 1}, 1)
    assert [report.num_samples for report in reports] == [6] * 4
    assert all(report.success_by_task.keys() == {"a", "b"} for report in reports)
    assert late < acknowledged(redis, player.keys)
    assert late.isdisjoint(one.group_id for batch in batches for one in batch.rollouts)


def test_a_short_group_is_trained_on_the_rewards_that_it_has(configure, settings, player):
    def judge_two(lease):
        return Report(lease=lease, ending="completed", usable=not lease.rollout_id.endswith(".2"))

    player.fate = judge_two
    (report,) = train(configure(1), settings)

    assert (report.num_short_groups, report.num_whole_groups) == (2, 0)
    assert (report.num_samples, report.num_null_rewards) == (4, 2)


def test_what_is_too_slow_is_counted_against_what_was_kept(configure, settings, player):
    def hold_the_last(lease):
        return None if lease.rollout_id.endswith(".4") else completed(lease)

    player.fate = hold_the_last
    reports = train(configure(2, launch=1.5), settings)

    found = [(one.num_whole_groups, one.num_samples, one.num_surplus_rollouts > 0) for one in reports]
    assert found == [(2, 6, True)] * 2
    assert all(one.kept_seconds is not None and one.surplus_seconds is not None for one in reports)


def test_a_run_that_is_stopped_because_its_attempts_fail_ends_with_the_reason_and_a_checkpoint(
    configure, settings, player
):
    def break_after_the_first_step(report):
        assert report.step == 1
        player.fate = lambda lease: Report(lease=lease, ending="dead", error="infra: no sandbox starts")

    mine = settings.model_copy(update={"stop_failure_window": 4})
    player.use(mine)
    with pytest.raises(
        AgentLayerError, match=r"no sandbox starts; see 'agent-layer dead list'.*agent-layer runs resume r'"
    ):
        train(configure(9, max_staleness=0, partial="refill"), mine, report=break_after_the_first_step)

    assert CheckpointDirectory(settings, RUN).newest()[1].step == 1
    player.fate = completed
    connect(settings).resume(RUN)
    assert [one.step for one in train(configure(2, max_staleness=0), settings)] == [2]


def test_a_run_without_rewards_ends_though_its_groups_are_replaced(configure, settings, player):
    player.fate = lambda lease: Report(lease=lease, ending="completed", usable=False)

    with pytest.raises(AgentLayerError, match="null_rewards since step 1"):
        train(configure(1), settings)


@pytest.mark.usefixtures("player")
def test_workers_hear_of_each_switch_if_agents_are_to_pause_and_the_run_goes_on(configure, settings, redis, keys):
    dispatcher = connect(settings)
    open_queue(dispatcher).heartbeat("w", b"{}", [])

    reports = train(configure(3, pause_at_switch=True), settings)

    assert [one.policy_version for one in reports] == [1, 2, 3]
    assert redis.xlen(keys.queue("calls")) == 1 + 3  # engines are looked after once at the start, too
    assert dispatcher.runs([RUN])[0].paused is None


@pytest.mark.usefixtures("player")
def test_a_mix_that_a_user_changes_is_what_the_running_trainer_submits_next(configure, settings, tmp_path, agent_layer):
    for name in ("easy", "hard"):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"id": "{name}-1", "input": 1}}\n{{"id": "{name}-2", "input": 2}}\n')
    sources = [SourceConfig(path=tmp_path / f"{name}.jsonl") for name in ("easy", "hard")]
    plain = configure(6, groups_per_step=2, max_staleness=0)

    def change(report: StepProgress):
        if report.step == 3:
            assert agent_layer("mix", "r", "easy=0")[0] == 0

    reports = train(msgspec.structs.replace(plain, tasks=sources), settings, report=change)

    trained = [{task.partition("-")[0] for task in report.success_by_task} for report in reports]
    assert trained == [{"easy", "hard"}] * 3 + [{"hard"}] * 3
