"""Other modes than ``sync`` on Ray: which weights sampled each token, from what the store has of it.

torch and veRL take seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

from pathlib import Path

import msgspec
import pytest

from agent_layer.health.progress import progress_path, read_progress
from agent_layer.settings import Settings
from trainer_adapter.config import ClusterConfig, RolloutConfig, TrainConfig

from .ray_runs import RUN, configure, train_on_ray, trained_batches, update_of_embedded_driver

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(1800),
    pytest.mark.long,
]

STEPS = 3
MAX_STALENESS = 1

MODES = {
    "colocate_async": ClusterConfig(mode="colocate_async"),
    "colocate_async of two ranks": ClusterConfig(mode="colocate_async", gpus_per_node=2),
    "separate_async of two ranks": ClusterConfig(mode="separate_async", gpus_per_node=2),
}


def configure_stale(home: Path, cluster: ClusterConfig) -> TrainConfig:
    """Rollouts may be one update old; the first weights pull; a checkpoint keeps the weights of each version."""
    config = configure(home, STEPS, checkpoint_steps=1, cluster=cluster)
    keep = msgspec.structs.replace(config.keep, num_checkpoints=STEPS)
    rollouts = RolloutConfig(group_size=config.rollouts.group_size, max_staleness=MAX_STALENESS)
    algorithm = msgspec.structs.replace(config.algorithm, kl=0.1)
    return msgspec.structs.replace(config, keep=keep, rollouts=rollouts, algorithm=algorithm)


@pytest.fixture(scope="module", params=MODES.values(), ids=MODES.keys())
def settings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Where the game was trained in this mode, with forks."""
    home = tmp_path_factory.mktemp("ray")
    return train_on_ray(home, configure_stale(home, request.param))


def test_no_trained_token_is_older_than_the_staleness_that_is_allowed(settings: Settings):
    steps = read_progress(progress_path(settings, RUN))

    found: list[tuple[float, int]] = []
    for version, batch in trained_batches(settings):
        ages = [
            version - sampled_by
            for sample in batch.samples
            for sampled_by, is_trained in zip(sample.versions, sample.loss_mask, strict=True)
            if is_trained
        ]
        found.append((sum(ages) / len(ages), max(ages)))
        assert min(ages) >= 0

    assert [step.policy_version for step in steps] == list(range(1, STEPS + 1))
    assert found[0] == (0, 0)
    assert all(oldest <= MAX_STALENESS for _, oldest in found)
    assert [(step.staleness_mean, step.staleness_max) for step in steps] == [
        (pytest.approx(mean), oldest) for mean, oldest in found
    ]


def test_each_token_was_sampled_by_the_weights_of_the_version_it_names(settings: Settings, tmp_path: Path):
    import torch
    from transformers import AutoModelForCausalLM

    from trainer_adapter.verl import export_checkpoint

    directories = {0: settings.dir.parent / "model"}
    for checkpoint in (settings.dir / "checkpoints" / RUN).glob("step-*"):
        number = msgspec.json.decode((checkpoint / "cursor.json").read_bytes())["policy_version"]
        directories[number] = tmp_path / str(number)
        export_checkpoint(checkpoint, directories[number])
    models = {number: AutoModelForCausalLM.from_pretrained(one).eval() for number, one in directories.items()}

    def logprobs_of(version: int, prompt: list[int], response: list[int]) -> torch.Tensor:
        with torch.no_grad():
            logits = models[version](torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
        return logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None])[:, 0]

    gaps: list[float] = []
    for _, batch in trained_batches(settings):
        for sample in batch.samples:
            mask, versions = torch.tensor(sample.loss_mask).bool(), torch.tensor(sample.versions)
            for version in versions[mask].unique().tolist():
                own = mask & (versions == version)
                expected = logprobs_of(version, list(sample.prompt_ids), list(sample.response_ids))
                gaps += (torch.tensor(sample.logprobs) - expected)[own].abs().tolist()

    assert len(gaps) > 0
    assert max(gaps) < 1e-4


def test_the_first_step_is_that_of_one_process_without_ray_forks_and_reference_included(settings: Settings):
    _, batch = trained_batches(settings)[0]

    found = update_of_embedded_driver(settings)

    metrics = read_progress(progress_path(settings, RUN))[0].metrics
    names = ("grad_norm", "loss", "actor/pg_loss", "actor/ppo_kl", "actor/entropy_loss", "kl_loss")
    assert len(batch.samples) > len(batch.rewards)
    assert metrics["kl_loss"] > 0
    assert {name: metrics[name] for name in names} == pytest.approx(
        {name: found.metrics[name] for name in names}, rel=1e-4
    )
    assert metrics["entropy"] == pytest.approx(found.entropy)
