"""LoRA on Ray: veRL's workers train the adapter, and its servers get the model that it makes.

torch and veRL take seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import msgspec
import pytest

from agent_layer.health.progress import progress_path, read_progress
from agent_layer.settings import Settings
from trainer_adapter.config import ClusterConfig, LoraConfig, Schedule

from .ray_runs import RUN, configure, train_on_ray, trained_batches, update_of_embedded_driver

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(1800),
    pytest.mark.long,
]

STEPS = 2


@pytest.fixture(scope="module", params=[1, 2], ids=["one rank", "two ranks"])
def settings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Where an adapter was trained, with forks and a reference."""
    home = tmp_path_factory.mktemp("ray")
    config = configure(home, STEPS, checkpoint_steps=1, cluster=ClusterConfig(gpus_per_node=request.param))
    algorithm = msgspec.structs.replace(config.algorithm, kl=0.1)
    optimizer = msgspec.structs.replace(config.optimizer, learning_rate=Schedule(start=1e-2))
    lora = LoraConfig(rank=4, alpha=8)
    return train_on_ray(home, msgspec.structs.replace(config, algorithm=algorithm, optimizer=optimizer, lora=lora))


def test_the_engines_sample_with_the_model_that_the_adapter_makes(settings: Settings):
    steps = read_progress(progress_path(settings, RUN))

    assert [(step.step, step.policy_version) for step in steps] == [(1, 1), (2, 2)]
    assert all(step.metrics["logprob_gap"] < 1e-4 for step in steps), [step.metrics["logprob_gap"] for step in steps]
    assert all(step.metrics["grad_norm"] > 0 for step in steps)
    assert [step.metrics["kl_loss"] > 1e-6 for step in steps] == [True, True], "the reference has no adapter"


def test_the_first_step_is_that_of_one_process_without_ray_reference_included(settings: Settings):
    _, batch = trained_batches(settings)[0]
    found = update_of_embedded_driver(settings)

    metrics = read_progress(progress_path(settings, RUN))[0].metrics
    names = ("grad_norm", "loss", "actor/pg_loss", "actor/ppo_kl", "actor/entropy_loss", "kl_loss")
    assert len(batch.samples) > len(batch.rewards), "with forks"
    assert {name: metrics[name] for name in names} == pytest.approx(
        {name: found.metrics[name] for name in names}, rel=1e-4
    )


def test_a_checkpoint_exports_the_weights_that_the_servers_confirmed(settings: Settings, tmp_path):
    from safetensors.torch import load_file

    from agent_layer.engines import get_policy
    from agent_layer.infra.redis import Keys, open_redis
    from trainer_adapter.cluster.weights import hash_weights
    from trainer_adapter.loop.checkpoint import CheckpointDirectory
    from trainer_adapter.verl import export_checkpoint

    for directory, cursor in CheckpointDirectory(settings, RUN).all():
        assert (directory / "adapter_config.json").is_file()
        export_checkpoint(directory, tmp_path / str(cursor.step))
        with open_redis(settings) as redis:
            policy = get_policy(redis, Keys(settings.namespace), RUN, cursor.policy_version)
        assert hash_weights(load_file(tmp_path / str(cursor.step) / "model.safetensors").items()) == policy.weights_hash
