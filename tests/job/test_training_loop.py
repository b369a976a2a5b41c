"""A training run on real parts: veRL, Redis, the dispatcher's queue, engines that switch weights.

Only the worker is simple: a thread plays every rollout as soon as it is leased, under the serving policy version.
"""

import signal
import subprocess
import sys
import threading

import msgspec
import pytest

from agent_layer.dispatcher import Report
from agent_layer.engines.policies import list_policies
from agent_layer.errors import AgentLayerError, BadInputError, EngineError
from agent_layer.health import HealthLimits
from agent_layer.health.progress import progress_path, read_progress
from agent_layer.recorder import open_recorder
from agent_layer.schema.record import TokenIds
from agent_layer.schema.step import PromptDelta
from agent_layer.store import open_store
from agent_layer.store.consumers.trained_batches import list_batches
from trainer_adapter.algorithms import AlgorithmConfig
from trainer_adapter.config import OptimizerConfig, Schedule, SourceConfig, write_config
from trainer_adapter.data.replay import rebuild_batch
from trainer_adapter.loop.checkpoint import CheckpointDirectory
from trainer_adapter.selection import SuccessRamp

from ..waiting import communicate
from .conftest import MADE_UP, RUN, acknowledged, train

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other


@pytest.mark.usefixtures("player")
def test_every_step_gives_a_version_that_is_registered_served_and_reported(
    configure, settings, engine, registry, redis
):
    reports = train(configure(4, checkpoint_steps=3), settings)

    weights = settings.dir.absolute() / "weights" / RUN
    assert [(one.step, one.policy_version) for one in reports] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert reports == read_progress(progress_path(settings, RUN))
    assert [policy.number for policy in list_policies(redis, registry.keys, RUN)] == [0, 1, 2, 3, 4]
    assert (registry.read(engine.url).version, registry.read(engine.url).state) == (4, "serving")
    assert (engine.num_loads, engine.weights) == (4, str(weights / "000004"))
    assert sorted(path.name for path in weights.iterdir()) == ["000003", "000004"]
    assert all(one.success == pytest.approx(1 / 3) and one.num_null_rewards == 0 for one in reports)
    assert all(one.staleness_max <= 1 and one.num_tokens == 6 for one in reports)
    assert len(acknowledged(redis, registry.keys)) == 8


@pytest.mark.usefixtures("player")
def test_what_every_step_learned_from_is_rebuilt_whatever_is_judged_later(configure, settings):
    store = open_store(settings)
    reports = train(configure(3), settings)
    batches = list_batches(store.redis, store.keys, RUN)
    for trajectory_id in {one.trajectory_id for batch in batches for one in batch.rollouts}:
        store.reward(trajectory_id, 7.0)
    assert open_recorder(settings).flush().pending == 0

    assert [(one.step, one.policy_version, one.num_samples) for one in batches] == [
        (one.step, one.policy_version - 1, one.num_samples) for one in reports
    ]
    assert [rebuild_batch(batch, store.get).differences for batch in batches] == [[]] * 3
    assert store.query(reward=(7, 7), limit=1000).items


def test_a_stopped_run_goes_on_and_trains_no_group_twice(configure, settings, player, redis, keys):
    stop = threading.Event()
    first = train(configure(5), settings, stop=stop.is_set, report=lambda one: one.step == 2 and stop.set())
    trained = acknowledged(redis, keys)
    second = train(configure(5), settings)

    assert [(one.step, one.policy_version) for one in first + second] == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]
    assert len(trained) == 4
    assert len(acknowledged(redis, keys)) == 10
    assert len(player.played) <= 10 + 2 * 2


def test_a_killed_run_goes_on_from_its_checkpoint_under_a_new_version(configure, settings, player, redis, keys):
    class Killed(BaseException):
        pass

    def die(report):
        if report.step == 5:
            raise Killed

    with pytest.raises(Killed):
        train(configure(9, checkpoint_steps=2, max_staleness=9), settings, report=die)
    played, learned = set(player.played), acknowledged(redis, keys)
    assert len(learned) == 8
    again = train(configure(6, max_staleness=9), settings)

    assert [one.step for one in again] == [5, 6]
    # version 5 was the killed run's, 6 is its checkpoint served again
    assert [one.policy_version for one in again] == [7, 8]
    assert len(acknowledged(redis, keys) - learned) == 4
    assert acknowledged(redis, keys) - learned <= played


@pytest.mark.usefixtures("player")
def test_a_run_that_is_killed_while_it_saves_has_acknowledged_nothing(configure, settings, redis, keys, monkeypatch):
    from trainer_adapter.verl import EmbeddedTrainer  # noqa: PLC0415  # torch takes seconds

    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    monkeypatch.setattr(EmbeddedTrainer, "save", die)
    with pytest.raises(Killed):
        train(configure(2, checkpoint_steps=1), settings)

    assert acknowledged(redis, keys) == set()
    assert CheckpointDirectory(settings, RUN).newest() is None


