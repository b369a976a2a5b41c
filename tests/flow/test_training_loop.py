"""This file holds what a training run promises on real parts: veRL, Redis, the dispatcher's queue, engines that switch.

Only the agent is short: a thread that plays every group as soon as it is asked for, under the version that serves.
torch and veRL take ten seconds to import, which collecting the tests must not.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import threading

import msgspec
import pytest

from agent_layer.dispatcher import connect
from agent_layer.errors import BadInputError, EngineError
from agent_layer.local.scripted import ScriptedEngine, serve_in_thread
from agent_layer.schema.codec import encode
from agent_layer.schema.group import Group
from agent_layer.schema.ids import new_id, rollout_id_of, trajectory_id_of
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Action, PromptDelta, StepPart
from agent_layer.store import open_store
from agent_layer.store.engines import Engine, EngineBoard
from agent_layer.store.policies import list_policies
from agent_layer.store.rebuild import index_segment
from agent_layer.store.segments import build_segment
from trainer_adapter.checkpoint import Shelf
from trainer_adapter.config import Keep, Optimizer, Rollouts, TrainConfig
from trainer_adapter.groups import CONSUMER
from trainer_adapter.progress import progress_path, read_progress
from trainer_adapter.schedule import Schedule

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(300),
]

RUN = "r"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from examples.guess_number.model import write_model

    directory = tmp_path_factory.mktemp("model")
    write_model(directory, seed=0)
    return directory


@pytest.fixture
def configure(model, tmp_path):
    """``configure(steps, …)``: a run over two tasks."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a", "input": 1}\n{"id": "b", "input": 2}\n')

    def configure(steps, checkpoint_steps=10, **plan):
        return TrainConfig(
            model=model,
            tasks=tasks,
            steps=steps,
            run=RUN,
            rollouts=Rollouts(group_size=3, **plan),
            optimizer=Optimizer(learning_rate=Schedule(start=1e-3)),
            keep=Keep(checkpoint_steps=checkpoint_steps, num_versions=2),
        )

    return configure


@pytest.fixture
def board(redis, keys):
    return EngineBoard(redis, keys)


@pytest.fixture
def engine(board, model):
    """An engine on the board that serves version 0."""
    with serve_in_thread(ScriptedEngine()) as engine:
        board.register(
            Engine(
                url=engine.url,
                run=RUN,
                version=0,
                location=str(model),
                model="scripted",
                logprobs_mode="processed",
                state="serving",
                epoch=0,
            )
        )
        yield engine


@pytest.fixture
def player(settings, board, engine):
    """Plays every group that is asked for; ``player.equal`` makes all rewards equal."""
    player = Player(settings, board, engine)
    thread = threading.Thread(target=player.play_all, daemon=True)
    thread.start()
    yield player
    player.stop.set()
    thread.join(10)


class Player:
    def __init__(self, settings, board, engine):
        self.stop = threading.Event()
        self.equal = False
        self.played = {}
        self._store = open_store(settings)
        self._dispatcher = connect(settings)
        self._board = board
        self._engine = engine

    def play_all(self):
        while not self.stop.wait(0.01):
            for group in self._dispatcher.groups():
                if group.group_id not in self.played:
                    version = self._board.read(self._engine.url).version
                    self.played[group.group_id] = version
                    self._write(group, version)

    def _write(self, group, version):
        members = [trajectory_id_of(rollout_id_of(group.group_id, n), 0) for n in range(group.group_size)]
        records = {one: self._records(one, group, number, version) for number, one in enumerate(members)}
        closed = Group(
            group_id=group.group_id,
            run=RUN,
            task_id=group.task_id,
            closed_at=float(len(self.played)),
            group_size=group.group_size,
            trajectory_ids=members,
        )
        owned = {owner: [encode(record) for record in found] for owner, found in records.items()}
        name = new_id()
        content, _ = build_segment(name, 0.0, {**owned, f"group:{group.group_id}": [encode(closed)]})
        key = f"{self._store.keys.namespace}/seg/2026/11/20/{name}.seg"
        self._store.objects.put(key, content)
        index_segment(self._store.redis, self._store.keys, self._store.objects, key)

    def _records(self, trajectory_id, group, number, version):
        own = {"trajectory_id": trajectory_id, "run": RUN}
        rollout_id = trajectory_id[:-2]
        action = Action(
            response_token_ids=TokenIds([12 + number]), logprobs=Logprobs([-3.0]), policy_versions=[(version, 1)]
        )
        return [
            AttemptStarted(
                **own,
                rollout_id=rollout_id,
                attempt=0,
                task_id=group.task_id,
                group_id=group.group_id,
                started_at=1.0,
            ),
            StepPart(
                **own,
                call_id="c",
                source="gateway",
                phase="end",
                at=2.0,
                prompt=PromptDelta(delta=TokenIds([3])),
                actions=[action],
                status="ok",
                capture_level="tokens",
            ),
            Reward(**own, reward_id=f"{trajectory_id}-w", at=3.0, score=1.0 if self.equal else float(number == 0)),
            Outcome(**own, status="completed", ended_at=4.0, num_calls=1),
            Accepted(**own, rollout_id=rollout_id, accepted_at=5.0, group_id=group.group_id),
        ]


