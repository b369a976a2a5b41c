"""Several processes that share one model, as torchrun starts them: one policy, whatever their number.

torch and veRL take ten seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from agent_layer.errors import BadInputError
from agent_layer.health.progress import progress_path, read_progress
from agent_layer.schema import codec
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.step import Action, PromptDelta, StepPart
from agent_layer.schema.training import TrainingSample
from agent_layer.store import list_batches, open_store
from trainer_adapter.algorithms import AlgorithmConfig
from trainer_adapter.config import OptimizerConfig, Schedule, SourceConfig, TrainConfig, write_config
from trainer_adapter.data import rebuild_batch
from trainer_adapter.data.advantages import GroupSamples, RolloutSamples, TrainingBatch, select_batch
from trainer_adapter.loop.checkpoint import CheckpointDirectory

from ..waiting import communicate, join, run
from .conftest import RUN, Player

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other

TWO_RANKS = """
import json, os, pickle, sys
from pathlib import Path
from trainer_adapter.config import load_config
from trainer_adapter.verl import EmbeddedTrainer

home = Path(sys.argv[1])
trainer = EmbeddedTrainer(load_config(home / "train.json"))
trainer.save(home / "checkpoint")
report = trainer.update(pickle.loads((home / "batch").read_bytes()), 0, version=0)
if os.environ["RANK"] == "0":
    found = report.metrics | {"entropy": report.entropy, "logprob_gap": report.logprob_gap.mean}
    (home / "found.json").write_text(json.dumps(found))
