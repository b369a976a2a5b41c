"""Configuration: three formats, one meaning, and no option without effect."""

from math import inf

import msgspec
import pytest

from agent_layer.errors import BadInputError
from trainer_adapter.config import OptimizerConfig, Schedule, SourceConfig, TrainConfig, load_config, write_config
from trainer_adapter.selection import GroupRamp

YAML = """
model: start
tasks: tasks.jsonl
steps: 60
rollouts: {group_size: 10, curriculum: {floor: 0.5}}
algorithm: {entropy: {start: 0.02, end: 0.0, shape: linear}}
optimizer:
  learning_rate: {start: 0.0015, end: 0.00015, shape: cosine, warmup_steps: 2}
  betas: [0.9, 0.95]
"""


def test_every_format_gives_the_same_run(tmp_path):
    (tmp_path / "run.yaml").write_text(YAML)
    plain = msgspec.yaml.decode(YAML)
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(plain))
    (tmp_path / "run.toml").write_text(
        'model = "start"\ntasks = "tasks.jsonl"\nsteps = 60\n'
        "rollouts = {group_size = 10, curriculum = {floor = 0.5}}\n"
        'algorithm = {entropy = {start = 0.02, end = 0.0, shape = "linear"}}\n'
        "[optimizer]\nbetas = [0.9, 0.95]\n"
        'learning_rate = {start = 0.0015, end = 0.00015, shape = "cosine", warmup_steps = 2}\n'
    )

    runs = [load_config(tmp_path / f"run.{suffix}") for suffix in ("yaml", "json", "toml")]

    assert runs[0] == runs[1] == runs[2]
    assert runs[0].model == tmp_path / "start"
    assert runs[0].optimizer.betas == (0.9, 0.95)
    assert runs[0].algorithm.entropy == Schedule(start=0.02, end=0.0, shape="linear")


def test_what_is_asked_of_the_dispatcher_is_left_to_tasks_unless_it_is_said(tmp_path):
    plain = TrainConfig(model=tmp_path, tasks=[SourceConfig(path=tmp_path)], steps=1).rollouts
    assert (plain.launch, plain.partial, plain.priority, plain.pause_at_switch) == (None, None, None, False)
    assert plain.ask_ahead_steps == 0, "a curriculum decides what to ask for when it asks"

    path = tmp_path / "run.yaml"
    path.write_text("model: m\ntasks: t\nsteps: 1\nrollouts: {launch: 1.25, partial: refill, pause_at_switch: true}\n")
    answer = load_config(path).rollouts

    assert (answer.launch, answer.partial, answer.pause_at_switch) == (1.25, "refill", True)


def test_a_run_survives_being_written_down(tmp_path):
    config = TrainConfig(model=tmp_path / "m", tasks=[SourceConfig(path=tmp_path / "t.jsonl")], steps=3)
    path = tmp_path / "written.json"
    write_config(config, path)

    assert load_config(path) == config


def test_gradients_may_have_no_limit_which_survives_being_written_down(tmp_path):
    path, written = tmp_path / "train.yaml", tmp_path / "written.json"
    path.write_text("model: m\ntasks: t\nsteps: 1\noptimizer: {clip_grad: .inf}\n")
    write_config(load_config(path), written)

    assert load_config(written).optimizer == OptimizerConfig(clip_grad=inf)
    assert load_config(written).optimizer.clip_grad > 1e300


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("optimizer: {learning_rat: {start: 1}}", "learning_rat"),
        ("rollouts: {group_size: 1}", "group_size"),
        ("rollouts: {launch: 0.5}", "launch"),
        ("rollouts: {partial: wait}", "partial"),
        ("algorithm: {estimator: magic}", "estimator"),
        ("rollouts: [", "expected the options"),
        ("optimizer: {betas: [0.9, 1.0]}", r"optimizer.betas\[1\]"),
        ("optimizer: {betas: [-0.1, 0.9]}", r"optimizer.betas\[0\]"),
        ("optimizer: {learning_rate: {start: .inf}}", "optimizer.learning_rate.start: expected a finite number"),
        ("optimizer: {weight_decay: .inf}", "optimizer.weight_decay: expected a finite number"),
        ("optimizer: {clip_grad: .nan}", "optimizer.clip_grad: expected a finite number"),
        ("optimizer: {clip_grad: -.inf}", "optimizer.clip_grad: expected a finite number"),
        ("rollouts: {success_above: .nan}", "rollouts.success_above: expected a finite number"),
        ("cluster: {verl: {a.b: [1, -.inf]}}", "cluster.verl.a.b.1: expected a finite number, found -inf"),
    ],
)
def test_a_knob_that_cannot_be_is_named(tmp_path, change, named):
    path = tmp_path / "run.yaml"
    path.write_text(f"model: m\ntasks: t\nsteps: 1\n{change}\n")

    with pytest.raises(BadInputError, match=named):
        load_config(path)