def test_equal_rewards_change_no_weights(configure, settings, player, engine):
    player.equal = True

    reports = train(configure(2, extra_groups=1), settings)

    assert [(one.policy_version, one.num_dead_groups, one.num_samples) for one in reports] == [(0, 3, 0), (0, 3, 0)]
    assert engine.num_loads == 0


def test_dapo_samples_up_to_ten_times_a_step_until_groups_differ(configure, settings, player, engine):
    player.equal = True
    dapo = msgspec.structs.replace(configure(1), algorithm=AlgorithmConfig(name="dapo"))

    (report,) = train(dapo, settings)

    assert (report.num_dead_groups, report.num_samples) == (20, 0)
    assert engine.num_loads == 0


def test_a_row_that_does_not_fit_into_memory_ends_one_start_and_not_the_run(configure, settings, player, monkeypatch):
    from trainer_adapter.verl import EmbeddedTrainer  # noqa: PLC0415  # torch takes seconds

    update = EmbeddedTrainer.update

    def run_out(trainer, batch, *given):
        if max(len(sample.prompt_ids) for sample in batch.samples) > 55:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return update(trainer, batch, *given)

    monkeypatch.setattr(EmbeddedTrainer, "update", run_out)
    long = PromptDelta(delta=TokenIds([3] * 60))
    player.spoil = lambda lease: {"prompt": long} if lease.rollout_id.endswith(".1") else {}
    optimizer = OptimizerConfig(learning_rate=Schedule(start=1e-3), microbatch_tokens=16)
    config = msgspec.structs.replace(configure(2), optimizer=optimizer)

    with pytest.raises(AgentLayerError, match=r"ran out of it.*start it again"):
        train(config, settings)

    assert [report.untrainable for report in train(config, settings)] == [{"long_row": 2}] * 2


@pytest.mark.parametrize(("algorithm", "plan"), [("dapo", {}), ("grpo", {"extra_groups": 1}), ("grpo", {})])
def test_a_level_that_is_mastered_rises_though_its_groups_teach_nothing(configure, settings, player, algorithm, plan):
    player.equal = True
    ramp = SourceConfig(taskset="repair", count=2, ramp=SuccessRamp(above=0.9, groups=2))
    config = configure(1, **plan)

    train(msgspec.structs.replace(config, tasks=[ramp], algorithm=AlgorithmConfig(name=algorithm)), settings)

    assert CheckpointDirectory(settings, RUN).newest()[1].tasks.levels["repair"] > 0


@pytest.mark.usefixtures("player")
def test_a_run_without_an_engine_keeps_what_it_learned(configure, settings, registry, engine, redis):
    registry.register(msgspec.structs.replace(registry.read(engine.url), run="another"))

    with pytest.raises(EngineError, match="run r: expected an engine that serves it"):
        train(configure(2), settings.model_copy(update={"engine_seconds": 0.5}))

    cursor = CheckpointDirectory(settings, RUN).newest()[1]
    assert len(acknowledged(redis, registry.keys)) == 2
    assert cursor.step == 1
    assert len(cursor.open_positions) == cursor.num_asked - len(cursor.taken)


def test_a_rollout_that_cannot_be_trained_is_left_out_by_name_and_its_run_goes_on(configure, settings, player, redis):
    player.spoil = lambda lease: {"temperature": 0.0} if lease.rollout_id.endswith(".2") else {}

    reports = train(configure(2), settings)

    assert [(one.step, one.untrainable, one.num_samples) for one in reports] == [
        (1, {"greedy": 2}, 4),
        (2, {"greedy": 2}, 4),
    ]
    assert len(acknowledged(redis, player.keys)) == 4


def test_a_poison_group_stops_no_second_start(configure, settings, player, redis):
    player.spoil = lambda _: {"sampling_applied": {"top_p": 0.5}}

    with pytest.raises(AgentLayerError, match=r"untrainable since .*:top_p 6; the first: .*leave it out"):
        train(configure(2), settings)
    poisoned = acknowledged(redis, player.keys)
    player.spoil = lambda _: {}
    waiting = len(player.played) - len(poisoned)  # rollouts that were already asked for are poisoned, too
    reports = train(configure(2, health=MADE_UP | {"untrainable": "off"}), settings)

    assert len(poisoned) == 2
    assert [one.step for one in reports] == [1, 2]
    assert sum(sum(one.untrainable.values()) for one in reports) <= 3 * waiting


