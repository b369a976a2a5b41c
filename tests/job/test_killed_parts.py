"""Trainer, vLLM and worker are killed in one run, each at another moment, and started again by the same command.

Nothing here restarts by itself: a trainer or worker that was killed is gone, and ``up`` ends when its vLLM has ended.
The test does what a supervisor such as systemd does: it starts what has ended again.
"""

import os
import secrets
import signal
import subprocess
import sys
from itertools import pairwise

import pytest

from agent_layer.health import progress_path, read_progress
from agent_layer.infra.processes.addresses import free_port
from agent_layer.store import list_batches, open_store
from trainer_adapter.config import (
    AlgorithmConfig,
    OptimizerConfig,
    RetentionConfig,
    RolloutConfig,
    Schedule,
    SourceConfig,
    TrainConfig,
    write_config,
)
from trainer_adapter.data import rebuild_batch
from trainer_adapter.data.samples import samples_of
from trainer_adapter.demo.job import write_tasks
from trainer_adapter.loop.checkpoint import CheckpointDirectory

from ..processes import list_family, read_command
from ..waiting import scaled, wait_for_exit
from .conftest import RUN, acknowledged

pytestmark = [pytest.mark.timeout(3600), pytest.mark.long]

STEPS, NUM_TASKS, GROUP_SIZE, MAX_STALENESS = 6, 6, 4, 1
_SERVER = "vllm.entrypoints.openai.api_server"
_STEP_SECONDS = 1200.0
"""Most seconds of a wait; vLLM needs minutes to start on a machine that is crowded."""


class Parts:
    """The commands of a user, each in a terminal of its own."""

    def __init__(self, settings, commands, directory):
        self.settings = settings
        self._commands = commands
        self._directory = directory
        self._running = {}
        self.exits = []
        """(name, status) of each command that ended, in order."""

    def start(self, name):
        """Run a command, as often as it is typed."""
        program = [sys.executable, "-m", "agent_layer.cli", *self._commands[name]]
        variables = os.environ | self.settings.environment() | {"PYTHONWARNINGS": "ignore"}
        with (self._directory / f"{name}.out").open("ab") as output:
            self._running[name] = subprocess.Popen(program, env=variables, stdout=output, stderr=output)

    def kill(self, name):
        self._running[name].kill()

    def kill_engine(self):
        """Kill the vLLM server that ``up`` started."""
        below = ((pid, read_command(pid)) for pid in list_family(self._running["up"].pid))
        (pid,) = (pid for pid, words in below if _SERVER in words and not any("supervised" in one for one in words))
        os.kill(pid, signal.SIGKILL)

    def restart_ended(self):
        """Type the commands that ended without success again."""
        for name, process in list(self._running.items()):
            if process.poll() is not None and (name, process.returncode) != ("train", 0):
                self.exits.append((name, process.returncode))
                self.start(name)

    def is_done(self):
        return self._running["train"].poll() == 0

    def output(self, name):
        return (self._directory / f"{name}.out").read_text()

    def stop(self):
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            wait_for_exit(process)


@pytest.fixture
def config(model, tmp_path):
    """A run in which every group is trained, whatever its rewards: the entropy bonus acts on all."""
    write_tasks(tmp_path / "tasks.jsonl")
    return TrainConfig(
        model=model,
        tasks=[SourceConfig(path=tmp_path / "tasks.jsonl")],
        steps=STEPS,
        run=RUN,
        rollouts=RolloutConfig(group_size=GROUP_SIZE, max_staleness=MAX_STALENESS),
        algorithm=AlgorithmConfig(entropy=Schedule(start=0.01)),
        optimizer=OptimizerConfig(learning_rate=Schedule(start=1e-4)),
        keep=RetentionConfig(checkpoint_steps=2),
    )


@pytest.fixture
def parts(settings, config, tmp_path):
    port = free_port()
    settings = settings.model_copy(
        update={
            "run": RUN,
            "api_key": f"ok-{secrets.token_urlsafe(12)}",
            "gateway_url": f"http://127.0.0.1:{port}",
            "engine_seconds": scaled(_STEP_SECONDS),
        }
    )
    write_config(config, tmp_path / "run.json")
    commands = {
        "up": ["up", "--model", str(config.model), "--port", str(port)],
        "work": ["work", "guess_number", "--slots", "8"],
        "train": ["train", str(tmp_path / "run.json")],
    }
    parts = Parts(settings, commands, tmp_path)
    yield parts
    parts.stop()


def test_a_run_whose_trainer_engine_and_worker_are_killed_trains_each_trajectory_once(parts, wait_until):
    settings, store = parts.settings, open_store(parts.settings)

    def has_done(step):
        parts.restart_ended()
        return parts.is_done() or max((one.step for one in read_progress(path)), default=0) >= step

    path = progress_path(settings, RUN)
    for name in ("up", "train", "work"):
        parts.start(name)
    for step, kill in [(1, lambda: parts.kill("train")), (3, parts.kill_engine), (4, lambda: parts.kill("work"))]:
        wait_until(lambda step=step: has_done(step), _STEP_SECONDS, log=lambda: parts.output("train"))
        assert not parts.is_done()
        kill()
    wait_until(lambda: has_done(STEPS) and parts.is_done(), _STEP_SECONDS, log=lambda: parts.output("train"))

    assert {("train", -signal.SIGKILL), ("work", -signal.SIGKILL), ("up", 1)} <= set(parts.exits), parts.exits
    batches, steps = list_batches(store.redis, store.keys, RUN), read_progress(path)
    cursor = CheckpointDirectory(settings, RUN).newest()[1]
    assert (cursor.step, cursor.policy_version) == (STEPS, steps[-1].policy_version)
    check_batches(store, batches)
    check_steps(steps)
    parts.stop()
    assert store.admin.check().findings == []


def check_batches(store, batches):
    """As many trajectories as without kills, none twice, each rebuilt to the byte, none too old."""
    trained = [rollout for batch in batches for rollout in batch.rollouts]
    assert [batch.step for batch in batches] == list(range(1, STEPS + 1))
    assert [len(batch.rollouts) for batch in batches] == [NUM_TASKS * GROUP_SIZE] * STEPS
    assert len({one.trajectory_id for one in trained}) == len(trained)
    assert len({one.trajectory_id.rpartition("-")[0] for one in trained}) == len(trained), "no rollout in two attempts"
    assert {one.group_id for one in trained} <= acknowledged(store.redis, store.keys)
    assert [batch.policy_version for batch in batches] == sorted({batch.policy_version for batch in batches})
    for batch in batches:
        assert rebuild_batch(batch, store.get).differences == []
        ages = {batch.policy_version - version for one in batch.rollouts for version in list_versions(store, one)}
        assert ages <= set(range(MAX_STALENESS + 1)), batch.step


def check_steps(steps):
    """Each step made a version of its own, and those on-policy are so exactly."""
    assert [one.step for one in steps] == list(range(1, STEPS + 1))
    assert all(earlier.policy_version < later.policy_version for earlier, later in pairwise(steps))
    on_policy = [one.metrics["ratio_gap"] for one in steps if one.staleness_max == 0]
    assert on_policy
    assert max(on_policy) < 1e-4


def list_versions(store, rollout):
    """Versions that sampled the trained tokens of a rollout."""
    samples = samples_of(store.get(rollout.trajectory_id)).samples
    return {version for sample in samples for version in sample.versions if version >= 0}
