"""Other modes than ``sync`` on Ray: which weights sampled each token, from what the store has of it."""

from pathlib import Path

import pytest

from agent_layer.health.progress import progress_path, read_progress
from agent_layer.settings import Settings
from trainer_adapter.config import ClusterConfig

from .ray_runs import (
    RUN,
    ages_of_trained_tokens,
    configure_stale,
    logprob_gaps,
    train_on_ray,
    trained_batches,
    update_of_embedded_driver,
)

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


@pytest.fixture(scope="module", params=MODES.values(), ids=MODES.keys())
def settings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Where the game was trained in this mode, with forks."""
    home = tmp_path_factory.mktemp("ray")
    return train_on_ray(home, configure_stale(home, STEPS, MAX_STALENESS, request.param))


def test_no_trained_token_is_older_than_the_staleness_that_is_allowed(settings: Settings):
    steps = read_progress(progress_path(settings, RUN))

    by_step = ages_of_trained_tokens(settings)
    found = [(sum(ages) / len(ages), max(ages)) for ages in by_step]

    assert [step.policy_version for step in steps] == list(range(1, STEPS + 1))
    assert found[0] == (0, 0)
    assert all(min(ages) >= 0 for ages in by_step)
    assert all(oldest <= MAX_STALENESS for _, oldest in found)
    assert [(step.staleness_mean, step.staleness_max) for step in steps] == [
        (pytest.approx(mean), oldest) for mean, oldest in found
    ]


def test_each_token_was_sampled_by_the_weights_of_the_version_it_names(settings: Settings, tmp_path: Path):
    gaps = logprob_gaps(settings, tmp_path)

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
