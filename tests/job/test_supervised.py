"""Warm starts: losses and gradients equal to closed forms, whatever the micro-batches; resumed, refused, learned.

torch and veRL take seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import random
import sys

import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest

from agent_layer.schema.record import TokenIds
from trainer_adapter.algorithms import AlgorithmConfig, resolve_algorithm
from trainer_adapter.config import LoraConfig, OptimizerConfig, RetentionConfig, Schedule, SourceConfig, TrainConfig
from trainer_adapter.lineage import START_PLAN, START_STEPS, read_parent, read_start
from trainer_adapter.supervised.config import SupervisedConfig

from ..builders import attempt, closed_group
from ..stored import write_segment
from ..waiting import run
from .hand_case import GROUPS, make_batch

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other

BETA = 0.3
PAIRS = [
    # (prompt, response, mask) of the chosen and the rejected: a tool between turns, lengths that differ
    [([3, 12], [13, 14, 4, 15], [1, 1, 0, 1]), ([3, 12], [16], [1])],
    [([3], [17, 5, 18], [1, 0, 1]), ([3], [19, 20, 4, 4, 13], [1, 1, 0, 0, 1])],
    [([7, 8, 9], [14], [1]), ([7, 8, 9], [15, 16], [1, 1])],
]


def make_rows(pairs=PAIRS):
    from trainer_adapter.supervised.read import SupervisedRow

    names = ("prompt_ids", "response_ids", "loss_mask")
    return [SupervisedRow(**dict(zip(names, map(TokenIds, row), strict=True))) for pair in pairs for row in pair]


def configure(model, tmp_path, method="sft", rate=1e-3, **options):
    own = {"optimizer": OptimizerConfig(learning_rate=Schedule(start=rate), weight_decay=0.0)} | options
    return SupervisedConfig(model=model, dataset=tmp_path / "d", out=tmp_path / method, **own)


def start(config):
    from trainer_adapter.verl.supervised import SupervisedTrainer

    return SupervisedTrainer(config.as_training(10))


def read_model(model):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model).eval()


def logprobs(reader, row):
    """[num_trained_tokens] of a row, by the plain model."""
    import torch

    prompt, response, mask = (list(part) for part in (row.prompt_ids, row.response_ids, row.loss_mask))
    logits = reader(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None])[:, 0][torch.tensor(mask).bool()]


def norm(loss, reader):
    import torch

    gradients = torch.autograd.grad(loss, [one for one in reader.parameters() if one.requires_grad])
    return float(torch.stack([one.norm() for one in gradients]).norm())


@pytest.mark.parametrize("microbatch_tokens", [1, 16384])
def test_the_loss_of_imitation_is_the_mean_over_trained_tokens(model, tmp_path, microbatch_tokens):
    import torch

    rows, reader = make_rows(), read_model(model)
    optimizer = OptimizerConfig(learning_rate=Schedule(start=1e-3), microbatch_tokens=microbatch_tokens)

    found = start(configure(model, tmp_path, optimizer=optimizer)).imitate(rows, 1e-3)

    expected = -torch.cat([logprobs(reader, row) for row in rows]).mean()
    assert found["loss"] == pytest.approx(float(expected), rel=1e-6)
    assert found["grad_norm"] == pytest.approx(norm(expected, reader), rel=1e-5)
    assert found["tokens"] == sum(sum(row.loss_mask) for row in rows)


@pytest.mark.parametrize("microbatch_tokens", [1, 16384])
def test_the_loss_of_preference_is_that_of_its_paper(model, tmp_path, microbatch_tokens):
    import torch
    from torch.nn.functional import logsigmoid

    rows, reader = make_rows(), read_model(model)
    dice = torch.Generator().manual_seed(3)
    optimizer = OptimizerConfig(learning_rate=Schedule(start=1e-3), microbatch_tokens=microbatch_tokens)
    trainer = start(configure(model, tmp_path, optimizer=optimizer))
    reference = trainer.sum_logprobs(rows) + torch.rand(len(rows), generator=dice)

    found = trainer.prefer(rows, reference, BETA, 1e-3)

    gain = torch.stack([logprobs(reader, row).sum() for row in rows]) - reference
    h = BETA * (gain[::2] - gain[1::2])
    expected = -logsigmoid(h).mean()
    assert found["loss"] == pytest.approx(float(expected), rel=1e-6)
    assert found["grad_norm"] == pytest.approx(norm(expected, reader), rel=1e-5)
    assert found["margin"] == pytest.approx(float(h.mean()), abs=1e-6)
    assert found["accuracy"] == pytest.approx(float((h > 0).float().mean()))


def test_before_the_first_step_no_side_is_preferred(model, tmp_path):
    from math import log

    rows = make_rows()
    trainer = start(configure(model, tmp_path))
    reference = trainer.sum_logprobs(rows)

    first = trainer.prefer(rows, reference, BETA, 1e-3)
    later = [trainer.prefer(rows, reference, BETA, 1e-3) for _ in range(4)][-1]

    assert first["loss"] == pytest.approx(log(2), rel=1e-5)
    assert (later["loss"] < 0.6, later["accuracy"]) == (True, 1.0)


def write_pairs(directory, pairs=PAIRS):
    (directory / "pairs").mkdir(parents=True)
    (directory / "sft").mkdir()
    columns = [
        {"prompt_ids": good[0], "chosen_ids": good[1], "chosen_mask": good[2]}
        | {"rejected_ids": bad[1], "rejected_mask": bad[2]}
        for good, bad in pairs
    ]
    pyarrow.parquet.write_table(pa.Table.from_pylist(columns), directory / "pairs" / "train-00000.parquet")
    lines = [
        {"input_ids": [*good[0], *good[1]], "assistant_masks": [*[0] * len(good[0]), *good[2]]} for good, _ in pairs
    ]
    (directory / "sft" / "train-00000.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))


def read_weights(directory):
    from safetensors.torch import load_file

    return {
        name: tensor for file in sorted(directory.glob("*.safetensors")) for name, tensor in load_file(file).items()
    }


@pytest.mark.parametrize(("method", "lora"), [("sft", None), ("dpo", None), ("dpo", LoraConfig(rank=4))])
def test_stopped_and_started_again_it_ends_with_the_same_weights(model, tmp_path, settings, method, lora):
    import torch

    from trainer_adapter.supervised.train import train_supervised

    write_pairs(tmp_path / "d")
    config = configure(model, tmp_path, epochs=2, batch_size=2, run="whole", lora=lora)
    assert train_supervised(config, settings, method)
    whole, steps = read_weights(config.out), []
    again = msgspec.structs.replace(config, run="halted", out=tmp_path / "again")

    assert not train_supervised(again, settings, method, stop=lambda: len(steps) == 3, report=steps.append)
    assert not again.out.exists()
    assert train_supervised(again, settings, method, report=steps.append)

    assert [one.step for one in steps] == [1, 2, 3, 4]
    found = read_weights(again.out)
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[name], whole[name]) for name in whole)
    assert (settings.dir / "runs" / "halted" / "supervised.jsonl").read_bytes().count(b"\n") == 4


@pytest.mark.long
@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_two_processes_train_as_one(model, tmp_path, settings, method):
    """An odd number of rows, so that one of the processes has an idle one."""
    from trainer_adapter.supervised.train import train_supervised

    write_pairs(tmp_path / "d")
    options = {"epochs": 2, "batch_size": 3, "keep": RetentionConfig(checkpoint_steps=1)}
    config = configure(model, tmp_path, method, rate=1e-4, run="one", **options)
    assert train_supervised(config, settings, method)
    rate = "learning_rate: {start: 0.0001}, weight_decay: 0.0"
    (tmp_path / "two.yaml").write_text(
        f"{{model: {model}, dataset: d, out: two, run: two, epochs: 2, batch_size: 3, optimizer: {{{rate}}},"
        " keep: {checkpoint_steps: 1}}"
    )
    program = [sys.executable, "-m", "agent_layer.cli", "--dir", settings.dir, "train", "--method", method]

    done = run([*program, "--processes", "2", tmp_path / "two.yaml"], 300)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step 1 of 2") == done.stdout.count("the model is in") == 1
    one, two = (
        [msgspec.json.decode(line) for line in (settings.dir / "runs" / name / "supervised.jsonl").open("rb")]
        for name in ("one", "two")
    )
    for mine, other in zip(one, two, strict=True):
        assert other["metrics"] == pytest.approx(mine["metrics"], rel=1e-6, abs=1e-7)
        assert other | {"metrics": None} == mine | {"metrics": None}
    found, expected = read_weights(tmp_path / "two"), read_weights(config.out)
    assert found.keys() == expected.keys()
    assert max(float((found[name] - expected[name]).abs().max()) for name in expected) <= 1e-6


def test_a_step_that_a_kill_undid_is_reported_once(model, tmp_path, settings):
    from trainer_adapter.supervised.train import train_supervised

    write_pairs(tmp_path / "d")
    config = configure(model, tmp_path, epochs=2, batch_size=2, run="k", keep=RetentionConfig(checkpoint_steps=2))

    def end_at_the_third(step):
        if step.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_supervised(config, settings, "sft", report=end_at_the_third)
    assert train_supervised(config, settings, "sft")

    lines = (settings.dir / "runs" / "k" / "supervised.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(line)["step"] for line in lines] == [1, 2, 3, 4]


def test_a_warm_start_of_an_earlier_release_goes_on_and_what_it_learned_first_is_not_known(model, tmp_path, settings):
    from trainer_adapter.supervised.train import train_supervised

    write_pairs(tmp_path / "d")
    config = configure(model, tmp_path, epochs=2, batch_size=2, run="old")
    steps, directory = [], settings.dir / "runs" / "old"
    assert not train_supervised(config, settings, "sft", stop=lambda: len(steps) == 3, report=steps.append)
    for name, key, end in ((START_PLAN, "parent", b""), (START_STEPS, "rows", b"\n")):
        lines = [msgspec.json.decode(line) for line in (directory / name).read_bytes().splitlines()]
        assert all(line.pop(key, end) != end for line in lines)
        (directory / name).write_bytes(b"".join(msgspec.json.encode(line) + end for line in lines))

    assert train_supervised(config, settings, "sft")

    assert [one.rows is None for one in read_start(directory, None)] == [False, True, True, True]


@pytest.mark.parametrize(("method", "rate"), [("sft", 1e-5), ("dpo", 1e-6)])
def test_an_option_of_the_optimizer_leaves_the_learning_rate_of_the_method(tmp_path, method, rate):
    from trainer_adapter.supervised.config import load_supervised

    path = tmp_path / "warm.yaml"
    for options, expected in [
        ("", rate),
        ("optimizer:", rate),
        ("optimizer: {max_row_tokens: 9}", rate),
        ("optimizer: {learning_rate: {start: 0.5}}", 0.5),
    ]:
        path.write_text(f"model: m\ndataset: d\nout: o\n{options}\n")
        assert load_supervised(path, method).optimizer.learning_rate.start == expected


def test_a_policy_trains_from_the_model_that_it_wrote(model, tmp_path, settings):
    from trainer_adapter.supervised.train import train_supervised
    from trainer_adapter.verl.trainer import EmbeddedTrainer

    write_pairs(tmp_path / "d")
    config = configure(model, tmp_path, epochs=8)
    train_supervised(config, settings, "sft")

    def play(start_model):
        reader = read_model(start_model)
        return sum(float(logprobs(reader, row).sum()) for row in make_rows()[::2])

    trainer = EmbeddedTrainer(
        TrainConfig(
            model=config.out,
            tasks=[SourceConfig(path=model / "none.jsonl")],
            steps=1,
            optimizer=OptimizerConfig(learning_rate=Schedule(start=1e-4)),
        )
    )
    update = trainer.update(make_batch(), 0, 1)

    assert update.is_changed
    assert play(config.out) > play(model) + 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"dataset": "none"}, "expected rows in sft/, found none"),
        ({"model": "none"}, "expected a readable config.json"),
        ({"out": "d"}, "expected a new or empty directory"),
        ({"run": "../x"}, "run '../x': expected 1 to 128 characters"),
        ({"epochs": 3}, "expected the configuration and dataset of its checkpoint"),
        ({"optimizer": OptimizerConfig(max_row_tokens=2)}, "found all 3 above optimizer.max_row_tokens: 2"),
    ],
)
def test_what_cannot_be_trained_is_named_before_it_begins(model, tmp_path, settings, change, sentence):
    from agent_layer.errors import BadInputError
    from trainer_adapter.loop.checkpoint import CheckpointDirectory, Cursor
    from trainer_adapter.supervised.train import train_supervised

    write_pairs(tmp_path / "d")
    (tmp_path / "d" / "README.md").write_text("")
    config = configure(model, tmp_path, run="w")
    if "epochs" in change:
        CheckpointDirectory(settings, "w").save(Cursor(step=1), lambda _: None)
    change = {name: tmp_path / one if name in ("dataset", "model", "out") else one for name, one in change.items()}

    with pytest.raises(BadInputError, match=sentence):
        train_supervised(msgspec.structs.replace(config, **change), settings, "sft")


def test_a_token_that_the_model_does_not_have_is_named(tmp_path):
    from agent_layer.errors import BadInputError
    from trainer_adapter.data import ModelBounds
    from trainer_adapter.supervised.read import read_examples

    write_pairs(tmp_path / "d")

    with pytest.raises(BadInputError, match=r"row 1 of pairs: expected token ids below the model's 20, found 20"):
        read_examples(tmp_path / "d", "dpo", ModelBounds(vocab_size=20), None)
    with pytest.raises(BadInputError, match=r"model's 5 positions, found 6; set optimizer\.max_row_tokens: 5"):
        read_examples(tmp_path / "d", "dpo", ModelBounds(max_positions=5), None)
    examples, num_long = read_examples(tmp_path / "d", "dpo", ModelBounds(max_positions=5), 5)
    assert (len(examples), num_long) == (1, 2)


LONG = 400_000  # a line of 1.6 MB


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ({"input_ids": [3] * LONG, "assistant_masks": [0, *[1] * (LONG - 1)]}, LONG),
        ({"input_ids": [3, 4], "assistant_masks": [0, 1], "reward": None}, 2),
        ({"input_ids": None, "assistant_masks": None}, "Expected `array`, got `null`"),
        ({"input_ids": [3, -4], "assistant_masks": [0, 1]}, "Expected `int` >= 0"),
        ({"input_ids": [3, 2**40], "assistant_masks": [0, 1]}, "Expected `int` <= 2147483647"),
        ({"input_ids": [3, 4], "assistant_masks": [0, 2]}, "Invalid enum value 2"),
        ({"input_ids": ["3", "4"], "assistant_masks": [0, 1]}, "Expected `int`, got `str`"),
        ({"input_ids": [3, 4]}, "missing required field `assistant_masks`"),
        ({"input_ids": [3, 4], "assistant_masks": [0]}, "expected a prompt, an answer with a trained token"),
        ({"input_ids": [3, 4], "assistant_masks": [1, 1]}, "expected a prompt, an answer with a trained token"),
    ],
)
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_row_is_read_or_named_whatever_stands_in_it(tmp_path, form, line, found):
    from agent_layer.errors import BadInputError
    from trainer_adapter.data import NO_BOUNDS
    from trainer_adapter.supervised.read import read_examples

    path = tmp_path / "sft" / f"train-00000.{form}"
    path.parent.mkdir()
    if form == "jsonl":
        path.write_bytes(msgspec.json.encode(line) + b"\n")
    else:
        pyarrow.parquet.write_table(pa.Table.from_pylist([line]), path)

    if isinstance(found, int):
        ((row,),), _ = read_examples(tmp_path, "sft", NO_BOUNDS, None)
        assert row.num_tokens == found
    else:
        with pytest.raises(BadInputError) as error:
            read_examples(tmp_path, "sft", NO_BOUNDS, None)
        assert found in str(error.value)


def test_the_command_trains_from_an_exported_dataset(model, tmp_path, settings, agent_layer):
    from agent_layer.store import open_store

    store = open_store(settings)
    for group_id, members in GROUPS.items():
        names = [f"{group_id}.{number}-0" for number in range(len(members))]
        for name, (score, calls) in zip(names, members, strict=True):
            write_segment(store, *attempt(name, *calls(name), score=score, group_id=group_id))
        write_segment(store, closed_group(group_id, *names))
    assert agent_layer("store", "export", "hf", tmp_path / "d", "--mixed-versions")[0] == 0
    (tmp_path / "warm.yaml").write_text(f"model: {model}\ndataset: d\nout: warm\nbatch_size: 4\n")

    for method in ("sft", "dpo"):
        status, out, err = agent_layer("train", "--method", method, tmp_path / "warm.yaml")

        assert (status, "the model is in" in out) == (0, True), err
        assert "step 1 of" in out
        assert (tmp_path / "warm" / "config.json").is_file()
        origin = read_parent(tmp_path / "warm")
        assert origin is not None
        steps = read_start(settings.dir / "runs" / origin.run, origin.step)
        assert (origin.run, len(steps)) == (f"{settings.run}.{method}", origin.step)
        (folder,) = (tmp_path / "d").glob("sft" if method == "sft" else "pairs")
        names = ["trajectory_id"] if method == "sft" else ["chosen_trajectory_id", "rejected_trajectory_id"]
        table = [row for file in folder.iterdir() for row in pyarrow.parquet.read_table(file).to_pylist()]
        learned = [(row.trajectory_id, row.group_id) for step in steps for row in step.rows]
        assert sorted(learned) == sorted((row[name], row["group_id"]) for row in table for name in names)
        (tmp_path / "warm").rename(tmp_path / f"warm-{method}")

    for option in ("--dry-run", "--unchecked", "--tool-parser=hermes", "--on=ray"):
        status, _, err = agent_layer("train", "--method", "sft", tmp_path / "warm.yaml", option)
        assert (status, f"found {option.split('=')[0]};" in err) == (2, True), err


def test_exported_batches_are_the_tensors_of_an_update(tmp_path, settings, agent_layer):
    import torch

    from agent_layer.store import open_store
    from trainer_adapter.verl.tensors import pack_batch

    store = open_store(settings)
    for place, (group_id, members) in enumerate(GROUPS.items()):
        names = [f"{group_id}.{number}-0" for number in range(len(members))]
        for name, (score, calls) in zip(names, members, strict=True):
            write_segment(store, *attempt(name, *calls(name), score=score, group_id=group_id))
        write_segment(store, closed_group(group_id, *names, closed_at=9.0 + place))

    agent_layer("store", "export", "verl", tmp_path / "b.parquet", "--groups", "9", "--algorithm", "dapo")

    table = pyarrow.parquet.read_table(tmp_path / "b.parquet").to_pylist()
    data = pack_batch(make_batch(), resolve_algorithm(AlgorithmConfig(name="dapo")))
    assert len(table) == len(data)
    for name in ("response_mask", "rollout_log_probs", "advantages", "responses"):
        for row, expected in zip(table, data[name], strict=True):
            size = len(row["responses"])
            assert torch.equal(torch.tensor(row[name], dtype=expected.dtype), expected[:size]), name
            assert not expected[size:].any()


SEEDS = 10


@pytest.mark.long
@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_every_seed_learns(model, tmp_path, settings, method):
    """Even answers are good, odd ones bad; a learned model prefers the good ones of prompts that it never saw."""
    from trainer_adapter.supervised.train import train_supervised

    wins = []
    for seed in range(SEEDS):
        dice = random.Random(seed)
        prompts = [[dice.randrange(3, 21) for _ in range(4)] for _ in range(96)]
        pairs = [[(one, [12, 14], [1, 1]), (one, [13, 15], [1, 1])] for one in prompts]
        directory = tmp_path / str(seed)
        write_pairs(directory / "d", pairs[:64])
        config = configure(model, directory, method, epochs=4, batch_size=16, seed=seed, run=f"{method}{seed}")

        assert train_supervised(config, settings, method)

        before, after = read_model(model), read_model(config.out)
        gains = [
            float(logprobs(after, good).sum() - logprobs(after, bad).sum())
            - float(logprobs(before, good).sum() - logprobs(before, bad).sum())
            for good, bad in (make_rows([pair]) for pair in pairs[64:])
        ]
        wins.append(sum(gain > 1 for gain in gains) / len(gains))
    assert min(wins) >= 0.9, wins
