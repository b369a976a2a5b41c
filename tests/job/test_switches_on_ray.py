"""veRL's own vLLM is given new weights again and again while others call it through the gateway.

Each token of each answer is what a frozen copy of the version gives that the answer claims for it.
"""
# ruff: noqa: PLC0415  # torch takes seconds: imported inside tests, collection stays fast

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from urllib.request import Request, urlopen

import msgspec
import pytest

from agent_layer.health.progress import progress_path, read_progress
from agent_layer.schema.trajectory import Trajectory
from agent_layer.settings import Settings
from agent_layer.store import open_store
from trainer_adapter.config import ClusterConfig, RetentionConfig, RolloutConfig
from trainer_adapter.demo.job import RECIPE, make_config, write_tasks
from trainer_adapter.loop.checkpoint import CheckpointDirectory
from trainer_adapter.start import Job, run_job

from ..waiting import join, scaled
from .ray_runs import RUN

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(3000),
    pytest.mark.long,
]

CASES = [("sync", "wait", 25), ("separate_async", "abort", 50)]
"""Mode of veRL, what a switch does to calls in flight, and switches while others call."""
NUM_CALLERS = 4
NUM_TOKENS = 24


class Caller(threading.Thread):
    """Asks one question after another, each in a rollout of its own; every other answer is greedy."""

    def __init__(self, settings: Settings, number: int, is_over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.settings, self.number, self.is_over = settings, number, is_over
        self.greedy: list[str] = []
        self.sampled: list[str] = []

    def run(self) -> None:
        key, turn = self.settings.api_key, 0
        while not self.is_over.is_set():
            opened = self.post(f"{self.settings.gateway_url}/rollouts", key, {"task_id": "hammer", "run": RUN})
            words = ["guess", str(1 + (self.number + turn) % 9), ("higher", "lower", "open")[turn % 3]]
            fields = {"model": "m", "messages": [{"role": "user", "content": " ".join(words)}], "stream": turn % 3 == 0}
            fields |= {"max_tokens": NUM_TOKENS, "ignore_eos": True, "temperature": turn % 2}
            self.post(f"{opened['base_url']}/chat/completions", opened["api_key"], fields)
            self.post(f"{self.settings.gateway_url}/rollouts/{opened['rollout_id']}/end", key, {"reward": 0.0})
            (self.sampled if turn % 2 else self.greedy).append(opened["trajectory_id"])
            turn += 1

    def post(self, url: str, key: str | None, body: dict[str, object]) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=scaled(300)) as reply:
            content_read = reply.read()
        return json.loads(content_read) if content_read.startswith(b"{") else {}


@pytest.mark.parametrize(("mode", "switch", "num_switches"), CASES)
def test_each_token_is_that_of_a_frozen_copy_of_its_version(
    tmp_path: Path,
    mode: Literal["sync", "separate_async"],
    switch: Literal["wait", "abort"],
    num_switches: int,
    record_property: Callable[[str, object], None],
):
    settings = Settings(dir=tmp_path / "data", run=RUN, switch_mode=switch, api_key="operator-key")
    subprocess.run([sys.executable, "-m", "trainer_adapter.demo.model", tmp_path / "model", "0"], check=True)
    write_tasks(tmp_path / "tasks.jsonl")
    config = make_config(tmp_path, RUN, 0, num_switches + 1)
    config = msgspec.structs.replace(
        config,
        cluster=ClusterConfig(mode=mode, max_model_len=64),
        keep=RetentionConfig(checkpoint_steps=1, num_checkpoints=2 * num_switches),
        rollouts=RolloutConfig(group_size=2, max_staleness=int(mode == "separate_async")),
        optimizer=msgspec.structs.replace(config.optimizer, minibatches=1, epochs=1),
    )
    job = Job(config=config, target=RECIPE.target, slots=4, on_ray=True)
    callers = train_beside_callers(settings, job, num_switches)

    store, frozen = open_store(settings), FrozenVersions(settings, tmp_path)
    seen = Counter[int]()
    num_neighbours = 0
    for is_greedy, caller in [(True, one) for one in callers] + [(False, one) for one in callers]:
        for trajectory_id in caller.greedy if is_greedy else caller.sampled:
            versions, gaps, neighbour_gaps = frozen.compare(store.get(trajectory_id), is_greedy=is_greedy)
            assert max(gaps) < 1e-3, (trajectory_id, versions, gaps)
            num_neighbours += max(neighbour_gaps) > 1e-2
            seen.update(set(versions))
    num_answers = sum(len(one.greedy) + len(one.sampled) for one in callers)
    record_property("answers", num_answers)
    record_property("versions", len(seen))
    record_property("told apart", num_neighbours)
    assert len(seen) > num_switches / 2, seen
    assert num_neighbours > num_answers / 3, "a wrong version would not have been noticed"


