"""Fixtures of training tests: a tiny model, an engine, and a thread that plays rollouts.

torch takes seconds to import, so it is imported inside fixtures: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import threading

import pytest

from agent_layer.dispatcher import connect
from agent_layer.dispatcher.models import Report
from agent_layer.engines.registry import EngineRegistry
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.schema.codec import encode
from agent_layer.schema.ids import new_id
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import AttemptStarted, Outcome
from agent_layer.schema.step import Action, PromptDelta, StepPart
from agent_layer.store import open_store
from agent_layer.store.maintenance.rebuild import index_segment
from agent_layer.store.segments.format import StoredRecord, build_segment, segment_key
from trainer_adapter.config import OptimizerConfig, RetentionConfig, RolloutConfig, Schedule, SourceConfig, TrainConfig
from trainer_adapter.loop.feed import CONSUMER

from ..queues import open_queue
from ..waiting import join

RUN = "r"
MADE_UP = {"importance_tail": "off", "logprob_gap": "off"}
"""Limits for runs whose log-probabilities no model computed."""


def train(config, settings, **options):
    from trainer_adapter.loop.run import train_run

    return train_run(config, settings, **options)


def acknowledged(redis, keys):
    """Ids of the groups that the trainer is done with."""
    return {one.decode() for one in redis.smembers(keys.acked(RUN, CONSUMER))}


@pytest.fixture
def configure(model, tmp_path):
    """``configure(steps, …)``: a run over two tasks."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a", "input": 1}\n{"id": "b", "input": 2}\n')

    def configure(steps, checkpoint_steps=10, health=None, **plan):
        return TrainConfig(
            model=model,
            tasks=[SourceConfig(path=tasks)],
            steps=steps,
            run=RUN,
            rollouts=RolloutConfig(group_size=3, **plan),
            optimizer=OptimizerConfig(learning_rate=Schedule(start=1e-3)),
            keep=RetentionConfig(checkpoint_steps=checkpoint_steps, num_versions=2),
            health=MADE_UP if health is None else health,
        )

    return configure


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory):
    """Directory of a tiny chat model, whose template supports tools."""
    from trainer_adapter.tiny_model import write_chat_model

    directory = tmp_path_factory.mktemp("chat") / "model"
    write_chat_model(directory)
    return directory


@pytest.fixture
def registry(redis, keys):
    return EngineRegistry(redis, keys)


@pytest.fixture
def engine(settings, register_engine, model):
    """An engine in the registry that serves version 0."""
    with serve_in_thread(ScriptedEngine()) as engine:
        register_engine(engine, settings, run=RUN, location=str(model))
        yield engine


@pytest.fixture
def player(settings, registry, engine):
    """Plays every rollout that the dispatcher leases, one of each group with success."""
    player = Player(settings, registry, engine)
    thread = threading.Thread(target=player.play_all, daemon=True)
    thread.start()
    yield player
    player.stop.set()
    join(thread)


class Player:
    """A worker as the dispatcher sees it; ``equal`` makes all rewards equal, ``fate`` decides how leases end."""

    def __init__(self, settings, registry, engine):
        self.stop = threading.Event()
        self.equal = False
        self.spoil = lambda _: {}
        """Called with each lease: fields of its call to replace."""
        self.fate = lambda lease: Report(lease=lease, ending="completed")
        """Called with each lease until it is final; None holds it, as long as it is not cancelled."""
        self.sampled_by = lambda _, version: version
        """Policy version that samples the rollout of a lease, from the version that serves."""
        self.logprob = -3.0
        """Log-probability that the engine reports for each token."""
        self.silent = set()
        """Numbers of the rollouts of a group that end without a call to the policy."""
        self.plays = lambda task: task
        """Task that is played in place of the one that was leased."""
        self.num_counted = 1
        """Calls of a rollout that the gateway counts."""
        self.played = {}
        """Version that served when the first rollout of a group was given out, by group id."""
        self.starts = {}
        """Version from which its task may begin, by group id; None: any."""
        self._store = open_store(settings)
        self.keys = self._store.keys
        self.use(settings)
        self._registry = registry
        self._engine = engine

    def use(self, settings):
        """Work by other settings from now on."""
        self._queue = open_queue(connect(settings))

    def play_all(self):
        held = []
        while not self.stop.is_set():
            claimed = self._queue.claim("player", 64, wait_seconds=0.2)
            fates = [(lease, self.fate(lease)) for lease in [*held, *claimed]]
            held = [lease for lease, report in fates if report is None]
            version = self._registry.read(self._engine.url).version
            for lease in claimed:
                self.played.setdefault(lease.group_id, version)
                self.starts[lease.group_id] = lease.task.from_policy
            self._end([report for _, report in fates if report], version)

    def _end(self, reports, version):
        accepted = [report for report in reports if report.ending == "completed"]
        if accepted:
            self._write({one.lease.trajectory_id: self._records(one, version) for one in accepted})
        self._queue.settle(reports)

    def _write(self, records):
        owned = {owner: [StoredRecord(one, encode(one)) for one in found] for owner, found in records.items()}
        name = new_id()
        content, _ = build_segment(name, owned)
        self._store.objects.put(segment_key(self._store.keys, name), content)
        index_segment(self._store.redis, self._store.keys, self._store.objects, name)

    def _records(self, report, version):
        lease, number = report.lease, int(report.lease.rollout_id.rpartition(".")[2])
        own = {"trajectory_id": lease.trajectory_id, "run": lease.task.run}
        prompt = PromptDelta(delta=TokenIds([3]))
        seen = {"temperature": 1.0, "status": "ok", "capture_level": "tokens", "prompt": prompt} | self.spoil(lease)
        action = Action(
            response_token_ids=TokenIds([12 + number]),
            logprobs=Logprobs([self.logprob]),
            policy_versions=[(self.sampled_by(lease, version), 1)],
        )
        score = 1.0 if self.equal else float(number == 0)
        is_silent = number in self.silent
        records = [
            AttemptStarted(
                **own,
                rollout_id=lease.rollout_id,
                attempt=lease.attempt,
                task_id=lease.task.id,
                task=self.plays(lease.task),
                split=lease.task.split,
                group_id=lease.group_id,
                started_at=1.0,
            ),
            StepPart(
                **own,
                **seen,
                call_id="c",
                source="gateway",
                phase="end",
                at=2.0,
                actions=[action],
            ),
            Reward(**own, reward_id=f"{lease.trajectory_id}-w", at=3.0, score=score if report.usable else None),
            Outcome(**own, status="completed", ended_at=4.0, num_calls=0 if is_silent else self.num_counted),
        ]
        return [one for one in records if not (is_silent and isinstance(one, StepPart))]
