"""Parts of a run on Ray are killed: it goes on by itself, trains as much as it should, and nothing twice.

Each start of Ray and vLLM takes minutes, so one run loses its parts one after another, a step between two kills.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from agent_layer.dispatcher import HELD, connect
from agent_layer.engines import open_engine_registry
from agent_layer.health.progress import progress_path, read_progress
from agent_layer.infra import Keys, SupervisedProcess, open_redis, start_supervised
from agent_layer.infra.processes.marked import list_marked
from agent_layer.settings import Settings
from agent_layer.store import list_batches, open_store
from trainer_adapter.cluster.overrides import MARK
from trainer_adapter.config import ClusterConfig, RetentionConfig, RolloutConfig, TrainConfig
from trainer_adapter.demo.job import RECIPE, make_config, write_tasks
from trainer_adapter.start import Job, run_job

from ..processes import find_pid
from ..waiting import scaled
from .ray_machines import TOKEN, RayMachines, ray_machines
from .ray_runs import RUN, check_trained, count_steps, list_restarts

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(3600),
    pytest.mark.long,
]

PARTS = {
    "trainer": ("ray::TaskRunnerV1",),
    "engine": ("VLLM::EngineCore",),
    "server": ("ray::ClusterServer",),
    "rank": ("ray::WorkerDict",),
    "rows": ("ray::TransferQueueController",),
    "head": ("gcs_server", "raylet/raylet"),
    "all": ("",),
}
"""What is killed, by parts of their command lines."""
IN_UPDATE, IN_CALL = "engine, in an update", "rows, in a call"
KILLS = (IN_UPDATE, "engine", "server", "trainer", "rank", IN_CALL, "head", "all")


class Kill(NamedTuple):
    """A part that was killed."""

    part: str
    step: int
    """Last step that was reported before."""


@pytest.fixture
def machines() -> Generator[RayMachines]:
    """Two machines with a GPU each, in a directory with a short name."""
    with (
        tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as home,
        ray_machines(Path(home), 2) as found,
    ):
        yield found


def read_command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def is_part(pid: int, part: str) -> bool:
    return any(word in read_command(pid) for word in PARTS[part.partition(",")[0]])


def configure(tmp_path: Path, steps: int, **changes: object) -> TrainConfig:
    """The game, with a checkpoint after each step; writes its model and tasks."""
    subprocess.run([sys.executable, "-m", "trainer_adapter.demo.model", tmp_path / "model", "0"], check=True)
    write_tasks(tmp_path / "tasks.jsonl")
    return msgspec.structs.replace(
        make_config(tmp_path, RUN, 0, steps),
        **{"cluster": ClusterConfig(max_model_len=64), "keep": RetentionConfig(checkpoint_steps=1), **changes},
    )


def train_and_kill(settings: Settings, config: TrainConfig, parts: tuple[str, ...]) -> list[Kill]:
    """Train; kill one part after another, each when a step was made since the kill before."""
    directory = str(settings.dir.absolute() / "runs" / RUN / "ray")
    kills: list[Kill] = []

    def kill_next() -> None:
        step = count_steps(settings)
        if len(kills) == len(parts) or step <= (kills[-1].step if kills else 0):
            return
        part = parts[len(kills)]
        if part == IN_UPDATE and not holds_calls(settings):
            return
        found = [pid for pid in list_marked(MARK, directory) if is_part(pid, part)]
        is_early = part == IN_CALL and count_batches(settings) <= step
        for pid in found:
            os.kill(pid, signal.SIGSTOP if is_early else signal.SIGKILL)  # the next update's call has no answer, ever
        if is_early:
            return
        assert found, (part, {pid: read_command(pid) for pid in list_marked(MARK, directory)})
        kills.append(Kill(part, step))

    with run_job(settings, Job(config=config, target=RECIPE.target, slots=8, on_ray=True)) as job:
        job.wait(kill_next)
    assert list_marked(MARK, directory) == []
    assert [kill.part for kill in kills] == list(parts)
    return kills


def holds_calls(settings: Settings) -> bool:
    """Whether no call is in flight at an engine that waits for new weights."""
    with open_redis(settings) as redis:
        return [engine.state for engine in open_engine_registry(settings, redis).engines()] == ["loading"]


def count_batches(settings: Settings) -> int:
    """Updates that began."""
    with open_redis(settings) as redis:
        return len(list_batches(redis, Keys(settings.namespace), RUN))


@pytest.mark.timeout(7200)  # seven starts of the whole trainer
def test_a_run_goes_on_when_parts_are_killed_one_after_another(tmp_path: Path):
    num_steps = len(KILLS) + 2
    settings = Settings(dir=tmp_path / "data", run=RUN)

    kills = train_and_kill(settings, configure(tmp_path, num_steps), KILLS)

    check_trained(settings, num_steps)
    restarts, steps = list_restarts(settings), read_progress(progress_path(settings, RUN))
    assert len(restarts) == len(kills), restarts
    for kill, restart in zip(kills, restarts, strict=True):
        assert restart.what.startswith("engine http://127.0.0.1") == (kill.part in ("engine", "server")), restart
        assert kill.part == IN_UPDATE or (restart.from_step, restart.number) == (kill.step, 1), restart
        assert [one.name for one in steps[kill.step].health].count("restarts") == 1, restart
    assert restarts[0].what == "run"
    assert "has ended while weights were sent; the whole trainer starts again" in restarts[0].why
    assert "rows' controller" in restarts[KILLS.index(IN_CALL)].why, "the trainer ends itself: its call waits for ever"


def test_the_trainer_starts_again_when_a_separate_engine_or_its_server_is_killed(tmp_path: Path):
    separate = ClusterConfig(mode="separate_async", max_model_len=64)
    rollouts = RolloutConfig(group_size=RECIPE.group_size, max_staleness=1)
    settings, num_steps = Settings(dir=tmp_path / "data", run=RUN), 5

    kills = train_and_kill(
        settings, configure(tmp_path, num_steps, cluster=separate, rollouts=rollouts), ("engine", "server")
    )

    check_trained(settings, num_steps)
    restarts = list_restarts(settings)
    assert len(restarts) == len(kills), restarts
    for kill, restart in zip(kills, restarts, strict=True):
        assert restart.what == "run"
        assert "has ended and is not replaced in this mode; the whole trainer starts again" in restart.why
        assert restart.from_step >= kill.step


def test_a_run_on_a_cluster_waits_for_another_machine_when_one_dies(
    tmp_path: Path, machines: RayMachines, monkeypatch: pytest.MonkeyPatch
):
    for name, value in TOKEN.items():
        monkeypatch.setenv(name, value)
    cluster = ClusterConfig(nodes=2, max_model_len=64, address=machines.address, wait_seconds=scaled(300))
    settings, num_steps = Settings(dir=tmp_path / "data", run=RUN), 4
    config = configure(tmp_path, num_steps, cluster=cluster)
    waited: list[str] = []

    def kill_then_replace() -> None:
        if len(machines.machines) > 2:
            return
        if machines.machines[1].is_running():
            if count_steps(settings) >= 2:
                machines.machines[1].die()
        elif found := re.findall(r"waiting up to \S+ s: (.*)", (settings.dir / "logs/trainer.log").read_text()):
            waited.extend(found)
            machines.add()

    with run_job(settings, Job(config=config, target=RECIPE.target, slots=8, on_ray=True)) as job:
        job.wait(kill_then_replace)

    check_trained(settings, num_steps)
    assert waited[0].startswith("Ray cluster: expected 2 places of 1 GPU and 3 CPUs on one machine each, found 1 free")
    restarts = list_restarts(settings)
    *engines, run = restarts
    assert (run.what, run.from_step) == ("run", 2), restarts
    assert all(one.what.startswith("engine http://127.0.0.3:") for one in engines), "its engine may be missed first"
    assert "127.0.0.3" in restarts[0].why, "Ray's own words, or ours, whichever thread notices first"
    assert machines.machines[0].is_running()


def test_a_run_goes_on_when_a_worker_is_killed_with_rollouts_in_its_hands(tmp_path: Path):
    settings, num_steps = Settings(dir=tmp_path / "data", run=RUN), 3
    config = configure(tmp_path, num_steps)
    lost: list[str] = []

    with run_job(settings, Job(config=config, target=RECIPE.target, slots=2, on_ray=True)) as job:
        work = [sys.executable, "-m", "agent_layer.cli", "work", RECIPE.target, "--slots", "8"]
        worker = start_supervised(work, job.settings.environment() | {"PYTHONWARNINGS": "ignore"}, tmp_path / "worker")
        try:
            job.wait(lambda: lost.extend([] if lost else kill_while_it_holds(worker, settings)))
        finally:
            worker.stop()

    check_trained(settings, num_steps)
    store = open_store(settings)
    trained = {one.trajectory_id for batch in list_batches(store.redis, store.keys, RUN) for one in batch.rollouts}
    assert lost
    assert not {f"{rollout_id}-0" for rollout_id in lost} & trained, "the killed attempts count"
    assert {f"{rollout_id}-1" for rollout_id in lost} <= trained, "the next ones do not"
    assert [one for one in list_restarts(settings) if one.from_step] == [], "the trainer noticed it"


def kill_while_it_holds(worker: SupervisedProcess, settings: Settings) -> list[str]:
    """Kill the worker with kill -9 if it holds rollouts now, after the first step; return their ids.

    It is frozen meanwhile: a rollout takes less than a second.
    """
    if not count_steps(settings) or not (named := re.search(r"worker (\S+) runs", worker.log.read_text())):
        return []
    pid = find_pid(worker)
    os.kill(pid, signal.SIGSTOP)
    with connect(settings) as dispatcher:
        held = [one.rollout_id for one in dispatcher.rollouts() if one.worker == named[1] and one.status in HELD]
    os.kill(pid, signal.SIGKILL if held else signal.SIGCONT)
    return held
