"""The guessing game on a Ray that the job starts: stock veRL with its own vLLM servers on this CPU, behind our gateway.

Each start of Ray and vLLM takes minutes, so each kind of run trains once, and all tests look at it.
"""
# ruff: noqa: PLC0415  # torch takes seconds: imported inside tests, collection stays fast

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import pytest
import requests

from agent_layer.engines import get_policy, open_engine_registry
from agent_layer.health.progress import progress_path, read_progress
from agent_layer.infra import Keys, open_redis
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.schema.record import Logprobs
from agent_layer.settings import Settings
from agent_layer.store import list_batches, open_store
from trainer_adapter.algorithms import DistillConfig
from trainer_adapter.algorithms.options import TeacherConfig
from trainer_adapter.config import ClusterConfig, LoraConfig, Schedule, TrainConfig
from trainer_adapter.data import TrainingBatch
from trainer_adapter.demo.cli import STEPS as DEMO_STEPS
from trainer_adapter.demo.display import mean_success
from trainer_adapter.demo.job import RECIPE
from trainer_adapter.loop.checkpoint import CheckpointDirectory
from trainer_adapter.start import Job, run_job

from ..teaching import ScriptedTeacher, judge
from ..waiting import scaled
from .ray_runs import (
    LOSSES,
    RUN,
    SeenServer,
    ages_of_trained_tokens,
    configure,
    configure_stale,
    logprob_gaps,
    look_at_server,
    replay,
    train_on_ray,
    trained_batches,
    update_of_embedded_driver,
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(1800),
]

STEPS = 2
STALE_STEPS, MAX_STALENESS = 3, 1


OWN_LOSS = """
import torch


def lopsided(tokens, low, high):
    ratio = torch.exp(tokens.logprobs - tokens.old_logprobs)
    losses = -torch.minimum(ratio * tokens.advantages, ratio.clamp(1 - low, 1 + high) * tokens.advantages)
    return torch.where(tokens.advantages < 0, 2 * losses, losses), {"own/pushed": (tokens.advantages < 0).float()}
"""


class Game(NamedTuple):
    """A run that has been trained, with forks."""

    settings: Settings
    servers: dict[str, SeenServer]
    """What was seen of each of veRL's servers while it served, by its address in the registry."""


def train(home: Path, config: TrainConfig) -> Game:
    game = Game(Settings(dir=home / "data", run=RUN), {})

    def look(settings: Settings) -> None:
        with open_redis(settings) as redis:
            access_keys = open_engine_registry(settings, redis).access_keys()
        for url, access_key in access_keys.items():
            if url not in game.servers:
                game.servers[url] = look_at_server(url, access_key, settings)

    train_on_ray(home, config, look)
    return game


@pytest.fixture(scope="module")
def sync(tmp_path_factory: pytest.TempPathFactory) -> Game:
    """One rank."""
    home = tmp_path_factory.mktemp("ray")
    return train(home, configure(home, STEPS))


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Game:
    """Two ranks that share rows, each with a server of its own, which takes 3 GB, and a teacher."""
    home = tmp_path_factory.mktemp("ray")
    config = configure(home, STEPS, cluster=ClusterConfig(gpus_per_node=2))
    config = msgspec.structs.replace(config, optimizer=msgspec.structs.replace(config.optimizer, sequence_parallel=2))
    with serve_in_thread(ScriptedTeacher(home / "model")) as server:
        distill = DistillConfig(teacher=TeacherConfig(url=server.url, model="teacher"), coefficient=0.5)
        algorithm = msgspec.structs.replace(config.algorithm, distill=distill)
        return train(home, msgspec.structs.replace(config, algorithm=algorithm))


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Game:
    """Two ranks that train an adapter, with a reference."""
    home = tmp_path_factory.mktemp("ray")
    config = configure(home, STEPS, checkpoint_steps=1, cluster=ClusterConfig(gpus_per_node=2))
    algorithm = msgspec.structs.replace(config.algorithm, kl=0.1)
    optimizer = msgspec.structs.replace(config.optimizer, learning_rate=Schedule(start=1e-2))
    adapter = LoraConfig(rank=4, alpha=8)
    return train(home, msgspec.structs.replace(config, algorithm=algorithm, optimizer=optimizer, lora=adapter))


