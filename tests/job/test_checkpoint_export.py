"""Checkpoints as Hugging Face directories: the same weights to the last bit, whole or absent, from any world size.

torch and veRL take ten seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import json
from functools import partial

import pytest

from agent_layer.errors import NotFoundError
from agent_layer.recorder import open_recorder
from agent_layer.schema.training import CheckpointRef
from trainer_adapter.config import SourceConfig, TrainConfig
from trainer_adapter.loop.checkpoint import CheckpointDirectory, Cursor

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other

PROMPT = [3, 12, 14, 4]


@pytest.fixture
def checkpoints(settings):
    return CheckpointDirectory(settings, "r")


@pytest.fixture
def trainer(model):
    """A trainer whose weights are not those of the model's directory any more."""
    import torch

    from trainer_adapter.verl import EmbeddedTrainer

    trainer = EmbeddedTrainer(TrainConfig(model=model, tasks=[SourceConfig(path=model / "none.jsonl")], steps=1))
    with torch.no_grad():
        for number, parameter in enumerate(
            trainer._worker.engine.module.parameters()
        ):  # moves weights without an update
            parameter.mul_(1 + 0.01 * number)
    return trainer


def compute_logits(model):
    import torch
    from transformers import AutoModelForCausalLM

    reader = model if isinstance(model, torch.nn.Module) else AutoModelForCausalLM.from_pretrained(model, dtype="auto")
    with torch.no_grad():
        return reader.eval()(torch.tensor([PROMPT])).logits


def trained_logits(model, trainer):
    from transformers import AutoModelForCausalLM

    reader = AutoModelForCausalLM.from_pretrained(model)
    reader.load_state_dict(dict(trainer.weights()))
    return compute_logits(reader)


def test_an_exported_model_computes_the_trained_logits_to_the_last_bit(
    checkpoints, model, trainer, agent_layer, tmp_path
):
    import torch
    from transformers import AutoTokenizer

    checkpoints.save(Cursor(step=7), trainer.save)

    status, out, err = agent_layer("checkpoint", "export", "7", tmp_path / "hf", "--run", "r")

    assert status == 0, err
    assert f"step 7 of run r is in {tmp_path / 'hf'}" in out
    exported = compute_logits(tmp_path / "hf")
    assert torch.equal(exported, trained_logits(model, trainer))
    assert not torch.equal(exported, compute_logits(model))
    text = "guess 5 higher"
    assert AutoTokenizer.from_pretrained(tmp_path / "hf")(text) == AutoTokenizer.from_pretrained(model)(text)
    assert [path.name for path in tmp_path.iterdir() if "hf" in path.name] == ["hf"]


def test_a_run_that_begins_with_an_exported_or_published_model_knows_its_parent(
    checkpoints, trainer, agent_layer, settings, redis, tmp_path
):
    from trainer_adapter.verl.weights import WeightPublisher  # torch takes seconds

    checkpoints.save(Cursor(step=7), trainer.save)
    assert agent_layer("checkpoint", "export", "7", tmp_path / "hf", "--run", "r")[0] == 0
    recorder = open_recorder(settings)
    published = WeightPublisher(settings, "r", redis, recorder)
    published.register_base(tmp_path / "hf")
    number = published.publish(trainer.published_weights(), tmp_path / "hf", training_step=9)

    for run, model in (("of-export", tmp_path / "hf"), ("of-version", published.directory / f"{number:06d}")):
        publisher = WeightPublisher(settings, run, redis, recorder)
        publisher.register_base(model)
        assert publisher.find(0).parent == CheckpointRef(run="r", step=7 if run == "of-export" else 9)
    recorder.close()


def test_an_export_in_bfloat16_is_half_the_size(checkpoints, trainer, agent_layer, tmp_path):
    import torch
    from safetensors.torch import load_file

    checkpoints.save(Cursor(step=7), trainer.save)

    status, _, err = agent_layer("checkpoint", "export", "7", tmp_path / "hf", "--run", "r", "--precision", "bfloat16")

    assert status == 0, err
    exported = load_file(tmp_path / "hf" / "model.safetensors")
    assert all(torch.equal(exported[name], whole.bfloat16()) for name, whole in trainer.weights())
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["dtype"] == "bfloat16"


def test_an_export_that_dies_leaves_nothing_and_deletes_only_its_own(checkpoints, trainer, tmp_path):
    from trainer_adapter.verl import export_checkpoint

    def die(num_done, num_all):
        if num_done == num_all // 2:
            raise KeyboardInterrupt

    checkpoints.save(Cursor(step=7), trainer.save)
    others = {tmp_path / name / "kept" for name in ("hf.pending", "hf.tmp", ".hf", ".hf.pending")}
    for path in others:
        path.parent.mkdir()
        path.write_text("of a person")
    before = {*tmp_path.iterdir()}
    export = partial(export_checkpoint, checkpoints.newest()[0], tmp_path / "hf")

    with pytest.raises(KeyboardInterrupt):
        export(progress=die)
    assert {*tmp_path.iterdir()} == before

    export()
    assert (tmp_path / "hf" / "config.json").is_file()
    assert {*tmp_path.iterdir()} == before | {tmp_path / "hf"}
    assert {path.read_text() for path in others} == {"of a person"}


def test_large_models_are_written_in_parts(checkpoints, model, trainer, tmp_path):
    import torch

    from trainer_adapter.verl import export_checkpoint

    checkpoints.save(Cursor(step=7), trainer.save)

    export_checkpoint(checkpoints.newest()[0], tmp_path / "hf", part_bytes=400_000)

    assert len(list((tmp_path / "hf").glob("model-*-of-*.safetensors"))) > 1
    assert torch.equal(compute_logits(tmp_path / "hf"), trained_logits(model, trainer))


def test_a_checkpoint_that_is_deleted_meanwhile_says_how_to_keep_it(tmp_path):
    from trainer_adapter.verl import export_checkpoint

    with pytest.raises(NotFoundError, match="num_checkpoints"):
        export_checkpoint(tmp_path / "000004", tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