@pytest.mark.parametrize("wrong", ["untrainable", "stale_rollouts"])
def test_a_step_for_which_no_group_can_be_trained_ends_whatever_its_health_allows(configure, settings, player, wrong):
    if wrong == "untrainable":
        player.spoil = lambda _: {"temperature": 0.0}
    else:
        player.sampled_by = lambda _, version: max(0, version - 1)
    config = configure(2, max_staleness=0, health=MADE_UP | {wrong: "off"})

    with pytest.raises(AgentLayerError, match=r"expected 2 groups to train on, found 20 others") as stopped:
        train(config, settings)

    assert ("the first: trajectory" in str(stopped.value)) == (wrong == "untrainable")


def test_updates_without_a_finite_gradient_publish_nothing_and_stop_the_run(configure, settings, player, redis, keys):
    player.spoil = lambda _: {"engine": "http://e:1"}
    diverging = OptimizerConfig(learning_rate=Schedule(start=1e30), clip_grad=1e30)
    few = MADE_UP | {"gradient": HealthLimits(steps=2)}
    config = msgspec.structs.replace(configure(9, health=few), optimizer=diverging)

    with pytest.raises(AgentLayerError, match=r"gradient since step 2: norm of the gradient .*: inf"):
        train(config, settings)

    path = progress_path(settings, RUN)
    steps = read_progress(path)
    assert [(one.step, one.policy_version, one.num_skipped_optimizer_steps) for one in steps] == [
        (1, 1, 0),
        (2, 1, 1),
        (3, 1, 1),
    ]
    assert [one.metrics["grad_norm"] for one in steps[1:]] == [None, None]
    assert steps[-1].gap_by_engine == {"http://e:1": None}
    assert b"NaN" not in path.read_bytes()
    assert len(acknowledged(redis, keys)) == 6


def test_an_engine_that_fell_back_is_given_the_newest_weights(configure, settings, player, registry, engine):
    falls = iter([True])

    def fall_back(lease):
        if lease.task.from_policy == 1 and next(falls, False):
            registry.register(msgspec.structs.replace(registry.read(engine.url), version=0))
        return Report(lease=lease, ending="completed")

    player.fate = fall_back
    reports = train(configure(4, max_staleness=0), settings)

    assert [one.step for one in reports] == [1, 2, 3, 4]
    assert sum(one.num_stale_rollouts for one in reports) > 0
    assert registry.read(engine.url).version == 4


@pytest.mark.usefixtures("player")
def test_a_second_trainer_of_the_run_is_refused(configure, settings):
    def start_another(_):
        with pytest.raises(BadInputError, match="no other trainer"):
            train(configure(1), settings)

    assert len(train(configure(1), settings, report=start_another)) == 1


@pytest.mark.usefixtures("player")
def test_a_second_trainer_in_another_directory_is_refused_and_the_first_goes_on(configure, settings, tmp_path):
    elsewhere = settings.model_copy(update={"dir": tmp_path / "elsewhere", "redis_url": settings.redis_url})

    def start_another(_):
        with pytest.raises(BadInputError, match=f"no other trainer at this Redis, found one of {settings.dir}"):
            train(configure(2), elsewhere)

    assert len(train(configure(2), settings, report=start_another)) == 2
    with pytest.raises(BadInputError, match="trained behind a later one, which is gone"):
        train(configure(3), elsewhere)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_command_ends_well_when_asked_and_survives_a_kill(configure, settings, player, redis, wait_until, tmp_path):
    write_config(configure(60, checkpoint_steps=3), tmp_path / "run.json")
    command = [sys.executable, "-m", "agent_layer.cli", "train", str(tmp_path / "run.json")]

    def steps_done():
        return [one.step for one in read_progress(progress_path(settings, RUN))]

    def run_until(step, number):
        variables = settings.environment() | {"PYTHONWARNINGS": "ignore"}
        process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: process.poll() is not None or max(steps_done(), default=0) >= step, seconds=240)
        process.send_signal(number)
        output = communicate(process, 120)[1]
        return process.returncode, output

    status, output = run_until(4, signal.SIGINT)
    stopped_at = steps_done()[-1]
    assert status == 0, output
    assert CheckpointDirectory(settings, RUN).newest()[1].step == stopped_at
    learned = acknowledged(redis, player.keys)
    assert len(learned) == 2 * stopped_at

    assert run_until(stopped_at + 4, signal.SIGKILL)[0] == -signal.SIGKILL
    assert CheckpointDirectory(settings, RUN).newest()[1].step % 3 == 0
    killed_at = steps_done()[-1]

    status, output = run_until(killed_at + 2, signal.SIGTERM)
    assert status == 0, output
    assert steps_done() == list(range(1, steps_done()[-1] + 1))
