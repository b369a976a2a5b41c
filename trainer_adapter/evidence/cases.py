"""Models and rows that are measured, and what arithmetic expects of each: memory by the dry run, speed by FLOPs."""

from pathlib import Path
from typing import Final

import msgspec

from trainer_adapter.config import LoraConfig, OptimizerConfig, Schedule, SourceConfig, TrainConfig
from trainer_adapter.start import ModelShape, estimate_memory, sum_bytes

PLANNED_TFLOPS: Final = 790
"""What a product of large bfloat16 matrices reaches on an H100 or H200, dense."""
_SHORT_ROW: Final = 1_024
_LONG_ROWS: Final = (16_384, 32_768, 65_536)
_SHORT_ROWS_OF_A_GPU: Final = 16
_MICROBATCH_TOKENS: Final = 8_192
_BUCKET_FLOAT: Final = 4
"""Bytes of a parameter on its way to an engine."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One model and how it is trained."""

    name: str
    shape: ModelShape
    lora: LoraConfig | None = None
    row_lengths: tuple[int, ...] = (_SHORT_ROW, *_LONG_ROWS)
    """Tokens of each row, prompt included; an update is measured for each."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What arithmetic says of one update."""

    peak_bytes: int
    """Memory of each GPU: what the dry run of the same configuration prints as *always* and *update*."""
    states_bytes: int
    """Part of it that stays between updates."""
    flops_per_token: float
    """Without what gradient checkpointing computes again."""
    max_tokens_per_second: float
    """Ceiling of each GPU, at ``PLANNED_TFLOPS``."""


def _qwen(hidden: int, intermediate: int, layers: int, heads: int, keys: int, vocabulary: int = 151_936) -> ModelShape:
    return ModelShape(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=keys,
        tie_word_embeddings=hidden < 2_000,
        model_type="qwen2",
    )


CASES: Final = (
    Case(name="0.5B", shape=_qwen(896, 4_864, 24, 14, 2)),
    Case(name="1.5B", shape=_qwen(1_536, 8_960, 28, 12, 2)),
    Case(name="7B-LoRA", shape=_qwen(3_584, 18_944, 28, 28, 4, 152_064), lora=LoraConfig(rank=32, alpha=64)),
)
"""Shapes of Qwen2.5, with random weights."""
REHEARSED: Final = (
    Case(name="tiny", shape=_qwen(128, 256, 2, 4, 2, 512), row_lengths=(64, 256, 512)),
    Case(name="tiny-LoRA", shape=_qwen(128, 256, 2, 4, 2, 512), row_lengths=(64, 256), lora=LoraConfig(rank=4)),
)
"""The same on a CPU, where figures mean nothing."""


def make_config(case: Case, row_length: int, model: Path, precision: str = "bfloat16") -> TrainConfig:
    """Return the configuration of an update, for the trainer and for the arithmetic."""
    return TrainConfig(
        model=model,
        tasks=[SourceConfig(path=model / "none.jsonl")],
        steps=2,
        lora=case.lora,
        optimizer=msgspec.convert(
            {
                "learning_rate": Schedule(start=1e-6),
                "microbatch_tokens": _MICROBATCH_TOKENS,
                "max_row_tokens": row_length,
                "precision": precision,
                "gradient_checkpointing": True,
            },
            OptimizerConfig,
        ),
    )


def count_rows(case: Case, row_length: int, num_ranks: int) -> int:
    """Return the rows of one update: pairs whose second one has reward 1; more of them where rows are short."""
    return num_ranks * (_SHORT_ROWS_OF_A_GPU if row_length == min(case.row_lengths) else 2)


def expect(case: Case, row_length: int, num_ranks: int = 1) -> Expected:
    """Return what arithmetic says of one update.

    Args:
        case: the model.
        row_length: tokens of each row.
        num_ranks: GPUs that share the model.
    """
    memory = estimate_memory(make_config(case, row_length, Path(case.name)), case.shape, num_ranks=num_ranks)
    states, flops = sum_bytes(memory.states), _count_flops(case, row_length)
    return Expected(
        peak_bytes=states + sum_bytes(memory.update),
        states_bytes=states,
        flops_per_token=flops,
        max_tokens_per_second=PLANNED_TFLOPS * 1e12 / flops,
    )


def count_bucket_bytes(case: Case) -> int:
    """Return the bytes of whole weights on their way to an engine; veRL sends tied embeddings under both names."""
    shape = case.shape
    twice = shape.vocab_size * shape.hidden_size if shape.tie_word_embeddings else 0
    return (shape.num_parameters + twice) * _BUCKET_FLOAT


def _count_flops(case: Case, row_length: int) -> float:
    """Return FLOPs of an update for each token of rows of one length (Chowdhery et al. 2022, appendix B).

    A forward pass measures log-probabilities, another one trains: 2 for each parameter of a matrix, and 2 x row_length
    x query_size for each layer, since a token sees half of its row on average. A backward pass takes twice as many, or
    as many where only adapters have gradients of weights.
    """
    shape = case.shape
    matrices = shape.vocab_size * shape.hidden_size
    matrices += shape.num_hidden_layers * (2 * shape.hidden_size * (shape.query_size + shape.key_size))
    matrices += shape.num_hidden_layers * shape.dense_parameters
    forward = 2 * matrices + 2 * shape.num_hidden_layers * row_length * shape.query_size
    return forward * (2 + (2 if case.lora is None else 1))
