"""The guessing game on Ray: stock veRL with its own vLLM server on this CPU, behind our gateway."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from agent_layer.engines import open_engine_registry
from agent_layer.health.progress import progress_path, read_progress
from agent_layer.infra.redis import open_redis
from agent_layer.settings import Settings
from agent_layer.store import open_store
from trainer_adapter.config import ClusterConfig
from trainer_adapter.demo.job import RECIPE

from .ray_runs import (
    RUN,
    SeenServer,
    configure,
    look_at_server,
    train_on_ray,
    trained_batches,
    update_of_embedded_driver,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(1200),
]

STEPS = 2


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.long)], ids="{} ranks".format)
def num_ranks(request: pytest.FixtureRequest) -> int:
    """Processes of the trained model; each has a vLLM server of its own, which takes 3 GB."""
    return request.param


@pytest.fixture(scope="module")
def servers(num_ranks: int) -> dict[str, SeenServer]:
    """What was seen of each server while it served, by its address in the registry."""
    del num_ranks  # each number has its own
    return {}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, num_ranks: int, servers: dict[str, SeenServer]) -> Settings:
    """Where two steps of the game were trained."""
    home = tmp_path_factory.mktemp("ray")

    def look(settings: Settings) -> None:
        with open_redis(settings) as redis:
            access_keys = open_engine_registry(settings, redis).access_keys()
        for url, access_key in access_keys.items():
            if url not in servers:
                servers[url] = look_at_server(url, access_key, settings)

    return train_on_ray(home, configure(home, STEPS, cluster=ClusterConfig(gpus_per_node=num_ranks)), look)


def test_each_step_on_ray_trains_whole_groups_of_the_store_and_makes_a_version(settings: Settings):
    steps = read_progress(progress_path(settings, RUN))

    assert [(step.step, step.policy_version) for step in steps] == [(1, 1), (2, 2)]
    assert all(step.num_rollouts == 6 * RECIPE.group_size for step in steps)
    assert [step.staleness_max for step in steps] == [0, 0]
    assert all(step.metrics["grad_norm"] > 0 for step in steps)
    trained = [row.trajectory_id for row in open_store(settings).query(run=RUN, limit=1000).items]
    assert len(trained) >= sum(step.num_rollouts for step in steps)


def test_each_token_was_sampled_by_the_weights_of_its_version(settings: Settings):
    steps = read_progress(progress_path(settings, RUN))

    assert all(step.metrics["logprob_gap"] < 1e-4 for step in steps), [step.metrics["logprob_gap"] for step in steps]
    assert all(step.metrics["ratio_gap"] < 1e-4 for step in steps)


def test_the_first_step_on_ray_is_that_of_the_embedded_driver_forks_included(settings: Settings):
    _, batch = trained_batches(settings)[0]

    found = update_of_embedded_driver(settings)

    metrics = read_progress(progress_path(settings, RUN))[0].metrics
    names = ("grad_norm", "loss", "actor/pg_loss", "actor/ppo_kl", "actor/entropy_loss")
    assert len(batch.samples) > len(batch.rewards)
    assert {name: metrics[name] for name in names} == pytest.approx(
        {name: found.metrics[name] for name in names}, rel=1e-5
    )
    assert metrics["entropy"] == pytest.approx(found.entropy)


def test_what_was_trained_on_ray_is_rebuilt_byte_for_byte(settings: Settings):
    program = [sys.executable, "-m", "agent_layer.cli", "--dir", str(settings.dir), "replay", "--run", RUN]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("identical") == STEPS
    assert done.stdout.count(" weights ") == STEPS - 1, "the first weights have no hash, those that it sent have one"


def test_its_checkpoint_has_the_cursor_and_what_it_learned_from(settings: Settings, num_ranks: int):
    (directory,) = (settings.dir / "checkpoints" / RUN).glob("step-*")
    cursor = msgspec.json.decode((Path(directory) / "cursor.json").read_bytes())

    assert (cursor["step"], cursor["policy_version"]) == (STEPS, STEPS)
    assert len(cursor["taken"]) == 6 * STEPS
    assert len(list(Path(directory).glob("model*rank_*.pt"))) == num_ranks


@pytest.mark.usefixtures("settings")
def test_verls_servers_are_reached_by_this_machine_alone(num_ranks: int, servers: dict[str, SeenServer]):
    assert len(servers) == num_ranks
    assert {urlsplit(url).hostname for url in servers} == {"127.0.0.1"}
    assert all(one.addresses == {"127.0.0.1"} for one in servers.values())


@pytest.mark.usefixtures("settings")
def test_verls_servers_refuse_every_route_without_their_own_key(num_ranks: int, servers: dict[str, SeenServer]):
    for one in servers.values():
        assert {("GET", "/health"), ("GET", "/metrics"), ("POST", "/v1/chat/completions")} <= one.routes
        assert one.answered == set()
        assert one.status_with_key == 200
    assert len({one.access_key for one in servers.values()}) == num_ranks


@pytest.mark.usefixtures("settings")
def test_the_key_of_a_server_is_in_no_argument_variable_or_file_but_that_of_redis(servers: dict[str, SeenServer]):
    assert [one.exposed for one in servers.values()] == [set()] * len(servers)