def test_the_name_of_a_run_leads_to_no_other_directory(tmp_path):
    config = TrainConfig(model=tmp_path, tasks=[SourceConfig(path=tmp_path)], steps=1)
    with pytest.raises(BadInputError, match=r"run '\.\./x': expected 1 to 128 characters"):
        msgspec.structs.replace(config, run="../x")


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(BadInputError, match=r"nowhere\.yaml: expected a readable file"):
        load_config(tmp_path / "nowhere.yaml")


def test_a_file_names_sources_by_path_or_task_set_relative_to_itself(tmp_path):
    path = tmp_path / "run.yaml"
    sources = "[{path: t.jsonl, weight: 2}, {taskset: repair, ramp: {name: group_ramp, groups: 3}}]"
    path.write_text(f"model: m\nsteps: 1\ntasks: {sources}\n")

    math, repair = load_config(path).tasks

    assert (math.path, math.label, math.weight) == (tmp_path / "t.jsonl", "t", 2)
    assert (repair.label, repair.ramp) == ("repair", GroupRamp(groups=3))


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("{path: t, taskset: repair}", "either path or taskset"),
        ("{weight: 1}", "either path or taskset"),
        ("{path: t, ramp: {name: group_ramp, groups: 3}}", "a file has no levels"),
        ("{path: t, weight: -1}", "weight"),
    ],
)
def test_a_source_that_cannot_be_is_refused(tmp_path, source, named):
    path = tmp_path / "run.yaml"
    path.write_text(f"model: m\nsteps: 1\ntasks: [{source}]\n")

    with pytest.raises(BadInputError, match=named):
        load_config(path)


@pytest.mark.parametrize(
    ("key", "option"),
    [
        ("actor_rollout_ref.actor.optim.lr", "optimizer.learning_rate"),
        ("actor_rollout_ref.actor.optim.override_optimizer_config.betas", "optimizer.betas"),
        ("actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype", "optimizer.precision"),
        ("actor_rollout_ref.actor.fsdp_config.max_token_len_per_gpu", "optimizer.microbatch_tokens"),
        ("actor_rollout_ref.actor.clip_ratio_high", "algorithm.clip_low and algorithm.clip_high"),
        ("actor_rollout_ref.actor.policy_loss.rollout_correction.rollout_is", "algorithm.correction"),
        ("actor_rollout_ref.model.path", "model"),
        ("trainer.default_local_dir", "AGENT_LAYER_DIR"),
    ],
)
def test_a_key_of_verl_that_is_ours_is_refused_with_our_option(tmp_path, key, option):
    path = tmp_path / "run.yaml"
    path.write_text(f"model: m\ntasks: t\nsteps: 1\nverl: {{{key}: 1}}\n")

    with pytest.raises(BadInputError, match=rf"run\.yaml: verl\.{key}: .* use .*{option}"):
        load_config(path)


def test_a_key_that_no_embedded_trainer_reads_is_refused(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("model: m\ntasks: t\nsteps: 1\nverl: {critic.optim.lr: 1}\n")

    with pytest.raises(BadInputError, match=r"verl\.critic\.optim\.lr: the embedded trainer reads no such key"):
        load_config(path)


def test_held_out_tasks_are_named_as_trained_ones_are(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("model: m\nsteps: 1\ntasks: t.jsonl\nevaluation: {tasks: held.jsonl, every_steps: 10}\n")

    evaluation = load_config(path).evaluation

    assert evaluation is not None
    assert [(one.path, one.label) for one in evaluation.tasks] == [(tmp_path / "held.jsonl", "held")]


@pytest.mark.parametrize(
    ("tasks", "named"),
    [
        ("t.jsonl", "expected held-out tasks, found t.jsonl, which is trained"),
        ("[{path: a/h.jsonl}, {path: b/h.jsonl}]", "different names"),
        ("[{path: h.jsonl, weight: 2}]", "weight"),
    ],
)
def test_held_out_tasks_that_cannot_be_are_refused(tmp_path, tasks, named):
    path = tmp_path / "run.yaml"
    path.write_text(f"model: m\nsteps: 1\ntasks: t.jsonl\nevaluation: {{tasks: {tasks}, every_steps: 10}}\n")

    with pytest.raises(BadInputError, match=named):
        load_config(path)
