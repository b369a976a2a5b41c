"""Runs of the guessing game on Ray, for tests: what they train, and what they leave running."""

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import msgspec
import psutil
import pytest
import requests

from agent_layer.health.progress import progress_path, read_progress
from agent_layer.health.restarts import Restart, read_restarts, restarts_path
from agent_layer.infra.processes.marked import list_marked
from agent_layer.schema import codec
from agent_layer.settings import Settings
from agent_layer.store import list_batches, open_store
from trainer_adapter.cluster.overrides import MARK
from trainer_adapter.config import ClusterConfig, RetentionConfig, RolloutConfig, TrainConfig, load_config
from trainer_adapter.data.advantages import TrainingBatch
from trainer_adapter.data.replay import rebuild_batch
from trainer_adapter.demo.job import RECIPE, make_config, write_tasks
from trainer_adapter.start import Job, run_job

from ..waiting import run, scaled

if TYPE_CHECKING:
    from trainer_adapter.verl import UpdateReport

RUN = "ray"
FORKING = "forking_player:play"
"""Each of its rollouts has two rows."""
LOSSES = ("grad_norm", "loss", "actor/pg_loss", "actor/ppo_kl", "actor/entropy_loss")
"""Metrics of every update."""


class SeenServer(NamedTuple):
    """What a client of this machine finds out about one of veRL's servers."""

    access_key: str
    addresses: set[str]
    """IPv4 addresses of this machine that reach it."""
    routes: set[tuple[str, str]]
    """Methods and paths that were tried without its key and with another one."""
    answered: set[tuple[str, str]]
    """Those that were not refused."""
    status_with_key: int
    """Of its health."""
    exposed: set[str]
    """Processes and files, other than Redis' own, in which the key can be read."""


def look_at_server(url: str, access_key: str, settings: Settings) -> SeenServer:
    """Try all routes of a server, and look for its key where others can read."""
    with requests.Session() as session:

        def ask(method: str, path: str, key: str | None) -> requests.Response:
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            return session.request(method, url + path, headers=headers, timeout=scaled(60))

        listed = ask("GET", "/openapi.json", access_key).json()["paths"]
        routes = {(method.upper(), path) for path, methods in listed.items() for method in methods}
        routes |= set(product(("GET", "POST", "OPTIONS"), (*_UNLISTED_ROUTES, *listed)))
        answered = {one for one in routes for key in (None, access_key[::-1]) if ask(*one, key).status_code != 401}
        status = ask("GET", "/health", access_key).status_code
    addresses = addresses_that_reach(urlsplit(url).port or 0)
    return SeenServer(access_key, addresses, routes, answered, status, set(_places_with(access_key, settings)))


_UNLISTED_ROUTES = (
    *("/docs", "/openapi.json", "/metrics", "/ping", "/load", "/server_info", "/collective_rpc", "/no-such-route"),
    *("/pause", "/resume", "/abort_requests", "/sleep", "/wake_up", "/reset_prefix_cache", "/update_weights"),
    *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/start_profile"),
)


def _places_with(word: str, settings: Settings) -> Iterator[str]:
    """Yield processes with this word in an argument or variable, and files of the run with it, except Redis' own."""
    for process in psutil.process_iter(["pid", "cmdline", "environ"]):
        if word in repr((process.info["cmdline"], process.info["environ"])):
            yield f"process {process.info['pid']}"
    overrides = msgspec.json.decode((settings.dir / "runs" / RUN / "ray" / "verl.json").read_bytes())
    for place in (settings.dir, Path(overrides["ray_kwargs.ray_init._temp_dir"])):
        for path in place.rglob("*"):
            if settings.dir / "redis" in path.parents or not path.is_file():
                continue
            with suppress(FileNotFoundError):  # a log that was shipped is deleted
                if word.encode() in path.read_bytes():
                    yield str(path)


def addresses_that_reach(port: int) -> set[str]:
    """IPv4 addresses of this machine at which something listens on this port."""
    own = {one.address for found in psutil.net_if_addrs().values() for one in found if one.family == socket.AF_INET}
    reached: set[str] = set()
    for address in own:
        with socket.socket() as probe:
            probe.settimeout(5)
            if probe.connect_ex((address, port)) == 0:
                reached.add(address)
    return reached


def configure(home: Path, steps: int, checkpoint_steps: int = 10, cluster: ClusterConfig | None = None) -> TrainConfig:
    """The game of the demo; writes its model and tasks."""
    if not (home / "model").exists():
        from trainer_adapter.demo.model import write_model  # noqa: PLC0415  # torch takes seconds

        write_model(home / "model", seed=0)
        write_tasks(home / "tasks.jsonl")
    keep = RetentionConfig(checkpoint_steps=checkpoint_steps)
    cluster = msgspec.structs.replace(cluster or ClusterConfig(), max_model_len=64)
    return msgspec.structs.replace(make_config(home, RUN, 0, steps), cluster=cluster, keep=keep)


def configure_stale(home: Path, steps: int, max_staleness: int, cluster: ClusterConfig) -> TrainConfig:
    """Rollouts may be some updates old; the first weights pull; a checkpoint keeps the weights of each version."""
    config = configure(home, steps, checkpoint_steps=1, cluster=cluster)
    keep = msgspec.structs.replace(config.keep, num_checkpoints=steps)
    rollouts = RolloutConfig(group_size=config.rollouts.group_size, max_staleness=max_staleness)
    algorithm = msgspec.structs.replace(config.algorithm, kl=0.1)
    return msgspec.structs.replace(config, keep=keep, rollouts=rollouts, algorithm=algorithm)


