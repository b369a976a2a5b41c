"""The guessing game on a Ray cluster that was there before: two machines, each a raylet of this one."""

import tempfile
from collections.abc import Generator
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import pytest

from agent_layer.engines import open_engine_registry
from agent_layer.errors import BadInputError
from agent_layer.health.progress import progress_path, read_progress
from agent_layer.infra import open_redis
from agent_layer.infra.processes.marked import list_marked
from agent_layer.settings import Settings
from trainer_adapter.cluster import JoinedCluster
from trainer_adapter.cluster.overrides import MARK
from trainer_adapter.config import ClusterConfig
from trainer_adapter.demo.job import RECIPE
from trainer_adapter.start import Job, run_job

from ..waiting import scaled
from .ray_machines import TOKEN, RayMachines, ray_machines
from .ray_runs import (
    FORKING,
    RUN,
    ages_of_trained_tokens,
    configure,
    configure_stale,
    logprob_gaps,
    trained_trajectories,
    update_of_embedded_driver,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(1800),
    pytest.mark.long,
]

STEPS = 3
RANK = "ray::WorkerDict"
MODES = {
    "sync": ClusterConfig(mode="sync"),
    "colocate_async": ClusterConfig(mode="colocate_async"),
    "separate_async": ClusterConfig(mode="separate_async", engine_gpus=2),
}


@pytest.fixture(scope="module")
def machines() -> Generator[RayMachines]:
    """Two machines, each with a GPU for a rank and one for a separate engine; all runs join them, one after another."""
    with (
        tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as home,
        ray_machines(Path(home), 2, num_gpus=2, num_cpus=12) as found,
    ):
        yield found


class Run(NamedTuple):
    """Three steps of the game, with a rank and an engine on each machine."""

    settings: Settings
    cluster: ClusterConfig
    ranks: set[str]
    """Machines on which a rank was seen."""
    engines: set[str]
    """Hosts of the engines, as they were seen."""

    @property
    def max_staleness(self) -> int:
        """Updates that a trained token may be old."""
        return int(self.cluster.mode != "sync")


@pytest.fixture(scope="module", params=MODES.values(), ids=MODES.keys())
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, machines: RayMachines) -> Run:
    """The run in this mode."""
    home = tmp_path_factory.mktemp("cluster")
    cluster = msgspec.structs.replace(request.param, nodes=2, address=machines.address, wait_seconds=scaled(60))
    run = Run(Settings(dir=home / "data", run=RUN, api_key="a-key-of-the-operator"), cluster, set(), set())

    def look() -> None:
        with open_redis(run.settings) as redis:
            engines = open_engine_registry(run.settings, redis).engines()
        run.engines.update(urlsplit(engine.url).hostname or "" for engine in engines)
        run.ranks.update(one.host for one in machines.machines if one.host not in run.ranks and one.runs(RANK))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        for name, value in TOKEN.items():
            patch.setenv(name, value)
        config = configure_stale(home, STEPS, run.max_staleness, cluster)
        with run_job(run.settings, Job(config=config, target=FORKING, slots=8, on_ray=True)) as running:
            running.wait(look)
    return run


def test_a_cluster_without_room_is_refused_with_what_it_lacks(
    tmp_path: Path, machines: RayMachines, monkeypatch: pytest.MonkeyPatch
):
    for name, value in TOKEN.items():
        monkeypatch.setenv(name, value)
    config = configure(tmp_path, STEPS, cluster=ClusterConfig(nodes=5, wait_seconds=0))
    settings = Settings(dir=tmp_path / "data", run=RUN)
    joined = JoinedCluster(machines.address, config, settings, tmp_path / "run", lambda _: None)

    with pytest.raises(BadInputError, match="expected 5 places of 1 GPU and 3 CPUs on one machine each, found 4 free"):
        joined.prepare(lambda: False)


def test_each_machine_has_a_rank_and_an_engine_that_gateways_reach_at_its_address(run: Run, machines: RayMachines):
    hosts = {machine.host for machine in machines.machines}

    assert (run.ranks, run.engines) == (hosts, hosts)


def test_a_step_over_two_machines_is_that_of_one_process(run: Run):
    steps = read_progress(progress_path(run.settings, RUN))
    found = update_of_embedded_driver(run.settings)

    assert [(step.step, step.policy_version) for step in steps] == [(1, 1), (2, 2), (3, 3)]
    metrics = steps[0].metrics
    names = ("grad_norm", "loss", "actor/pg_loss", "kl_loss")
    assert metrics["kl_loss"] > 0
    assert {name: metrics[name] for name in names} == pytest.approx(
        {name: found.metrics[name] for name in names}, rel=1e-5
    )


def test_whole_groups_are_trained_and_no_rollout_twice(run: Run):
    steps, trained = read_progress(progress_path(run.settings, RUN)), trained_trajectories(run.settings)

    assert [step.num_rollouts for step in steps] == [6 * RECIPE.group_size] * STEPS
    assert len(trained) == STEPS * 6 * RECIPE.group_size
    assert len(trained) == len(set(trained))


def test_each_trained_token_names_the_version_whose_weights_sampled_it(run: Run, tmp_path: Path):
    ages, gaps = ages_of_trained_tokens(run.settings), logprob_gaps(run.settings, tmp_path)
    steps = read_progress(progress_path(run.settings, RUN))

    assert set(ages[0]) == {0}
    assert [(step.staleness_mean, step.staleness_max) for step in steps] == [
        (pytest.approx(sum(one) / len(one)), max(one)) for one in ages
    ]
    assert all(0 <= age <= run.max_staleness for age in chain.from_iterable(ages))
    assert len(gaps) > 0
    assert max(gaps) < 1e-4


def test_keys_of_the_run_are_in_no_file_of_ray(run: Run, machines: RayMachines):
    files = [path for path in machines.home.rglob("*") if path.is_file()]

    assert len(files) > 10
    assert [path for path in files if str(run.settings.api_key).encode() in path.read_bytes()] == []


def test_the_cluster_is_left_running_without_anything_of_the_run(run: Run, machines: RayMachines):
    assert all(machine.is_running() for machine in machines.machines)
    assert list_marked(MARK, str(run.settings.dir.absolute() / "runs" / RUN / "ray")) == []
