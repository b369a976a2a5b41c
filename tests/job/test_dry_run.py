"""``train --dry-run`` says what a run amounts to and what it lacks; its estimate of memory is that of a real update.

torch and veRL take ten seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import os
import shutil

import msgspec
import pytest

from agent_layer.dispatcher import connect
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.training import TrainingSample
from agent_layer.settings import Settings
from envs.commands import CommandOptions
from envs.harnesses import NeededLengths, find_qualification, save_qualification
from trainer_adapter.config import load_config
from trainer_adapter.data.advantages import GroupSamples, RolloutSamples, select_batch
from trainer_adapter.loop.checkpoint import CheckpointDirectory, Cursor
from trainer_adapter.loop.resumed import list_fixed_options, write_fixed_options
from trainer_adapter.start import HarnessWorker, plan_run
from trainer_adapter.start.memory import estimate_memory, read_shape

from ..documents import ROOT
from ..example_models import describe_model
from ..queues import open_queue
from ..teaching import ScriptedTeacher
from .conftest import RUN

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other

NUM_ROWS, ROW_TOKENS = 64, 32


@pytest.fixture
def written(model, tmp_path):
    """A configuration file, and its tasks."""
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "input": 1}\n{"id": "b", "input": 2}\n')
    options = {
        "model": str(model),
        "tasks": "tasks.jsonl",
        "steps": 5,
        "run": RUN,
        "algorithm": {"name": "gspo"},
        "health": {"forks": {"warn": 0.1, "stop": 0.5, "steps": 3}, "success_swaps": "off"},
        "verl": {"actor_rollout_ref.actor.optim.override_optimizer_config.eps": 1e-6},
    }
    path = tmp_path / "run.json"

    def write(**changes):
        path.write_bytes(msgspec.json.encode(options | changes))
        return path

    return write


@pytest.mark.usefixtures("engine")
def test_a_run_that_could_start_is_told_with_all_its_options(agent_layer, settings, written):
    open_queue(connect(settings)).heartbeat("w", b"{}", [])

    status, errors, _ = agent_layer("train", written(), "--dry-run")
    lines = dict(line.split(maxsplit=1) for line in errors.split("\n\n")[0].splitlines())

    assert status == 0, errors
    assert "nothing is missing" in errors
    assert (lines["algorithm.clip_low"], lines["algorithm.clip_high"]) == ("0.0003", "0.0004"), "the paper's"
    assert lines["algorithm.correction.upper"] == "2.0"
    assert lines["algorithm.credit"] == "rollout"
    assert lines["rollouts.groups_per_step"] == "2, one of each task"
    assert {name: text for name, text in lines.items() if name.startswith("health")} == {
        "health.forks": "warn 0.1, stop 0.5, steps 3",
        "health.success_swaps": "off",
    }
    assert lines["verl.actor_rollout_ref.actor.optim.override_optimizer_config.eps"] == "1e-06"
    assert "weights = 301,440 x 4 B" in errors


def test_what_is_missing_is_named_and_nothing_is_started(agent_layer, settings, written, tmp_path):
    status, errors, _ = agent_layer(
        "train",
        written(
            model=str(tmp_path / "none"),
            tasks="gone.jsonl",
            evaluation={"tasks": "held-out.jsonl", "every_steps": 2},
            verl={"actor_rollout_ref.actor.optim.optimiser": "SGD"},
        ),
        "--dry-run",
    )

    missing = [line for line in errors.splitlines() if line.startswith("missing: ")]
    assert status == 2
    for found in (
        "none: expected a directory",
        "gone.jsonl",
        "held-out.jsonl",
        "optim.optimizer?",
        "engine: ",
        "worker: ",
    ):
        assert sum(found in line for line in missing) == 1, (found, missing)
    assert len(missing) == 6
    assert not (settings.dir / "runs").exists()


def test_weights_that_are_not_whole_are_named(settings, written, model, tmp_path):
    cut = tmp_path / "cut"
    shutil.copytree(model, cut)
    (weights,) = cut.glob("*.safetensors")
    config = msgspec.structs.replace(load_config(written()), model=cut)

    for size in (weights.stat().st_size - 1, weights.stat().st_size // 2, 9, 0):
        os.truncate(weights, size)
        (found,) = [one for one in plan_run(config, settings).missing if one.startswith("model ")]
        assert found.startswith(f"model {cut}: expected whole weights in {weights.name}, found: ")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"model": "none"}, "model"),
        ({"tasks": "gone.jsonl"}, "gone.jsonl"),
        ({"verl": {"actor_rollout_ref.actor.optim.optimiser": "SGD"}}, "optim.optimizer?"),
        ({"seed": 3}, "expected seed 0, as in its checkpoint"),
        ({}, "as many shards as processes that train now (2), found 3"),
    ],
)
def test_bad_input_of_several_processes_is_refused_before_there_are_any(
    agent_layer, settings, written, monkeypatch, change, found
):
    """torchrun would end with a status and a trace of its own, half a minute later."""
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("torchrun was started"))
    fixed = list_fixed_options(load_config(written()))

    def write(directory):
        write_fixed_options(fixed, directory)
        (directory / "fsdp_config.json").write_text('{"world_size": 3}')

    CheckpointDirectory(settings, RUN).save(Cursor(step=1), write)

    status, _, errors = agent_layer("train", written(**change), "--processes", "2", "--unchecked")

    assert (status, found in " ".join(errors.split())) == (2, True), errors


def test_what_a_run_must_keep_is_looked_at_too(settings, written):
    config = load_config(written())
    fixed = list_fixed_options(config)
    CheckpointDirectory(settings, RUN).save(Cursor(step=1), lambda directory: write_fixed_options(fixed, directory))

    changed = msgspec.structs.replace(config, seed=3)

    assert any("expected seed 0, as in its checkpoint" in one for one in plan_run(changed, settings).missing)


@pytest.mark.usefixtures("engine")
def test_a_teacher_is_shown_and_one_that_cannot_judge_is_missing(agent_layer, settings, written, model):
    open_queue(connect(settings)).heartbeat("w", b"{}", [])

    def plan(name):
        distill = {"teacher": {"url": server.url, "model": name}, "coefficient": 0.5}
        return agent_layer("train", written(algorithm={"distill": distill}), "--dry-run")

    with serve_in_thread(ScriptedTeacher(model)) as server:
        status, message, _ = plan("teacher")
        refused, named, _ = plan("large")

    lines = dict(line.split(maxsplit=1) for line in message.split("\n\n")[0].splitlines())
    assert status == 0, message
    assert (lines["algorithm.distill.teacher.model"], lines["algorithm.distill.coefficient"]) == ("teacher", "0.5")
    assert refused == 2
    assert f"missing: teacher {server.url}: expected the model 'large', found teacher" in named


def test_on_ray_the_configuration_of_verl_and_its_processes_are_told_without_an_engine(agent_layer, settings, written):
    open_queue(connect(settings)).heartbeat("w", b"{}", [])

    status, errors, _ = agent_layer("train", written(cluster={"gpus_per_node": 2}, verl={}), "--dry-run", "--on", "ray")
    lines = dict(line.split(maxsplit=1) for line in errors.split("\n\n")[0].splitlines())

    assert status == 0, errors
    assert lines["verl.trainer.v1.trainer_mode"] == "agent_layer_colocate_async"
    assert lines["verl.trainer.n_gpus_per_node"] == "2"
    assert lines["verl.actor_rollout_ref.rollout.max_model_len"] == "512", "the model's"
    assert lines["verl.critic.strategy"] == "fsdp", "defaults stand there, too"
    assert "GPUs: none; on the CPU as many processes take their place: 2" in errors
    assert "weights = 301,440 x 4 B, parameters, and the optimizer's master copy, in float32, / 2 processes" in errors


def test_on_ray_gpus_that_this_machine_lacks_are_planned_and_named_with_what_verl_refuses(agent_layer, written):
    cluster = {
        "nodes": 2,
        "gpus_per_node": 2,
        "gpu_gigabytes": 80,
        "verl": {"actor_rollout_ref.rollout.enforce_eagr": True},
    }

    status, errors, _ = agent_layer("train", written(cluster=cluster, verl={}), "--dry-run", "--on", "ray")
    missing = [line for line in errors.splitlines() if line.startswith("missing: ")]

    assert status == 2
    assert "GPUs: 4, 80.0 GB each; this machine has 0" in errors
    assert "colocate_async: 4 share the trained model; 4 engines, 1 GPU for each, on the same" in errors
    assert "rollouts: at most 32 begun and not trained = 2 groups x 8 x (1 + max_staleness 1)" in errors
    refused = "cluster.nodes 2: expected the address of a Ray cluster"
    lacking = "expected 4 GPUs on this machine for trainer and engines, found 0"
    for found in ("worker: ", "enforce_eagr", refused, lacking):
        assert sum(found in line for line in missing) == 1, (found, missing)
    assert len(missing) == 4


GPU_EXAMPLES = [
    ("one", "GPUs: 1, 80.0 GB each; this machine has 0", ["expected 1 GPU on this machine"]),
    ("eight", "GPUs: 8, 80.0 GB each; this machine has 0", ["expected 8 GPUs on this machine"]),
    ("sixty_four", "GPUs: 64, 80.0 GB each; in a Ray cluster", ["get weights over nccl"]),
]


@pytest.mark.parametrize(("name", "gpus", "lacking"), GPU_EXAMPLES, ids=[one[0] for one in GPU_EXAMPLES])
def test_an_example_for_gpus_lacks_nothing_but_what_a_machine_with_them_has(agent_layer, tmp_path, name, gpus, lacking):
    path = tmp_path / f"{name}.yaml"
    path.write_text((ROOT / "examples/cluster/gpus" / path.name).read_text())
    config = load_config(path)
    config.model.mkdir()
    (config.model / "config.json").write_bytes(describe_model(config.model.name))
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "input": 1}\n')

    status, errors, error = agent_layer("train", path, "--dry-run", "--on", "ray")

    missing = [line for line in errors.splitlines() if line.startswith("missing: ")]
    assert status == 2, error
    assert gpus in errors
    wanted = ["expected weights", "expected a tokenizer", "worker: ", *lacking]
    for found in wanted:
        assert sum(found in line for line in missing) == 1, (found, missing)
    assert len(missing) == len(wanted)


def test_the_embedded_redis_is_not_started_for_a_look(written, tmp_path):
    home = tmp_path / "home"

    plan = plan_run(load_config(written()), Settings(dir=home))

    assert [sentence.partition(":")[0] for sentence in plan.missing] == ["engine", "worker"]
    assert not home.exists()


def test_a_run_that_starts_a_harness_itself_lacks_what_that_lacks_and_lengths_that_it_needs(written, tmp_path):
    home = Settings(dir=tmp_path / "home")
    save_qualification(home, msgspec.structs.replace(find_qualification(home, "pi"), needs=NEEDED))
    config = load_config(written(optimizer={"max_row_tokens": 30_000}))

    plan = plan_run(config, home, worker=HarnessWorker("harness:pi", CommandOptions()))

    installation, engine, row = plan.missing
    assert "is not installed; run 'agent-layer harnesses install pi'" in installation
    assert "max_model_len 24,576, found" in engine
    assert "set that to 30720 or more" in row


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("who", ["task", "worker"])
def test_a_harness_that_tasks_name_or_workers_run_needs_its_lengths_too(settings, written, tmp_path, who):
    agent = {"task": None, "worker": "harness:pi"}[who]
    open_queue(connect(settings)).heartbeat("w", msgspec.json.encode({"agent": agent} if agent else {}), [])
    save_qualification(settings, msgspec.structs.replace(find_qualification(settings, "pi"), needs=NEEDED))
    path = written()
    if who == "task":
        (tmp_path / "tasks.jsonl").write_text(
            '{"id": "a", "input": 1}\n{"id": "b", "input": 2, "agent": "harness:pi"}\n'
        )

    plan = plan_run(load_config(path), settings)

    assert ["harness 'pi': its first request" in one for one in plan.missing] == [True]


def test_a_harness_that_tasks_name_and_nothing_knows_is_named(settings, written, tmp_path):
    task = '{"id": "%s", "input": 1, "agent": "harness:%s"}\n'
    path = written()
    (tmp_path / "tasks.jsonl").write_text("".join(task % (name, name) for name in ("clod", "mine", "pi")))
    heartbeat = msgspec.json.encode({"agent": "harness:mine"})  # of a package that its worker has
    open_queue(connect(settings)).heartbeat("w", heartbeat, [])

    plan = plan_run(load_config(path), settings)

    assert [one.partition(",")[0] for one in plan.missing if "expected one of" in one] == [
        "harness 'clod': expected one of claude-code"
    ]


NEEDED = NeededLengths(max_model_len=24_576, max_row_tokens=30_720)


def make_batch():
    groups = []
    for number in range(NUM_ROWS // 2):
        rollouts = []
        for member in range(2):
            name, num = f"{number}.{member}-0", ROW_TOKENS - 2
            sample = TrainingSample(
                sample_id=f"{name}.0",
                trajectory_id=name,
                run=RUN,
                task_id="q",
                prompt_ids=TokenIds([3, 12]),
                response_ids=TokenIds([12 + member] * num),
                loss_mask=[1] * num,
                logprobs=Logprobs([-3.0] * num),
                versions=[0] * num,
                temperature=1.0,
            )
            rollouts.append(RolloutSamples(trajectory_id=name, reward=float(member), samples=[sample]))
        groups.append(GroupSamples(group_id=str(number), task_id="q", rollouts=rollouts))
    return select_batch(groups, keep_equal=False)


def test_the_estimate_is_what_an_update_allocates(configure):
    from trainer_adapter.verl.trainer import EmbeddedTrainer

    from .long_rows import measure_peak

    config, tokens = configure(steps=2), NUM_ROWS * ROW_TOKENS
    trainer, batch = EmbeddedTrainer(config), make_batch()
    trainer.update(batch, 0, version=0)  # makes the states
    _, peak = measure_peak(lambda: trainer.update(batch, 1, version=0))

    engine = trainer._worker.engine
    estimate = estimate_memory(config, read_shape(config.model), tokens)
    states = {part.name: part.num_bytes for part in estimate.states}
    assert states["weights"] == num_bytes(engine.module.parameters())
    moments = (one for state in engine.optimizer.state.values() for one in (state["exp_avg"], state["exp_avg_sq"]))
    assert states["Adam"] == num_bytes(moments)
    needed = states["gradients"] + sum(part.num_bytes for part in estimate.update)
    assert needed == pytest.approx(peak, rel=0.25)


def num_bytes(tensors):
    return sum(one.numel() * one.element_size() for one in tensors)