class Adapted(NamedTuple):
    """A run whose servers got adapters, and what one of them said while it served each version."""

    settings: Settings
    answers: dict[int, dict[str, list[float]]]
    """By version and by name of the model: log-probabilities of one prompt's continuation."""


def train_adapter(home: Path, mode: str) -> Adapted:
    """One rank; a checkpoint of each version."""
    cluster = ClusterConfig(mode=mode)  # pyright: ignore[reportArgumentType]  # one of veRL's
    config = configure(home, STEPS, checkpoint_steps=1, cluster=cluster)
    optimizer = msgspec.structs.replace(config.optimizer, learning_rate=Schedule(start=1e-2))
    keep = msgspec.structs.replace(config.keep, num_checkpoints=STEPS)
    lora = LoraConfig(rank=4, alpha=8, publish="adapter")
    answers: dict[int, dict[str, list[float]]] = {}

    def look(settings: Settings) -> None:
        with open_redis(settings) as redis:
            registry = open_engine_registry(settings, redis)
            for engine in registry.engines():
                if engine.state == "serving" and engine.version not in answers:
                    access_key = registry.access_keys()[engine.url]
                    names = (engine.model.removesuffix("-lora"), engine.model)
                    answers[engine.version] = {name: ask_for_logprobs(engine.url, access_key, name) for name in names}

    config = msgspec.structs.replace(config, optimizer=optimizer, keep=keep, lora=lora)
    return Adapted(train_on_ray(home, config, look), answers)


def ask_for_logprobs(url: str, access_key: str, model: str) -> list[float]:
    """What a model of a server says of the tokens of one prompt."""
    headers = {"Authorization": f"Bearer {access_key}"}
    question = {"model": model, "prompt": [3, 12, 14, 15, 3, 12], "max_tokens": 1, "prompt_logprobs": 0}
    answer = requests.post(f"{url}/v1/completions", json=question, headers=headers, timeout=scaled(120))
    answer.raise_for_status()
    places = answer.json()["choices"][0]["prompt_logprobs"][1:]
    return [one["logprob"] for place in places for one in place.values()]


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    """Servers that sleep while an adapter is trained, and get it alone."""
    return train_adapter(tmp_path_factory.mktemp("ray"), "sync")