def train_beside_callers(settings: Settings, job: Job, num_switches: int) -> list[Caller]:
    """Run a job; return what asked the policy until so often new weights had come."""
    callers: list[Caller] = []
    is_over = threading.Event()
    with run_job(settings, job) as running:

        def look() -> None:
            if not callers and has_engine(running.settings):
                callers.extend(Caller(running.settings, number, is_over) for number in range(NUM_CALLERS))
                for caller in callers:
                    caller.start()
            if len(read_progress(progress_path(settings, RUN))) >= num_switches:
                is_over.set()  # no call is in flight when the engines end with the trainer
            assert is_over.is_set() or all(caller.is_alive() for caller in callers)

        running.wait(look)
    for caller in callers:
        join(caller)
    return callers


def has_engine(settings: Settings) -> bool:
    with urlopen(f"{settings.gateway_url}/health", timeout=scaled(60)) as reply:
        return any(state.startswith("serving") for state in json.loads(reply.read())["engines"].values())


class FrozenVersions:
    """The model of each version, from its checkpoint."""

    def __init__(self, settings: Settings, home: Path) -> None:
        from transformers import AutoModelForCausalLM

        from trainer_adapter.verl import export_checkpoint

        directories = {0: home / "model"}
        for directory, cursor in CheckpointDirectory(settings, RUN).all():
            assert cursor.policy_version is not None
            directories[cursor.policy_version] = home / "frozen" / str(cursor.policy_version)
            export_checkpoint(directory, directories[cursor.policy_version])
        self.models = {
            number: AutoModelForCausalLM.from_pretrained(directory).float().eval()
            for number, directory in directories.items()
        }

    def compare(self, trajectory: Trajectory, *, is_greedy: bool) -> tuple[list[int], list[float], list[float]]:
        """Return the version of each token, and how far it is from that version and from the next one.

        Sampled tokens: difference of log-probabilities. Greedy tokens: how much likelier another token was.
        """
        (step,) = trajectory.steps
        action = step.action
        assert action.policy_versions is not None
        assert action.response_token_ids is not None
        assert action.logprobs is not None
        assert step.prompt_token_ids is not None
        versions = [version for version, number in action.policy_versions for _ in range(number)]
        ids, logprobs = list(action.response_token_ids), list(action.logprobs)
        assert len(ids) == len(versions) == NUM_TOKENS
        found = {
            number: self.gaps(number, list(step.prompt_token_ids), ids, None if is_greedy else logprobs)
            for number in {*versions, *(version + 1 for version in versions)}
            if number in self.models
        }
        own = [found[version][index] for index, version in enumerate(versions)]
        following = [found.get(version + 1, found[version])[index] for index, version in enumerate(versions)]
        return versions, own, following

    def gaps(self, number: int, prompt: list[int], ids: list[int], logprobs: list[float] | None) -> list[float]:
        import torch

        with torch.no_grad():
            logits = self.models[number](torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        computed = logits.log_softmax(-1)
        chosen = computed[range(len(ids)), ids]
        wanted = computed.max(-1).values if logprobs is None else torch.tensor(logprobs)
        return (wanted - chosen).abs().tolist()
