"""The guessing game on a Ray cluster that was there before: two machines, each a raylet of this one."""

import tempfile
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agent_layer.engines import open_engine_registry
from agent_layer.errors import BadInputError
from agent_layer.health.progress import progress_path, read_progress
from agent_layer.infra.processes import list_marked
from agent_layer.infra.redis import open_redis
from agent_layer.settings import Settings
from trainer_adapter.cluster.nodes import JoinedCluster
from trainer_adapter.cluster.overrides import MARK
from trainer_adapter.config import ClusterConfig
from trainer_adapter.demo.job import RECIPE
from trainer_adapter.launch import Job, run_job

from .ray_machines import TOKEN, RayMachines, ray_machines
from .ray_runs import FORKING, RUN, configure, trained_batches, update_of_embedded_driver

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(1800),
    pytest.mark.long,
]

STEPS = 2


@pytest.fixture(scope="module")
def machines() -> Generator[RayMachines]:
    """Two machines with a GPU each."""
    with (
        tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as home,
        ray_machines(Path(home), 2) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def hosts() -> dict[str, set[str]]:
    """Hosts of the engines, as they were seen."""
    return {"engines": set()}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, machines: RayMachines, hosts: dict[str, set[str]]) -> Settings:
    """Where two steps of the game were trained, by a rank on each machine."""
    home = tmp_path_factory.mktemp("cluster")
    settings = Settings(dir=home / "data", run=RUN, api_key="a-key-of-the-operator")
    cluster = ClusterConfig(nodes=2, address=machines.address, wait_seconds=60)

    def look() -> None:
        with open_redis(settings) as redis:
            engines = open_engine_registry(settings, redis).engines()
        hosts["engines"] |= {urlsplit(engine.url).hostname or "" for engine in engines}

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        for name, value in TOKEN.items():
            patch.setenv(name, value)
        job = Job(config=configure(home, STEPS, cluster=cluster), target=FORKING, slots=8, on_ray=True)
        with run_job(settings, job) as running:
            running.wait(look)
    return settings


def test_a_cluster_without_room_is_refused_with_what_it_lacks(
    tmp_path: Path, machines: RayMachines, monkeypatch: pytest.MonkeyPatch
):
    for name, value in TOKEN.items():
        monkeypatch.setenv(name, value)
    config = configure(tmp_path, STEPS, cluster=ClusterConfig(nodes=3, wait_seconds=0))
    settings = Settings(dir=tmp_path / "data", run=RUN)
    joined = JoinedCluster(machines.address, config, settings, tmp_path / "run", lambda _: None)

    with pytest.raises(BadInputError, match="expected 3 places of 1 GPU and 3 CPUs on one machine each, found 2 free"):
        joined.prepare(lambda: False)


def test_a_step_over_two_machines_is_that_of_one_process(settings: Settings):
    steps = read_progress(progress_path(settings, RUN))
    found = update_of_embedded_driver(settings, trained_batches(settings)[0][1])

    assert [(step.step, step.policy_version) for step in steps] == [(1, 1), (2, 2)]
    assert all(step.num_rollouts == 6 * RECIPE.group_size for step in steps)
    names = ("grad_norm", "loss", "actor/pg_loss")
    metrics = steps[0].metrics
    assert {name: metrics[name] for name in names} == pytest.approx(
        {name: found.metrics[name] for name in names}, rel=1e-5
    )


@pytest.mark.usefixtures("settings")
def test_each_machine_has_an_engine_that_gateways_reach_at_its_address(
    machines: RayMachines, hosts: dict[str, set[str]]
):
    assert hosts["engines"] == {machine.host for machine in machines.machines}


def test_keys_of_the_run_are_in_no_file_of_ray(settings: Settings, machines: RayMachines):
    files = [path for path in machines.home.rglob("*") if path.is_file()]

    assert len(files) > 10
    assert [path for path in files if str(settings.api_key).encode() in path.read_bytes()] == []


def test_the_cluster_is_left_running_without_anything_of_the_run(settings: Settings, machines: RayMachines):
    assert all(machine.is_running() for machine in machines.machines)
    assert list_marked(MARK, str(settings.dir.absolute() / "runs" / RUN / "ray")) == []
