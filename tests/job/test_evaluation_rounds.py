"""Evaluation while a run trains: rounds on held-out tasks at their steps, each of one policy version."""

import threading

import msgspec
import pytest

from agent_layer.dispatcher import Report, connect
from agent_layer.health.progress import progress_path, read_progress
from agent_layer.schema.contamination.held_out import HeldOutTasks
from agent_layer.schema.training import CheckpointRef
from agent_layer.store import open_store
from envs.evaluation.evaluator import list_rounds, show_round
from trainer_adapter.config import EvaluationConfig, HeldOutConfig
from trainer_adapter.tasks.audit import audit_checkpoint
from trainer_adapter.tasks.held_out import read_held_out

from .conftest import RUN, train

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other


class Killed(BaseException):
    """Ends a trainer as a kill does."""


@pytest.fixture
def held_out(configure, tmp_path):
    """``held_out(steps, …)``: a run over two tasks, evaluated on three others after every second step."""
    path = tmp_path / "held-out.jsonl"
    path.write_text('{"id": "x", "input": 3}\n{"id": "y", "input": 4}\n{"id": "z", "input": 5}\n')

    def held_out(steps, checkpoint_steps=10, **options):
        evaluation = EvaluationConfig(tasks=[HeldOutConfig(path=path)], **{"every_steps": 2, "rollouts": 2, **options})
        return msgspec.structs.replace(configure(steps, checkpoint_steps), evaluation=evaluation)

    return held_out


def list_versions(settings, name):
    """Policy versions that sampled the rollouts of a round."""
    rows = open_store(settings).query(run=f"eval.{name}", limit=1000).items
    return {(row.policy_min, row.policy_max) for row in rows}, len(rows)


@pytest.mark.usefixtures("player")
def test_each_round_is_of_the_version_of_its_step_and_is_in_the_report_and_the_store(held_out, settings):
    reports = train(held_out(4), settings)

    assert reports == read_progress(progress_path(settings, RUN))
    found = [[(one.name, one.policy_version, one.num_rewards) for one in report.evaluations] for report in reports]
    assert found == [[("held-out", 0, 6)], [("held-out", 2, 6)], [], [("held-out", 4, 6)]]
    # the first rollout of each group has reward 1, the other 0
    assert {one.pass_rate for report in reports for one in report.evaluations} == {0.5}
    rounds = list_rounds(settings)
    assert [(one.name, one.state) for one in rounds] == [
        (f"r.held-out.{version:06d}", "complete") for version in (0, 2, 4)
    ]
    assert [list_versions(settings, one.name) for one in rounds] == [({(at, at)}, 6) for at in (0, 2, 4)]


@pytest.mark.usefixtures("player")
def test_rollouts_of_rounds_are_of_split_eval_and_are_never_trained(held_out, settings):
    train(held_out(2), settings)

    store = open_store(settings)
    rows = store.query(split="eval", limit=1000).items
    assert len(rows) == 12
    assert {row.task_id for row in store.query(run=RUN, limit=1000).items} == {"a", "b"}


def test_a_rollout_of_another_version_does_not_count_and_is_asked_for_again(held_out, settings, player):
    strays = iter([7])
    player.sampled_by = lambda lease, version: next(strays, version) if lease.task.split == "eval" else version

    (report,) = train(held_out(1, at_start=False, every_steps=1), settings)

    (one,) = report.evaluations
    assert (one.policy_version, one.num_rewards, one.num_asked) == (1, 6, 6)
    assert list_versions(settings, one.round) == ({(1, 1), (7, 7)}, 7)
    again = show_round(settings, one.round).figures
    assert (again.num_rewards, again.causes) == (6, {"version": 1})


def test_a_round_that_a_stop_interrupts_is_finished_by_the_next_start(held_out, settings, player, agent_layer):
    stop, goes_on = threading.Event(), threading.Event()

    def hold(lease):
        if lease.task.split == "eval" and lease.rollout_id.endswith(".1") and not goes_on.is_set():
            stop.set()
            return None
        return Report(lease=lease, ending="completed")

    player.fate = hold
    first = train(held_out(4, at_start=False), settings, stop=stop.is_set)
    assert ([one.step for one in first], first[-1].evaluations) == ([1, 2], [])
    status, _, errors = agent_layer("eval", "--round", "r.held-out.000002", "--resume")
    assert (status, "its trainer goes on with it" in " ".join(errors.split())) == (2, True)
    goes_on.set()

    second = train(held_out(4, at_start=False), settings)

    assert [[one.policy_version for one in report.evaluations] for report in second] == [[2], [4]]
    assert list_versions(settings, "r.held-out.000002") == ({(2, 2)}, 6)


def test_a_round_of_weights_that_a_kill_has_lost_is_cancelled(held_out, settings, player):
    lost = "eval.r.held-out.000002"
    begun = threading.Event()

    def hold(lease):
        if lease.task.run == lost:
            begun.set()
            return None
        return Report(lease=lease, ending="completed")

    def die():
        if begun.is_set():
            raise Killed
        return False

    player.fate = hold
    with pytest.raises(Killed):
        train(held_out(2, at_start=False), settings, stop=die)
    reports = train(held_out(2, at_start=False), settings)

    # version 3 is the first weights again, 4 and 5 are trained from them
    assert [[one.policy_version for one in report.evaluations] for report in reports] == [[], [5]]
    (state,) = connect(settings).runs([lost])
    assert (state.num_queued, state.num_leased) == (0, 0)
    assert [one.name for one in list_rounds(settings) if one.state == "complete"] == ["r.held-out.000005"]


@pytest.mark.usefixtures("player")
def test_a_task_that_repeats_a_held_out_one_is_never_played_for_training_and_the_audit_proves_it(held_out, settings):
    config = held_out(2)
    (evaluated,) = config.evaluation.tasks
    (source,) = config.tasks
    (planted, *_) = source.path.read_bytes().splitlines()
    evaluated.path.write_bytes(evaluated.path.read_bytes() + planted + b"\n")

    train(config, settings)

    store = open_store(settings)
    assert len({row.task_id for row in store.query(run=RUN, limit=1000).items}) == 1
    found = audit_checkpoint(
        store, CheckpointRef(run=RUN, step=2), HeldOutTasks(read_held_out(settings, RUN)), settings.dir / "runs"
    )
    assert (found.is_proven, found.num_updates, found.num_tasks, found.num_held_out) == (True, 2, 1, 4)