def train(config, settings, **options):
    from trainer_adapter.run import train_run

    return train_run(config, settings, **options)


def acknowledged(redis, keys):
    return {one.decode() for one in redis.smembers(keys.acked(RUN, CONSUMER))}


@pytest.mark.usefixtures("player")
def test_every_step_gives_a_version_that_is_registered_served_and_reported(configure, settings, engine, board, redis):
    reports = train(configure(4, checkpoint_steps=3), settings)

    weights = settings.dir.absolute() / "weights" / RUN
    assert [(one.step, one.policy_version) for one in reports] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert reports == read_progress(progress_path(settings, RUN))
    assert [policy.number for policy in list_policies(redis, board.keys, RUN)] == [0, 1, 2, 3, 4]
    assert (board.read(engine.url).version, board.read(engine.url).state) == (4, "serving")
    assert (engine.num_loads, engine.weights) == (4, str(weights / "000004"))
    assert sorted(path.name for path in weights.iterdir()) == ["000003", "000004"]
    assert all(one.success == pytest.approx(1 / 3) and one.num_null_rewards == 0 for one in reports)
    assert all(one.staleness_max <= 1 and one.num_tokens == 6 for one in reports)
    assert len(acknowledged(redis, board.keys)) == 8


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


def test_equal_rewards_change_no_weights(configure, settings, player, engine):
    player.equal = True

    reports = train(configure(2, extra_groups=1), settings)

    assert [(one.policy_version, one.num_dead_groups, one.num_samples) for one in reports] == [(0, 3, 0), (0, 3, 0)]
    assert engine.num_loads == 0


@pytest.mark.usefixtures("player")
def test_a_run_without_an_engine_keeps_what_it_learned(configure, settings, board, engine, redis):
    board.register(msgspec.structs.replace(board.read(engine.url), run="another"))

    with pytest.raises(EngineError, match="run r: expected an engine that serves it"):
        train(configure(2), settings)

    assert len(acknowledged(redis, board.keys)) == 2
    assert Shelf(settings, RUN).newest()[1].step == 1


@pytest.mark.usefixtures("player")
def test_an_engine_that_fell_back_is_given_the_newest_weights(configure, settings, board, engine):
    def fall_back(report):
        if report.step == 1:
            board.register(msgspec.structs.replace(board.read(engine.url), version=0))

    reports = train(configure(4, max_staleness=0), settings, report=fall_back)

    assert [one.step for one in reports] == [1, 2, 3, 4]
    assert sum(one.num_stale_rollouts for one in reports) > 0
    assert board.read(engine.url).version == 4


@pytest.mark.usefixtures("player")
def test_a_second_trainer_of_the_run_is_refused(configure, settings):
    def start_another(_):
        with pytest.raises(BadInputError, match="no other trainer"):
            train(configure(1), settings)

    assert len(train(configure(1), settings, report=start_another)) == 1