@pytest.fixture(scope="module")
def adapter_apart(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    """The same, with a server of its own."""
    return train_adapter(tmp_path_factory.mktemp("ray"), "separate_async")


@pytest.fixture(scope="module")
def own_loss(tmp_path_factory: pytest.TempPathFactory) -> Game:
    """One rank, with a loss that stands in the directory in which the run is started."""
    home = tmp_path_factory.mktemp("ray")
    (home / "own_losses_of_a_user.py").write_text(OWN_LOSS)
    config = configure(home, STEPS)
    own = {"loss": "own_losses_of_a_user:lopsided", "loss_options": {"low": 0.2, "high": 0.28}}
    algorithm = msgspec.structs.replace(config.algorithm, **own)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        return train(home, msgspec.structs.replace(config, algorithm=algorithm))


@pytest.fixture(scope="module")
def colocate_async(tmp_path_factory: pytest.TempPathFactory) -> Game:
    """One rank, as users get it who set no mode: rollouts may be an update old; with a reference."""
    home = tmp_path_factory.mktemp("ray")
    cluster = ClusterConfig(mode="colocate_async")
    return train(home, configure_stale(home, STALE_STEPS, MAX_STALENESS, cluster))


def games(*kinds: str) -> pytest.MarkDecorator:
    """Run a test over these kinds of run."""
    return pytest.mark.parametrize("kind", kinds)


@pytest.fixture
def game(request: pytest.FixtureRequest, kind: str) -> Game:
    """The run of this kind."""
    return request.getfixturevalue(kind)


@games("sync", "taught", "lora", "own_loss")
def test_each_step_on_ray_trains_whole_groups_of_the_store_and_makes_a_version(game: Game):
    steps = read_progress(progress_path(game.settings, RUN))

    assert [(step.step, step.policy_version) for step in steps] == [(1, 1), (2, 2)]
    assert all(step.num_rollouts == 6 * RECIPE.group_size for step in steps)
    assert [step.staleness_max for step in steps] == [0, 0]
    assert all(step.metrics["grad_norm"] > 0 for step in steps)
    trained = [row.trajectory_id for row in open_store(game.settings).query(run=RUN, limit=1000).items]
    assert len(trained) >= sum(step.num_rollouts for step in steps)


@games("sync", "taught", "lora")
def test_each_token_was_sampled_by_the_weights_of_its_version(game: Game, kind: str):
    steps = read_progress(progress_path(game.settings, RUN))

    assert all(step.metrics["logprob_gap"] < 1e-4 for step in steps), [step.metrics["logprob_gap"] for step in steps]
    assert kind == "lora" or all(step.metrics["ratio_gap"] < 1e-4 for step in steps)


@pytest.mark.parametrize(
    ("kind", "more", "tolerance"),
    [
        ("sync", [], 1e-5),
        ("taught", ["reverse_kl"], 1e-5),
        ("lora", ["kl_loss"], 1e-4),
        ("own_loss", ["own/pushed"], 1e-5),
        ("colocate_async", ["kl_loss"], 1e-4),
    ],
)
def test_the_first_step_is_that_of_one_process_without_ray_forks_included(
    game: Game, kind: str, more: list[str], tolerance: float, monkeypatch: pytest.MonkeyPatch
):
    _, batch = trained_batches(game.settings)[0]
    assert len(batch.samples) > len(batch.rewards), "with forks"
    if kind == "taught":
        batch = msgspec.structs.replace(batch, teacher_logprobs=[Logprobs(row) for row in judge_rows(batch)])

    monkeypatch.chdir(game.settings.dir.parent)
    found = update_of_embedded_driver(game.settings, batch)

    metrics, names = read_progress(progress_path(game.settings, RUN))[0].metrics, {*LOSSES, *more}
    names -= {"actor/ppo_kl"} if kind == "own_loss" else set()  # a metric of our losses
    assert {name: metrics[name] for name in names} == pytest.approx(
        {name: found.metrics[name] for name in names}, rel=tolerance
    )
    assert all(metrics[name] > 0 for name in ("kl_loss", "own/pushed") if name in more)
    assert metrics["entropy"] == pytest.approx(found.entropy, rel=1e-5 if kind == "lora" else 1e-6)


@games("sync", "taught")
def test_what_was_trained_on_ray_is_rebuilt_byte_for_byte(game: Game):
    message = replay(game.settings)

    assert message.count("identical") == STEPS
    assert message.count(" weights ") == STEPS - 1, "the first weights have no hash, those that it sent have one"


@games("sync", "taught")
def test_its_checkpoint_has_the_cursor_and_what_it_learned_from(game: Game, kind: str):
    ((directory, cursor),) = CheckpointDirectory(game.settings, RUN).all()

    assert (cursor.step, cursor.policy_version) == (STEPS, STEPS)
    assert len(cursor.taken) == 6 * STEPS
    assert len(list(directory.glob("model*rank_*.pt"))) == (1 if kind == "sync" else 2)


@games("sync", "taught")
def test_verls_servers_are_reached_by_this_machine_alone(game: Game, kind: str):
    assert len(game.servers) == (1 if kind == "sync" else 2)
    assert {urlsplit(url).hostname for url in game.servers} == {"127.0.0.1"}
    assert all(one.addresses == {"127.0.0.1"} for one in game.servers.values())


@games("sync", "taught")
def test_verls_servers_refuse_every_route_without_their_own_key(game: Game):
    for one in game.servers.values():
        assert {("GET", "/health"), ("GET", "/metrics"), ("POST", "/v1/chat/completions")} <= one.routes
        assert one.answered == set()
        assert one.status_with_key == 200
    assert len({one.access_key for one in game.servers.values()}) == len(game.servers)


@games("sync", "taught")
def test_the_key_of_a_server_is_in_no_argument_variable_or_file_but_that_of_redis(game: Game):
    assert [one.exposed for one in game.servers.values()] == [set()] * len(game.servers)


def judge_rows(batch: TrainingBatch) -> list[list[float]]:
    """What the teacher says of each token of each response; 0 for tokens that are not trained."""
    return [
        [
            judge([*sample.prompt_ids, *sample.response_ids[:place]], token) if is_trained else 0.0
            for place, (token, is_trained) in enumerate(zip(sample.response_ids, sample.loss_mask, strict=True))
        ]
        for sample in batch.samples
    ]


def test_each_trained_token_has_what_the_teacher_says_of_it(taught: Game):
    store = open_store(taught.settings)
    records = list_batches(store.redis, store.keys, RUN)

    for record, (_, batch) in zip(records, trained_batches(taught.settings), strict=True):
        judged = judge_rows(batch)
        for rollout, one in enumerate(record.rollouts):
            (kept,) = (found for found in store.get(one.trajectory_id).trained if found.batch_id == record.batch_id)
            rows = [row for row, owner in enumerate(batch.rollout_of) if owner == rollout]
            expected = [
                value for row in rows for value in itertools.compress(judged[row], batch.samples[row].loss_mask)
            ]
            assert list(kept.teacher_logprobs) == pytest.approx(expected)


def test_the_divergence_of_each_step_is_that_of_what_was_stored(taught: Game):
    store = open_store(taught.settings)
    records, steps = list_batches(store.redis, store.keys, RUN), read_progress(progress_path(taught.settings, RUN))

    for step, record in zip(steps, records, strict=True):
        trained = [one for rollout in record.rollouts for one in store.get(rollout.trajectory_id).trained]
        own = [one for one in trained if one.batch_id == record.batch_id]
        gaps = [mine - theirs for one in own for mine, theirs in zip(one.logprobs, one.teacher_logprobs, strict=True)]
        assert step.metrics["reverse_kl"] == pytest.approx(sum(gaps) / len(gaps), rel=1e-5)
        assert step.metrics["teacher_seconds"] > 0


def test_the_reference_of_an_adapter_is_the_model_without_it(lora: Game):
    steps = read_progress(progress_path(lora.settings, RUN))

    assert [step.metrics["kl_loss"] > 1e-6 for step in steps] == [True, True]


def test_a_checkpoint_of_an_adapter_exports_the_weights_that_the_servers_confirmed(lora: Game, tmp_path: Path):
    from safetensors.torch import load_file

    from trainer_adapter.cluster.weights.digest import hash_weights
    from trainer_adapter.verl import export_checkpoint

    for directory, cursor in CheckpointDirectory(lora.settings, RUN).all():
        assert (directory / "adapter_config.json").is_file()
        export_checkpoint(directory, tmp_path / str(cursor.step))
        with open_redis(lora.settings) as redis:
            policy = get_policy(redis, Keys(lora.settings.namespace), RUN, cursor.policy_version)
        assert hash_weights(load_file(tmp_path / str(cursor.step) / "model.safetensors").items()) == policy.weights_hash


@games("adapter", "adapter_apart")
def test_each_token_was_sampled_by_the_adapter_of_its_version(game: Adapted, tmp_path: Path):
    settings = game.settings
    gaps, steps = logprob_gaps(settings, tmp_path), read_progress(progress_path(settings, RUN))

    assert len(gaps) > 0
    assert max(gaps) < 1e-4
    assert {age for ages in ages_of_trained_tokens(settings) for age in ages} == {0}
    assert all(step.metrics["logprob_gap"] < 1e-4 for step in steps), [step.metrics["logprob_gap"] for step in steps]
    assert [step.policy_version for step in steps] == [1, 2]


@games("adapter", "adapter_apart")
def test_calls_name_the_adapter_whose_base_says_the_same_under_each_version(game: Adapted):
    base = str(game.settings.dir.parent / "model")
    found = [game.answers[version] for version in sorted(game.answers)]

    assert len(found) >= STEPS
    assert all(set(one) == {base, f"{base}-lora"} for one in found)
    assert all(one[base] == pytest.approx(found[0][base], abs=1e-5) for one in found)
    assert found[0][f"{base}-lora"] == pytest.approx(found[0][base], abs=1e-5), "an adapter begins with zeros"
    assert found[-1][f"{base}-lora"] != pytest.approx(found[-1][base], abs=1e-3)


@games("adapter", "adapter_apart")
def test_servers_confirm_the_adapter_of_each_checkpoint_whose_base_is_bit_for_bit_the_first(
    game: Adapted, tmp_path: Path
):
    from safetensors.torch import load_file
    from torch import equal

    from trainer_adapter.cluster.weights.digest import hash_weights
    from trainer_adapter.verl import export_checkpoint
    from trainer_adapter.verl.adapters import find_parts
    from trainer_adapter.verl.export import _read_weights

    first = load_file(game.settings.dir.parent / "model" / "model.safetensors")
    for directory, cursor in CheckpointDirectory(game.settings, RUN).all():
        weights = _read_weights(directory)
        parts = find_parts(weights)
        assert sum(part.a is not None for part in parts.values()) > 0
        assert all(equal(weights[parts[name].base].join(), tensor) for name, tensor in first.items())
        export_checkpoint(directory, tmp_path / str(cursor.step), adapter_only=True)
        with open_redis(game.settings) as redis:
            policy = get_policy(redis, Keys(game.settings.namespace), RUN, cursor.policy_version)
        sent = load_file(tmp_path / str(cursor.step) / "adapter_model.safetensors")
        assert hash_weights(sent.items()) == policy.weights_hash


def test_no_trained_token_is_older_than_the_staleness_that_is_allowed(colocate_async: Game):
    steps = read_progress(progress_path(colocate_async.settings, RUN))

    by_step = ages_of_trained_tokens(colocate_async.settings)
    found = [(sum(ages) / len(ages), max(ages)) for ages in by_step]

    assert [step.policy_version for step in steps] == list(range(1, STALE_STEPS + 1))
    assert found[0] == (0, 0)
    assert all(min(ages) >= 0 for ages in by_step)
    assert all(oldest <= MAX_STALENESS for _, oldest in found)
    assert [(step.staleness_mean, step.staleness_max) for step in steps] == [
        (pytest.approx(mean), oldest) for mean, oldest in found
    ]


def test_each_token_was_sampled_by_the_weights_of_the_version_it_names(colocate_async: Game, tmp_path: Path):
    gaps = logprob_gaps(colocate_async.settings, tmp_path)

    assert len(gaps) > 0
    assert max(gaps) < 1e-4


GOAL = 0.9
"""Success of five steps: a tree of guesses in which two numbers share a leaf reaches 0.83."""
WINDOW = 5


class HasLearned(Exception):  # noqa: N818  # it ends a run, and is no error
    """The last steps have reached the goal."""


@pytest.mark.timeout(3600)
def test_the_demo_learns_its_game_on_ray(tmp_path: Path, record_property: Callable[[str, object], None]):
    settings = Settings(dir=tmp_path / "data", run=RUN)
    job = Job(config=configure(tmp_path, DEMO_STEPS), target=RECIPE.target, slots=RECIPE.slots, on_ray=True)

    def look() -> None:
        last = read_progress(progress_path(settings, RUN))[-WINDOW:]
        if len(last) == WINDOW and mean_success(last) >= GOAL:
            raise HasLearned

    with suppress(HasLearned), run_job(settings, job) as running:
        running.wait(look)

    steps = read_progress(progress_path(settings, RUN))
    record_property("success by step", [round(step.success or 0, 3) for step in steps])
    record_property("seconds", round(steps[-1].ended_at - steps[0].ended_at, 1))
    assert mean_success(steps[:1]) < 0.5, "it was not untrained"
    assert mean_success(steps[-WINDOW:]) >= GOAL, [step.success for step in steps]
    assert {step.staleness_max for step in steps} == {0}
    assert max(step.metrics["ratio_gap"] or 0 for step in steps) < 1e-4
