"""The guessing game on a Ray cluster whose two machines have a network between them, with delay and lost packets."""

import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from agent_layer.errors import BadInputError
from agent_layer.infra import free_port
from agent_layer.settings import Settings
from trainer_adapter.cluster import JoinedCluster
from trainer_adapter.config import ClusterConfig, RetentionConfig, TrainConfig
from trainer_adapter.demo.job import RECIPE, make_config, write_tasks
from trainer_adapter.start import Job, run_job

from ..waiting import scaled
from .ray_machines import TOKEN, RayMachine
from .ray_runs import RUN, check_trained, list_restarts
from .slow_network import ADDRESSES, find_missing, inside, slow_network

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(3600),
    pytest.mark.long,
    pytest.mark.skipif(find_missing() is not None, reason=str(find_missing())),
]

DELAY_SECONDS, LOSS = 0.005, 0.005
STEPS = 2


@contextmanager
def far_machines(prefix: Sequence[str] = ()) -> Generator[str]:
    """Have two machines, with this one in the place of the head; yields the cluster's address."""
    with ExitStack() as cleanup:
        home = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True)))
        here, there = cleanup.enter_context(slow_network(home, DELAY_SECONDS, LOSS))
        cleanup.enter_context(inside(here))
        port = free_port()
        cleanup.callback(RayMachine(home, ADDRESSES[0], port, None).stop)
        address = f"{ADDRESSES[0]}:{port}"
        with inside(there):
            cleanup.callback(RayMachine(home, ADDRESSES[1], port, address, prefix=prefix).stop)
        yield address


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """The game, with a rank and an engine on each machine; writes its model and tasks."""
    for name, value in TOKEN.items():
        monkeypatch.setenv(name, value)
    subprocess.run([sys.executable, "-m", "trainer_adapter.demo.model", tmp_path / "model", "0"], check=True)
    write_tasks(tmp_path / "tasks.jsonl")
    cluster = ClusterConfig(nodes=2, max_model_len=64, wait_seconds=scaled(60))
    config = make_config(tmp_path, RUN, 0, STEPS)
    return msgspec.structs.replace(config, cluster=cluster, keep=RetentionConfig(checkpoint_steps=1))


def test_a_run_over_a_slow_network_that_loses_packets_trains_each_step_once(tmp_path: Path, config: TrainConfig):
    settings = Settings(dir=tmp_path / "data", run=RUN)

    with far_machines() as address:
        cluster = msgspec.structs.replace(config.cluster, address=address)
        config = msgspec.structs.replace(config, cluster=cluster)
        with run_job(settings, Job(config=config, target=RECIPE.target, slots=8, on_ray=True)) as job:
            job.wait()
        check_trained(settings, STEPS)

    assert list_restarts(settings) == []


def test_a_machine_that_does_not_share_the_directory_is_named(tmp_path: Path, config: TrainConfig):
    settings, directory = Settings(dir=tmp_path / "data", run=RUN), tmp_path / "data" / "run"
    (tmp_path / "data").mkdir()
    hide = f'mount -t tmpfs none {tmp_path / "data"} && exec "$@"'

    with far_machines(prefix=("unshare", "--mount", "sh", "-c", hide, "sh")) as address:
        joined = JoinedCluster(address, config, settings, directory, lambda _: None)
        with pytest.raises(BadInputError) as caught:
            joined.prepare(lambda: False)

    (fault,) = str(caught.value).splitlines()
    assert fault.startswith(f"machine {ADDRESSES[1]}: expected to read and write {directory}, of the run, found ")
    assert fault.endswith("; let AGENT_LAYER_DIR be on a file system that all machines share, under the same path")
