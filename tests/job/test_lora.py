"""LoRA: only adapters learn, and what leaves the trainer is the model that they make.

torch and veRL take ten seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import pytest

from agent_layer.errors import BadInputError
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.training import TrainingSample
from trainer_adapter.algorithms import AlgorithmConfig
from trainer_adapter.config import LoraConfig, OptimizerConfig, Schedule, TrainConfig
from trainer_adapter.data.advantages import TrainingBatch
from trainer_adapter.loop.checkpoint import CheckpointDirectory, Cursor

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other

PROMPT = [3, 12]
ANSWERS = [14, 15], [16, 17]
SAMPLED = -3.0
"""Log-probability that the engine reports for each token."""


def configure(model, lora=LoraConfig(rank=4, alpha=8), **algorithm):  # noqa: B008  # frozen
    return TrainConfig(
        model=model,
        tasks=[],
        steps=4,
        algorithm=AlgorithmConfig(**algorithm),
        optimizer=OptimizerConfig(learning_rate=Schedule(start=1e-2), minibatches=2),
        lora=lora,
    )


def start(config):
    from trainer_adapter.verl import EmbeddedTrainer

    return EmbeddedTrainer(config)


@pytest.fixture(scope="module")
def batch():
    """Two groups of a good and a bad rollout."""
    ids = ["0", "1", "2", "3"]
    samples = [
        TrainingSample(
            sample_id=name,
            trajectory_id=name,
            run="r",
            task_id="q",
            prompt_ids=TokenIds(PROMPT),
            response_ids=TokenIds(ANSWERS[int(name) % 2]),
            loss_mask=TokenIds([1, 1]),
            logprobs=Logprobs([SAMPLED, SAMPLED]),
            versions=TokenIds([0, 0]),
            temperature=1.0,
        )
        for name in ids
    ]
    return TrainingBatch(
        group_ids=["g", "g", "h", "h"],
        trajectory_ids=ids,
        rewards=[1.0, 0.0, 1.0, 0.0],
        reward_ids=[[]] * 4,
        samples=samples,
        rollout_of=[0, 1, 2, 3],
    )


def train_once(model, batch):
    """Return a trainer after one update."""
    trainer = start(configure(model))
    trainer.update(batch, 0, version=0)
    return trainer


@pytest.fixture(scope="module")
def trained(model, batch):
    """A trainer after one update, only to be read."""
    return train_once(model, batch)


@pytest.fixture(scope="module")
def checkpoint(trained, tmp_path_factory):
    """Its checkpoint."""
    directory = tmp_path_factory.mktemp("lora") / "checkpoint"
    trained.save(directory)
    return directory


def read_state(trainer):
    module = trainer._worker.engine.module
    return {name: tensor.full_tensor().clone() for name, tensor in module.state_dict().items()}


def compute_logits(reader):
    import torch

    with torch.no_grad():
        return reader.eval()(torch.tensor([[*PROMPT, *ANSWERS[0]]])).logits


def read_model(directory):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(directory)


def read_adapted(model, directory):
    from peft import PeftModel

    return PeftModel.from_pretrained(read_model(model), directory)


def largest(one, other):
    return float((one - other).abs().max())


def test_an_update_changes_adapters_and_leaves_all_other_weights_as_they_were(model, batch):
    import torch

    trainer = start(configure(model))
    before, first = read_state(trainer), read_model(model).state_dict()

    report = trainer.update(batch, 0, version=0)

    after = read_state(trainer)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert report.metrics["grad_norm"] > 0
    assert changed == {name for name in before if ".lora_" in name}
    frozen = {name.removeprefix("base_model.model.").replace(".base_layer", ""): name for name in before}
    assert all(torch.equal(after[frozen[name]], tensor) for name, tensor in first.items())


def test_before_the_first_update_the_model_is_the_one_it_started_from(model):
    import torch

    trainer = start(configure(model))

    first = read_model(model).state_dict()
    assert all(torch.equal(tensor, first[name]) for name, tensor in trainer.weights())


def test_the_published_weights_compute_what_base_and_adapter_compute(model, trained, checkpoint, tmp_path):
    from trainer_adapter.verl import export_checkpoint

    export_checkpoint(checkpoint, tmp_path / "adapter", adapter_only=True)
    whole = read_model(model)
    whole.load_state_dict(dict(trained.weights()))

    adapted = compute_logits(read_adapted(model, tmp_path / "adapter"))
    assert largest(compute_logits(whole), adapted) < 1e-5
    assert largest(compute_logits(read_model(model)), adapted) > 1e-2


def test_the_trainer_measures_under_its_adapter_what_the_published_weights_sample(model, batch):
    import msgspec

    trained = train_once(model, batch)
    reader = read_model(model)
    reader.load_state_dict(dict(trained.weights()))
    logprobs = compute_logits(reader)[0].log_softmax(-1)
    spoken = [float(logprobs[1, ANSWERS[0][0]]), float(logprobs[2, ANSWERS[0][1]])]
    own = [msgspec.structs.replace(one, logprobs=Logprobs(spoken), versions=TokenIds([1, 1])) for one in batch.samples]

    report = trained.update(msgspec.structs.replace(batch, samples=[own[0], *batch.samples[1:]]), 1, version=1)

    assert report.logprob_gap.largest < 1e-5


def test_an_exported_model_computes_what_base_and_adapter_compute(settings, model, trained, agent_layer, tmp_path):
    checkpoints = CheckpointDirectory(settings, "r")
    checkpoints.save(Cursor(step=1), trained.save)

    for name, options in {"hf": [], "adapter": ["--adapter"]}.items():
        status, _, err = agent_layer("checkpoint", "export", "1", tmp_path / name, "--run", "r", *options)
        assert status == 0, err

    assert sorted(one.name for one in (tmp_path / "adapter").iterdir() if one.suffix != ".md") == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "parent-checkpoint.json",
    ]
    merged = compute_logits(read_model(tmp_path / "hf"))
    assert largest(merged, compute_logits(read_adapted(model, tmp_path / "adapter"))) < 1e-5
    assert largest(merged, compute_logits(read_model(model))) > 1e-2


def test_what_servers_on_ray_get_of_an_adapter_is_what_its_checkpoint_exports(trained, checkpoint, tmp_path):
    from safetensors.torch import load_file

    from trainer_adapter.cluster.weights.digest import hash_weights
    from trainer_adapter.cluster.worker import _export_adapter
    from trainer_adapter.verl import export_checkpoint

    export_checkpoint(checkpoint, tmp_path / "adapter", adapter_only=True)

    sent, adapter = _export_adapter(trained._worker.engine.get_per_tensor_param, base_sync_done=False)

    assert hash_weights(sent) == hash_weights(load_file(tmp_path / "adapter" / "adapter_model.safetensors").items())
    assert (adapter["r"], adapter["lora_alpha"]) == (4, 8)


def test_a_checkpoint_of_a_whole_model_has_no_adapter_to_export(model, tmp_path):
    from trainer_adapter.verl import export_checkpoint

    start(configure(model, lora=None)).save(tmp_path / "checkpoint")

    with pytest.raises(BadInputError, match="expected an adapter, found none"):
        export_checkpoint(tmp_path / "checkpoint", tmp_path / "adapter", adapter_only=True)


def test_a_trainer_that_was_stopped_goes_on_exactly(model, batch, tmp_path):
    import torch

    trained = train_once(model, batch)
    trained.save(tmp_path / "checkpoint")
    trained.update(batch, 1, version=1)

    resumed = start(configure(model))
    resumed.load(tmp_path / "checkpoint")
    resumed.update(batch, 1, version=1)

    straight, again = read_state(trained), read_state(resumed)
    assert all(torch.equal(straight[name], again[name]) for name in straight)


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=2, alpha=8), LoraConfig(rank=4, alpha=16)])
def test_a_checkpoint_with_another_adapter_is_refused(model, checkpoint, lora):
    with pytest.raises(BadInputError, match="found an adapter of rank 4 and alpha 8"):
        start(configure(model, lora=lora)).load(checkpoint)


def test_the_reference_of_kl_is_the_model_without_its_adapter(model, batch):
    trainer = start(configure(model, kl=0.1, kl_estimator="kl"))
    trainer.update(batch, 0, version=0)
    reference = start(configure(model, lora=None, kl=0.1))

    data = trainer._measure(_packed(trainer, batch))
    first = reference._measure(_packed(reference, batch))

    assert largest(data["ref_log_prob"], first["present"]) < 1e-6
    assert largest(data["present"], first["present"]) > 1e-3


def _packed(trainer, batch):
    from trainer_adapter.verl.tensors import pack_batch

    return pack_batch(batch, trainer._algorithm)


def test_chosen_layers_alone_have_adapters(model):
    trainer = start(configure(model, lora=LoraConfig(rank=2, target_modules=["q_proj", "v_proj"])))

    adapted = {name.split(".lora_")[0].rpartition(".")[2] for name in read_state(trainer) if ".lora_" in name}
    assert adapted == {"q_proj", "v_proj"}


def test_a_layer_that_the_model_does_not_have_is_refused(model):
    with pytest.raises(BadInputError, match=r"q_proj.*found kv_proj"):
        start(configure(model, lora=LoraConfig(rank=2, target_modules=["q_proj", "kv_proj"])))