def train_on_ray(home: Path, config: TrainConfig, look: Callable[[Settings], None] = lambda _: None) -> Settings:
    """Train to the end; nothing of Ray is left."""
    settings = Settings(dir=home / "data", run=RUN)
    directory = settings.dir.absolute() / "runs" / RUN / "ray"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(Path(__file__).parent), os.getenv("PYTHONPATH")])))
        with run_job(settings, Job(config=config, target=FORKING, slots=8, on_ray=True)) as running:
            running.wait(lambda: look(settings))
    assert list_marked(MARK, str(directory)) == []
    return settings


def update_of_embedded_driver(settings: Settings, batch: TrainingBatch | None = None) -> "UpdateReport":
    """What one process without Ray makes of the batch of the first step, or of this one in its place."""
    from trainer_adapter.verl import EmbeddedTrainer  # noqa: PLC0415  # torch and veRL take seconds

    config = load_config(settings.dir / "runs" / RUN / "ray" / "train.json")
    config = msgspec.structs.replace(config, optimizer=msgspec.structs.replace(config.optimizer, sequence_parallel=1))
    return EmbeddedTrainer(config).update(batch or trained_batches(settings)[0][1], step=0, version=0)


def replay(settings: Settings) -> str:
    """Rebuild what each step learned from, from the store; return what the command says."""
    program = [sys.executable, "-m", "agent_layer.cli", "--dir", settings.dir, "replay", "--run", RUN]
    done = run(program, 300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_trained(settings: Settings, num_steps: int) -> None:
    """Every step trained whole groups, nothing twice, and can be replayed."""
    store = open_store(settings)
    batches = list_batches(store.redis, store.keys, RUN)
    trained = [rollout.trajectory_id for batch in batches for rollout in batch.rollouts]
    assert [batch.step for batch in batches] == list(range(1, num_steps + 1))
    assert len(trained) == num_steps * 6 * RECIPE.group_size
    assert len(trained) == len(set(trained))
    assert replay(settings).count("identical") == num_steps


def count_steps(settings: Settings) -> int:
    """Steps that were reported."""
    return len(read_progress(progress_path(settings, RUN)))


def list_restarts(settings: Settings) -> list[Restart]:
    """What died and was started again, oldest first."""
    return read_restarts(restarts_path(settings, RUN))


def trained_batches(settings: Settings) -> list[tuple[int, TrainingBatch]]:
    """Version that trained, and the batch as it is rebuilt from the store, of each step."""
    store = open_store(settings)
    records = list_batches(store.redis, store.keys, RUN)
    contents = [rebuild_batch(record, store.get).content for record in records]
    batches = [msgspec.msgpack.decode(one, type=TrainingBatch, dec_hook=codec._unpack_array) for one in contents]
    return [(record.policy_version, batch) for record, batch in zip(records, batches, strict=True)]


def trained_trajectories(settings: Settings) -> list[str]:
    """Ids of what was trained, in order; one that was trained twice is there twice."""
    store = open_store(settings)
    batches = list_batches(store.redis, store.keys, RUN)
    return [rollout.trajectory_id for batch in batches for rollout in batch.rollouts]


def ages_of_trained_tokens(settings: Settings) -> list[list[int]]:
    """By step: how many versions before its update each trained token was sampled."""
    return [
        [
            version - sampled_by
            for sample in batch.samples
            for sampled_by, is_trained in zip(sample.versions, sample.loss_mask, strict=True)
            if is_trained
        ]
        for version, batch in trained_batches(settings)
    ]


def logprob_gaps(settings: Settings, exported: Path) -> list[float]:
    """Of each trained token, between its log-probability and that of the weights of the version it names.

    A checkpoint keeps the weights of each version; they are exported below ``exported``.
    """
    import torch  # noqa: PLC0415  # torch and veRL take seconds
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    from trainer_adapter.verl import export_checkpoint  # noqa: PLC0415

    directories = {0: settings.dir.parent / "model"}
    for checkpoint in (settings.dir / "checkpoints" / RUN).glob("step-*"):
        number = msgspec.json.decode((checkpoint / "cursor.json").read_bytes())["policy_version"]
        directories[number] = exported / str(number)
        export_checkpoint(checkpoint, directories[number])
    models = {number: AutoModelForCausalLM.from_pretrained(one).eval() for number, one in directories.items()}

    def compute_logprobs(version: int, prompt: list[int], response: list[int]) -> torch.Tensor:
        with torch.no_grad():
            logits = models[version](torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
        return logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None])[:, 0]

    gaps: list[float] = []
    for _, batch in trained_batches(settings):
        for sample in batch.samples:
            mask, versions = torch.tensor(sample.loss_mask).bool(), torch.tensor(sample.versions)
            for version in versions[mask].unique().tolist():
                own = mask & (versions == version)
                expected = compute_logprobs(version, list(sample.prompt_ids), list(sample.response_ids))
                gaps += (torch.tensor(sample.logprobs) - expected)[own].abs().tolist()
    return gaps
