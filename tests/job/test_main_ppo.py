"""A user's own ``python -m verl.trainer.main_ppo`` with our data set, manager and sampler: what it trains is stored."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

import msgspec
import pytest

from agent_layer.infra.processes.addresses import free_port
from agent_layer.infra.processes.marked import kill_marked
from agent_layer.store import list_batches, open_store
from trainer_adapter.data import rebuild_batch, samples_of
from trainer_adapter.demo.job import write_tasks
from trainer_adapter.start.ray import _write_vllm_metadata
from trainer_adapter.tasks.held_out import read_left_out

from ..waiting import run, wait_for_exit, wait_until

ROOT = Path(__file__).parents[2]
RUN, MARK = "verl", "MAIN_PPO_TEST"
VARIABLES = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "trainer_adapter.cluster.plugin",
    "VERL_LOGGING_LEVEL": "WARNING",
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONWARNINGS": "ignore",
    "RAY_USAGE_STATS_ENABLED": "0",
    "SPT_NOENV": "1",  # titles of processes would overwrite the mark
}
"""What veRL needs without a GPU."""


@pytest.fixture
def services(settings, tmp_path):
    """Gateway and worker of a run, as commands; yields the variables that the user exports."""
    port, started = free_port(), []
    own = {"run": RUN, "api_key": "ok-only-for-this-test", "gateway_url": f"http://127.0.0.1:{port}"}
    variables = os.environ | settings.model_copy(update=own).environment()
    for words in (["serve", "--port", str(port), "--engines-later"], ["work", "guess_number", "--slots", "8"]):
        with (tmp_path / f"{words[0]}.out").open("wb") as out:
            command = [sys.executable, "-m", "agent_layer.cli", *words]
            started.append(subprocess.Popen(command, env=variables, stdout=out, stderr=out))
    yield variables
    for process in started:
        process.terminate()
    for process in started:
        wait_for_exit(process)


def run_main_ppo(services, tmp_path):
    """Run the user's command to its end; return what it prints."""
    write_tasks(tmp_path / "tasks.jsonl")
    _write_vllm_metadata(tmp_path / "site")
    ray = mkdtemp(prefix="ray-")  # a socket's path below it may have 107 characters
    command = [sys.executable, "-m", "verl.trainer.main_ppo", "--config-name", "verl_cpu"]
    command += ["--config-dir", ROOT / "examples" / "other_trainers", f"+ray_kwargs.ray_init._temp_dir={ray}"]
    command += [f"actor_rollout_ref.model.path={tmp_path}/model", f"data.train_files={tmp_path}/tasks.jsonl"]
    (tmp_path / "held.jsonl").write_text('{"id": "h", "input": {"hidden": 1}}\n')
    command += [f"data.held_out={tmp_path}/held.jsonl"]
    command += ["trainer.v1.sampler.custom_sampler.path=pkg://seeing_sampler"]
    command += ["trainer.v1.sampler.custom_sampler.name=SeeingSampler"]
    variables = (
        services
        | VARIABLES
        | {"SEEN_ROWS": str(tmp_path / "seen.jsonl")}
        | {MARK: str(tmp_path), "PYTHONPATH": f"{tmp_path}/site:{ROOT}:{Path(__file__).parent}"}
    )
    try:
        done = run(command, 900, env=variables, cwd=tmp_path)
    finally:
        kill_marked(MARK, str(tmp_path))  # vLLM's engines outlive Ray
        shutil.rmtree(ray, ignore_errors=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_it_trains_whole_groups_of_the_store(settings, services, tmp_path):
    from trainer_adapter.demo.model import write_model  # noqa: PLC0415  # torch takes seconds

    write_model(tmp_path / "model", seed=0)
    output, seen = run_main_ppo(services, tmp_path), tmp_path / "seen.jsonl"

    found = re.findall(r"training/rollout_probs_diff_max:(\S+)", output)
    assert len(found) == 2
    assert max(map(float, found)) < 1e-4  # the model that trains is the one that sampled
    store = open_store(settings)
    wait_until(lambda: len(list_batches(store.redis, store.keys, RUN)) == 2)  # they are shipped beside
    batches = list_batches(store.redis, store.keys, RUN)
    assert [(one.step, one.policy_version) for one in batches] == [(1, 0), (2, 1)]
    assert {one.task_id for one in read_left_out(settings, RUN)} == {"guess-1"}
    assert not list(store.scan(run=RUN, task="guess-1"))
    for batch, line in zip(batches, seen.read_text().splitlines(), strict=True):
        assert rebuild_batch(batch, store.get).differences == []
        groups = [rollout.group_id for rollout in batch.rollouts]
        assert {groups.count(group_id) for group_id in groups} == {4}
        samples = [one for rollout in batch.rollouts for one in samples_of(store.get(rollout.trajectory_id)).samples]
        assert {version for one in samples for version in one.versions if version >= 0} == {batch.policy_version}
        rows = msgspec.json.decode(line, type=SeenRows)
        assert rows == read_stored_rows(batch.step, samples)
        rows.responses[0][0] += 1  # and one changed id is seen
        assert rows != read_stored_rows(batch.step, samples)


class SeenRows(msgspec.Struct):
    """Columns of the rows of a step, as veRL's workers read them."""

    step: int
    prompts: list[list[int]]
    responses: list[list[int]]
    response_mask: list[list[int]]
    rollout_log_probs: list[list[float]]


def read_stored_rows(step, samples):
    return SeenRows(
        step,
        [list(one.prompt_ids) for one in samples],
        [list(one.response_ids) for one in samples],
        [list(one.loss_mask) for one in samples],
        [list(one.logprobs) for one in samples],
    )