os._exit(0)  # as the command does: torch's threads may need the interpreter when it ends
"""
NAMES = ("grad_norm", "loss", "actor/pg_loss", "actor/ppo_kl", "actor/entropy_loss", "kl_loss", "ratio_gap", "entropy")


def configure_update(model: Path) -> TrainConfig:
    return TrainConfig(
        model=model,
        tasks=[SourceConfig(path=model / "none.jsonl")],
        steps=4,
        algorithm=AlgorithmConfig(entropy=Schedule(start=0.01), kl=0.1),
        optimizer=OptimizerConfig(learning_rate=Schedule(start=1e-3), minibatches=2, epochs=2),
    )


def batch_of_odd_rows() -> TrainingBatch:
    """Two groups of rollouts with one to three rows, seven in all, of different lengths."""

    def rollout(trajectory_id: str, reward: float, num_rows: int) -> RolloutSamples:
        rows = [sample(f"{trajectory_id}.{row}", trajectory_id, length=1 + row + num_rows) for row in range(num_rows)]
        return RolloutSamples(trajectory_id=trajectory_id, reward=reward, samples=rows)

    def sample(sample_id: str, trajectory_id: str, length: int) -> TrainingSample:
        return TrainingSample(
            sample_id=sample_id,
            trajectory_id=trajectory_id,
            run="r",
            task_id="q",
            prompt_ids=TokenIds([3, 12, 5][: 1 + length % 3]),
            response_ids=TokenIds([12 + place for place in range(length)]),
            loss_mask=TokenIds([1] * length),
            logprobs=Logprobs([-3.0 + 0.1 * place for place in range(length)]),
            versions=TokenIds([0] * length),
            temperature=1.0,
        )

    rollouts = {"g": [(1.0, 1), (0.0, 1), (0.25, 2)], "h": [(1.0, 1), (-1.0, 2)]}
    groups = [
        GroupSamples(
            group_id=name,
            task_id="q",
            rollouts=[rollout(f"{name}.{number}-0", *one) for number, one in enumerate(members)],
        )
        for name, members in rollouts.items()
    ]
    return select_batch(groups, keep_equal=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """Where two processes made one update; their checkpoint is from before it."""
    home = tmp_path_factory.mktemp("ranks")
    write_config(configure_update(model), home / "train.json")
    (home / "batch").write_bytes(pickle.dumps(batch_of_odd_rows()))
    (home / "program.py").write_text(TWO_RANKS)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = run([*torchrun, home / "program.py", home], 300)
    assert done.returncode == 0, done.stderr
    return home


def test_an_update_of_two_processes_is_that_of_one_forks_and_idle_rows_included(home: Path, model: Path):
    from trainer_adapter.verl import EmbeddedTrainer

    batch = batch_of_odd_rows()
    report = EmbeddedTrainer(configure_update(model)).update(batch, 0, version=0)

    found = msgspec.json.decode((home / "found.json").read_bytes(), type=dict[str, float])
    expected = report.metrics | {"entropy": report.entropy}
    assert len(batch.samples) % 2 == 1
    assert len(batch.samples) > len(batch.rewards)
    assert expected["kl_loss"] > 0
    assert {name: found[name] for name in NAMES} == pytest.approx({name: expected[name] for name in NAMES}, rel=1e-5)
    assert found["logprob_gap"] == pytest.approx(report.logprob_gap.mean)


def test_shards_of_two_processes_become_one_model(home: Path, model: Path, tmp_path: Path):
    import torch
    from transformers import AutoModelForCausalLM

    from trainer_adapter.verl import export_checkpoint

    assert len(list((home / "checkpoint").glob("model_world_size_2_rank_*.pt"))) == 2
    export_checkpoint(home / "checkpoint", tmp_path / "hf")

    weights, expected = (AutoModelForCausalLM.from_pretrained(one).state_dict() for one in (tmp_path / "hf", model))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_a_checkpoint_of_two_processes_is_refused_by_one(home: Path, model: Path):
    from trainer_adapter.verl import EmbeddedTrainer

    with pytest.raises(BadInputError, match=r"as many shards as processes that train now \(1\), found 2; train with 2"):
        EmbeddedTrainer(configure_update(model)).load(home / "checkpoint")


class ForkingPlayer(Player):
    """Plays rollouts of two conversations, so that each has two rows."""

    def _records(self, report, version):
        *first, reward, outcome = super()._records(report, version)
        own = {"trajectory_id": report.lease.trajectory_id, "run": report.lease.task.run}
        action = Action(
            response_token_ids=TokenIds([13]), logprobs=Logprobs([self.logprob]), policy_versions=[(version, 1)]
        )
        second = StepPart(
            **own,
            call_id="d",
            source="gateway",
            phase="end",
            at=2.5,
            prompt=PromptDelta(delta=TokenIds([4, 5])),
            actions=[action],
            temperature=1.0,
            status="ok",
            capture_level="tokens",
        )
        return [*first, second, reward, msgspec.structs.replace(outcome, num_calls=2)]


@pytest.fixture
def forking_player(settings, registry, engine):
    player = ForkingPlayer(settings, registry, engine)
    thread = threading.Thread(target=player.play_all, daemon=True)
    thread.start()
    yield
    player.stop.set()
    join(thread)


def first_batch(settings) -> TrainingBatch:
    store = open_store(settings)
    content = rebuild_batch(list_batches(store.redis, store.keys, RUN)[0], store.get).content
    return msgspec.msgpack.decode(content, type=TrainingBatch, dec_hook=codec._unpack_array)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("forking_player")
def test_the_command_trains_on_two_processes_stops_when_asked_and_goes_on(
    configure, settings, registry, engine, wait_until, tmp_path
):
    from trainer_adapter.verl import EmbeddedTrainer

    config, path = configure(400), progress_path(settings, RUN)
    write_config(config, tmp_path / "run.json")

    def run_until(step: int, processes: int = 2) -> tuple[int, str]:
        program = [sys.executable, "-m", "agent_layer.cli", "train", tmp_path / "run.json", f"--processes={processes}"]
        variables = settings.environment() | {"PYTHONWARNINGS": "ignore"}
        process = subprocess.Popen(program, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: process.poll() is not None or len(read_progress(path)) >= step, seconds=240)
        process.send_signal(signal.SIGINT)
        output = communicate(process, 240)[1]
        return process.returncode, output

    run_until(2)
    stopped_at = len(read_progress(path))
    assert CheckpointDirectory(settings, RUN).newest()[1].step == stopped_at
    refused, output = run_until(stopped_at + 1, processes=1)
    assert (refused, "as many shards as processes" in output) == (2, True), output
    run_until(stopped_at + 1)

    steps = read_progress(path)
    assert [one.step for one in steps] == list(range(1, len(steps) + 1))
    assert len(steps) > stopped_at
    assert registry.read(engine.url).version == steps[-1].policy_version
    batch = first_batch(settings)
    expected = EmbeddedTrainer(config).update(batch, 0, version=0).metrics
    names = ("grad_norm", "loss", "actor/pg_loss", "actor/ppo_kl")
    assert len(batch.samples) == 2 * len(batch.rewards)
    assert {name: steps[0].metrics[name] for name in names} == pytest.approx(
        {name: expected[name] for name in names}, rel=1e-5
    )
