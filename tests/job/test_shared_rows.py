"""Rows shared by several processes (Ulysses): loss and gradient are those of one process.

torch and veRL take ten seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import json
import os
import pickle
import random
import sys
from pathlib import Path

import msgspec
import pytest

from agent_layer.errors import BadInputError
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.training import TrainingSample
from trainer_adapter.algorithms import AlgorithmConfig
from trainer_adapter.cluster.overrides import make_environment
from trainer_adapter.config import ClusterConfig, OptimizerConfig, Schedule, SourceConfig, TrainConfig, write_config
from trainer_adapter.data.advantages import GroupSamples, RolloutSamples, TrainingBatch, select_batch

from ..waiting import run

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other

PROGRAM, RAY_PROGRAM = (Path(__file__).parent / name for name in ("shared_rows.py", "ray_update.py"))
NAMES = ("loss", "actor/pg_loss", "actor/entropy_loss", "kl_loss", "ratio_gap", "entropy", "grad_norm")


def configure(model: Path, sequence_parallel: int = 1, **optimizer: object) -> TrainConfig:
    rate = Schedule(start=1e-3)
    options = {"learning_rate": rate, "microbatch_tokens": 40, "sequence_parallel": sequence_parallel} | optimizer
    return TrainConfig(
        model=model,
        tasks=[SourceConfig(path=model / "none.jsonl")],
        steps=4,
        algorithm=AlgorithmConfig(entropy=Schedule(start=0.01), kl=0.1),
        optimizer=OptimizerConfig(**options),
    )


def batch_of_any_rows(seed: int = 0) -> TrainingBatch:
    """Two groups of rollouts that fork, of rows of any length, at several temperatures and versions."""
    chance = random.Random(seed)

    def sample(trajectory_id: str, number: int) -> TrainingSample:
        length = chance.choice([1, 2, 7, 30, 61])
        mask = [1, *(chance.randrange(2) for _ in range(length - 1))]
        return TrainingSample(
            sample_id=f"{trajectory_id}.{number}",
            trajectory_id=trajectory_id,
            run="r",
            task_id="q",
            prompt_ids=TokenIds([3, *(chance.randrange(12, 21) for _ in range(chance.randrange(9)))]),
            response_ids=TokenIds([chance.randrange(12, 21) for _ in range(length)]),
            loss_mask=TokenIds(mask),
            logprobs=Logprobs([-chance.uniform(2.6, 3.4) * one for one in mask]),
            versions=TokenIds([chance.randrange(2) if one else -1 for one in mask]),
            temperature=chance.choice([0.5, 1.0, 1.3]),
        )

    def rollout(trajectory_id: str, reward: float) -> RolloutSamples:
        samples = [sample(trajectory_id, number) for number in range(chance.choice([1, 1, 3]))]
        return RolloutSamples(trajectory_id=trajectory_id, reward=reward, samples=samples)

    groups = [
        GroupSamples(
            group_id=name,
            task_id="q",
            rollouts=[rollout(f"{name}.{place}-0", reward) for place, reward in enumerate((1.0, 0.0, 0.5))],
        )
        for name in ("g", "h")
    ]
    return select_batch(groups, keep_equal=False)


def compute_on(home: Path, config: TrainConfig, batch: TrainingBatch, num_ranks: int):
    """What an update of these processes measures, and its gradient."""
    import torch

    write_config(config, home / "train.json")
    (home / "batch").write_bytes(pickle.dumps(batch))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
    done = run([*torchrun, PROGRAM, home], 300)
    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode((home / "found.json").read_bytes(), type=dict[str, float])
    return found, torch.load(home / "gradient.pt")


def assert_same(found, expected):
    import torch

    (metrics, gradient), (whole, whole_gradient) = found, expected
    assert {name: metrics[name] for name in NAMES} == pytest.approx({name: whole[name] for name in NAMES}, rel=1e-6)
    size = torch.cat([one.flatten() for one in whole_gradient.values()]).norm()
    assert gradient.keys() == whole_gradient.keys()
    for name, one in whole_gradient.items():
        assert float((gradient[name] - one).norm() / size) < 1e-6, name


@pytest.mark.long
def test_a_row_that_two_processes_share_has_the_loss_and_the_gradient_of_one(model: Path, tmp_path: Path):
    from .shared_rows import compute_update

    batch = batch_of_any_rows()
    expected = compute_update(configure(model), batch)

    assert len(batch.samples) > len(batch.rewards), "some rollouts fork"
    assert_same(compute_on(tmp_path, configure(model, 2), batch, 2), expected)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("parts", "num_ranks"), [(2, 4), (4, 4), (2, 2), (1, 2)])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_any_division_of_any_rows_has_the_loss_and_the_gradient_of_one(
    model: Path, tmp_path: Path, seed: int, parts: int, num_ranks: int, *, checkpointing: bool
):
    from .shared_rows import compute_update

    batch = batch_of_any_rows(seed)
    expected = compute_update(configure(model, microbatch_tokens=100_000), batch)

    config = configure(model, parts, microbatch_tokens=(1, 40, 500)[seed], gradient_checkpointing=checkpointing)
    assert_same(compute_on(tmp_path, config, batch, num_ranks), expected)


@pytest.mark.long
def test_a_process_with_a_row_less_than_another_has_the_metrics_of_one(model: Path, tmp_path: Path):
    from .shared_rows import compute_update

    even = batch_of_any_rows()
    batch = msgspec.structs.replace(even, samples=even.samples[:-1], rollout_of=even.rollout_of[:-1])
    names = ("actor/ppo_kl", "actor/pg_clipfrac")
    expected, _ = compute_update(configure(model), batch)

    found, _ = compute_on(tmp_path, configure(model, microbatch_tokens=1), batch, 2)

    assert {name: found[name] for name in names} == pytest.approx({name: expected[name] for name in names}, abs=1e-6)


@pytest.mark.parametrize(("parts", "named"), [(2, "1 processes that share"), (3, "1 processes"), (8, "1 processes")])
def test_rows_for_more_processes_than_share_the_model_are_refused(model: Path, parts: int, named: str):
    from trainer_adapter.verl import EmbeddedTrainer

    with pytest.raises(BadInputError, match=f"optimizer.sequence_parallel {parts}: .*{named}"):
        EmbeddedTrainer(configure(model, parts))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_workers_on_ray_that_share_rows_have_the_loss_and_the_gradient_of_one_process(model: Path, tmp_path: Path):
    """Rows travel through veRL's store, each with its temperature; batches have forks and several versions."""
    from trainer_adapter.verl import EmbeddedTrainer

    batches = [batch_of_any_rows(seed) for seed in range(3)]
    cluster = ClusterConfig(mode="separate_async", gpus_per_node=2, max_model_len=128)
    config = configure(model, 2, learning_rate=Schedule(start=0.0))
    write_config(msgspec.structs.replace(config, cluster=cluster), tmp_path / "train.json")
    (tmp_path / "batches").write_bytes(pickle.dumps(batches))
    variables = make_environment(config, tmp_path, on_cpu=True)

    done = run([sys.executable, RAY_PROGRAM, tmp_path], 600, env={**os.environ, **variables})

    assert done.returncode == 0, done.stderr
    embedded = EmbeddedTrainer(configure(model, learning_rate=Schedule(start=0.0), microbatch_tokens=100_000))
    for metrics, batch in zip(json.loads((tmp_path / "found.json").read_bytes()), batches, strict=True):
        assert len({one.temperature for one in batch.samples}) > 1, "at several temperatures"
        report = embedded.update(batch, 0, version=1)
        whole = report.metrics | {"entropy": report.entropy}
        assert {name: metrics[name] for name in NAMES} == pytest.approx({name: whole[name] for name in NAMES}, rel=1e-5)
