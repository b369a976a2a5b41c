"""Memory of a run by arithmetic, against numbers worked out by hand, and what the arithmetic refuses."""

from pathlib import Path

import msgspec
import pytest

from agent_layer.errors import BadInputError
from trainer_adapter.algorithms import AlgorithmConfig
from trainer_adapter.config import ClusterConfig, LoraConfig, OptimizerConfig, Schedule, SourceConfig, TrainConfig
from trainer_adapter.start.memory import ModelShape, estimate_memory, read_shape

# two layers of width 8 with two heads of 4, one key head, MLPs of 16, 10 words
SMALL = {
    "vocab_size": 10,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
LAYER = 8 * 8 + 8 * 4 + 8 * 4 + 8 * 8 + 3 * 8 * 16 + 2 * 8
"""Queries, keys, values, output; gate, up, down; two norms."""


def configure(**options):
    optimizer = OptimizerConfig(**{"microbatch_tokens": 100} | options.pop("optimizer", {}))
    return TrainConfig(model=Path("m"), tasks=[SourceConfig(path=Path("t"))], steps=1, optimizer=optimizer, **options)


def sizes(config, **shape):
    found = estimate_memory(config, msgspec.convert(SMALL | shape, ModelShape))
    return {part.name: part.num_bytes for part in [*found.states, *found.update, *found.publication]}, found


@pytest.mark.parametrize(
    ("shape", "number"),
    [
        ({}, 2 * 80 + 2 * LAYER + 8),
        ({"tie_word_embeddings": True}, 80 + 2 * LAYER + 8),
        ({"model_type": "qwen2"}, 2 * 80 + 2 * (LAYER + 8 + 4 + 4) + 8),
        ({"model_type": "qwen3"}, 2 * 80 + 2 * (LAYER + 4 + 4) + 8),
        ({"attention_bias": True}, 2 * 80 + 2 * (LAYER + 8 + 4 + 4 + 8) + 8),
        ({"num_key_value_heads": None}, 2 * 80 + 2 * (LAYER + 2 * 8 * 4) + 8),
        ({"head_dim": 8}, 2 * 80 + 2 * (LAYER + 2 * 8 * 8 + 2 * 8 * 4) + 8),
    ],
)
def test_parameters_are_those_of_the_matrices_norms_and_biases(shape, number):
    assert msgspec.convert(SMALL | shape, ModelShape).num_parameters == number


def test_every_part_is_its_arithmetic():
    found, estimate = sizes(configure())
    total = 2 * 80 + 2 * LAYER + 8

    assert found == {
        "weights": 4 * total,
        "gradients": 4 * total,
        "Adam": 8 * total,
        "weights in use": 4 * (160 + 2 * LAYER),
        "activations": 100 * 2 * 4 * (6 * 8 + 2 * 8 + 2 * 4 + 4 * 16),
        "last layers": 100 * 4 * (3 * 8 + 2 * 16),
        "logits": 100 * 10 * 4 * 3 + 10 * 8 * (4 + 4),
        "written weights": 4 * total,
    }
    assert estimate.peak_bytes == sum(found.values()) - found["written weights"], "not at the same time"


@pytest.mark.parametrize(
    ("row", "context", "parts", "tokens"),
    [
        (None, None, 1, 100),
        (90, None, 1, 100),
        (401, None, 1, 401),
        (401, None, 4, 101),
        (401, 300, 2, 150),
        (80, 900, 1, 100),
    ],
)
def test_a_long_row_counts_by_its_part_in_each_process(row, context, parts, tokens):
    cluster = None if context is None else ClusterConfig(max_model_len=context)
    found, _ = sizes(configure(optimizer={"max_row_tokens": row, "sequence_parallel": parts}, cluster=cluster))

    assert found["last layers"] == tokens * 4 * (3 * 8 + 2 * 16)


def test_a_penalty_towards_the_first_weights_holds_them():
    found, _ = sizes(configure(algorithm=AlgorithmConfig(kl=0.1)))

    assert found["reference"] == found["weights"]


def test_an_entropy_bonus_holds_more_copies_of_the_logits():
    plain, _ = sizes(configure())
    bonus, _ = sizes(configure(algorithm=AlgorithmConfig(entropy=Schedule(start=0.1))))

    assert bonus["logits"] - plain["logits"] == 100 * 10 * 4 * 3


def test_logits_do_not_grow_with_micro_batches_and_are_float32_whatever_the_precision():
    found, _ = sizes(configure(optimizer={"microbatch_tokens": 65_536}))
    half, _ = sizes(configure(optimizer={"microbatch_tokens": 65_536, "precision": "bfloat16"}))

    assert found["logits"] == 1024 * 10 * 4 * 3 + 10 * 8 * (4 + 4)
    assert half["logits"] == 1024 * 10 * (4 * 3 + 2) + 10 * 8 * (4 + 2)


def test_bfloat16_halves_what_passes_through_the_model_but_not_the_states():
    full, _ = sizes(configure())
    half, _ = sizes(configure(optimizer={"precision": "bfloat16"}))

    assert [half[name] for name in ("weights", "gradients", "Adam")] == [
        full[name] for name in ("weights", "gradients", "Adam")
    ]
    assert half["activations"] * 2 == full["activations"] + 100 * 2 * 2 * (2 * 8 * 2), "norms stay in float32"


def test_checkpointing_keeps_the_input_of_each_layer_and_computes_one_again():
    found, _ = sizes(configure(optimizer={"gradient_checkpointing": True}))

    assert found["activations"] == 100 * 2 * 8 * 4
    assert found["computed again"] == 100 * 4 * (6 * 8 + 2 * 8 + 2 * 4 + 4 * 16)


def test_adapters_alone_have_gradients():
    found, _ = sizes(configure(lora=LoraConfig(rank=2, target_modules=["q_proj", "down_proj"])))
    adapter = 2 * 2 * ((8 + 8) + (16 + 8))

    assert (found["gradients"], found["Adam"]) == (4 * adapter, 8 * adapter)
    assert found["weights"] == 4 * (2 * 80 + 2 * LAYER + 8 + adapter)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (SMALL | {"num_experts": 8, "model_type": "deepseek_v3"}, "experts.*deepseek_v3"),
        ({"hidden_size": 8}, "vocab_size"),
    ],
)
def test_a_model_that_the_arithmetic_does_not_cover_is_refused(tmp_path, written, found):
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(written))

    with pytest.raises(BadInputError, match=found):
        read_shape(tmp_path)


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6}
MODELS = {
    "Qwen2": {},
    "Qwen3": {"head_dim": 4},
    "Llama": {"attention_bias": True},
    "Qwen3Moe": EXPERTS | {"head_dim": 4, "decoder_sparse_step": 2, "num_hidden_layers": 5, "mlp_only_layers": [3]},
    "Qwen2Moe": EXPERTS | {"shared_expert_intermediate_size": 10},
    "Mixtral": {"num_local_experts": 3},
}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_those_of_the_model_that_transformers_builds(tmp_path, name):
    import torch  # noqa: PLC0415  # it takes seconds
    import transformers  # noqa: PLC0415

    config = getattr(transformers, f"{name}Config")(**SMALL | {"tie_word_embeddings": False} | MODELS[name])
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = getattr(transformers, f"{name}ForCausalLM")(config)

    shape = read_shape(tmp_path)

    assert shape.num_parameters == sum(one.numel() for one in model.parameters())
    assert shape.largest_tensor == max(one.numel() for one in model.parameters() if one.dim() != 2 or len(one) == 10)


def test_experts_that_a_token_does_not_reach_store_nothing_of_it():
    dense, _ = sizes(configure(), intermediate_size=12)
    sparse, found = sizes(configure(), model_type="qwen3_moe", **EXPERTS | {"num_experts": 64})

    assert sparse["activations"] == dense["activations"], "two experts of 6 are as wide as an MLP of 12"
    assert sparse["weights"] > 4 * dense["weights"]
    assert found.shape.num_sparse == 2
