"""This file holds what tests of training share: a tiny model, an engine, and a thread that plays every group.

torch takes seconds to import, which collecting the tests must not.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import threading

import pytest

from agent_layer.dispatcher import connect
from agent_layer.local.scripted import ScriptedEngine, serve_in_thread
from agent_layer.schema.codec import encode
from agent_layer.schema.group import Group
from agent_layer.schema.ids import new_id, rollout_id_of, trajectory_id_of
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Action, PromptDelta, StepPart
from agent_layer.store import open_store
from agent_layer.store.engines import EngineBoard
from agent_layer.store.rebuild import index_segment
from agent_layer.store.segments import StoredRecord, build_segment, segment_key
from trainer_adapter.config import Keep, Optimizer, Rollouts, TrainConfig
from trainer_adapter.schedule import Schedule

RUN = "r"


@pytest.fixture(scope="session")
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
def engine(settings, put_on_board, model):
    """An engine on the board that serves version 0."""
    with serve_in_thread(ScriptedEngine()) as engine:
        put_on_board(engine, settings, run=RUN, location=str(model))
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
        self.keys = self._store.keys
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
        records[f"group:{group.group_id}"] = [closed]
        owned = {owner: [StoredRecord(one, encode(one)) for one in found] for owner, found in records.items()}
        name = new_id()
        content, _ = build_segment(name, owned)
        self._store.objects.put(segment_key(self._store.keys, name), content)
        index_segment(self._store.redis, self._store.keys, self._store.objects, name)

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
