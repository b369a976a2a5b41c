"""Configurations for 1, 8 and 64 GPUs: each is read and fits, and its figures in the guide are those of a dry run."""

from pathlib import Path

import pytest

from agent_layer.settings import Settings
from trainer_adapter.cluster import find_address, plan_needs, write_needs
from trainer_adapter.cluster.overrides import refuse_on_ray
from trainer_adapter.config import TrainConfig, load_config
from trainer_adapter.model_sizes import read_context_length
from trainer_adapter.start.memory import read_shape
from trainer_adapter.start.ray_gpus import FoundGpus, GpuPlan, find_gpu_faults, plan_gpus, read_gpu_bytes, write_gpus

from ...documents import ROOT
from ...example_models import describe_model

EXAMPLES = ROOT / "examples/cluster/gpus"
GUIDE = (ROOT / "docs/how-to/gpus.md").read_text()
NAMES = ("one", "eight", "sixty_four")


@pytest.fixture
def load(tmp_path: Path):
    """``load(name)``: an example, beside the config.json of its model."""

    def load(name: str) -> TrainConfig:
        path = tmp_path / f"{name}.yaml"
        path.write_text((EXAMPLES / path.name).read_text())
        config = load_config(path)
        config.model.mkdir(exist_ok=True)
        (config.model / "config.json").write_bytes(describe_model(config.model.name))
        return config

    return load


def plan(config: TrainConfig) -> GpuPlan:
    cluster = config.cluster
    assert cluster
    assert config.rollouts.groups_per_step
    return plan_gpus(
        config,
        read_shape(config.model),
        FoundGpus(cluster.gpus_per_node + (cluster.engine_gpus if cluster.mode else 0), read_gpu_bytes(config)),
        num_groups=config.rollouts.groups_per_step,
        context=read_context_length(config),
        bucket_megabytes=2048,
    )


@pytest.mark.parametrize(("name", "num_gpus"), [("one", 1), ("eight", 8), ("sixty_four", 64)])
def test_an_example_fits_on_its_gpus(load, name, num_gpus):
    config = load(name)

    refuse_on_ray(config)
    assert plan(config).num_all == num_gpus
    assert find_gpu_faults(plan(config)) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_guide_has_the_figures_of_the_dry_run(load, name):
    lines = "\n".join(list(write_gpus(plan(load(name))))[1:])

    assert f"\n{lines}\n" in GUIDE, f"put into docs/how-to/gpus.md:\n{lines}"


def test_the_guide_has_what_64_gpus_need_of_a_cluster(load):
    config = load("sixty_four")
    lines = "\n".join(write_needs(plan_needs(config), find_address(config, Settings()) or ""))

    assert f"\n{lines}\n" in GUIDE, lines


def test_the_guide_has_the_cost_of_whole_weights_on_a_shared_directory(load):
    config = load("sixty_four")
    found = plan(config)
    gigabytes = read_shape(config.model).num_parameters * 2 / 1e9

    sentence = (
        f"A version is {gigabytes:.1f} GB, {config.keep.num_versions} of them are kept"
        f" ({gigabytes * config.keep.num_versions:.0f} GB), and {found.num_engines} engines read each:"
        f" {gigabytes * found.num_engines:.0f} GB"
    )
    assert sentence in GUIDE, sentence


@pytest.mark.parametrize("name", NAMES)
def test_the_guide_has_every_example_with_its_command(name):
    assert f"examples/cluster/gpus/{name}.yaml" in GUIDE
    assert f"train {name}.yaml" in GUIDE
