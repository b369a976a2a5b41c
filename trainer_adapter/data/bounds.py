"""What a model can read: its vocabulary and its positions. A row beyond them would end every update that has it."""

from collections.abc import Mapping
from typing import Final

import msgspec

from agent_layer.schema import ExcludedRollout, JsonObject, TrainingSample, Trajectory, as_json_object
from trainer_adapter.data.faults import exclude
from trainer_adapter.data.lengths import LONG_ROW

BAD_TOKEN_IDS: Final = "bad_token_ids"
"""Kind of a rollout with an id that is no token of the model."""


class ModelBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the rows of one model; None: not known, so there is none."""

    vocab_size: int | None = None
    """Ids count from 0 up to here."""
    max_positions: int | None = None
    """Most tokens of a row, prompt included."""
    max_fitting: int | None = None
    """Most tokens of a row that may fit into memory, as an update that ran out of it has shown."""


NO_BOUNDS: Final = ModelBounds()


def bounds_of(config: JsonObject) -> ModelBounds:
    """Return the bounds that the content of a model's config.json names."""
    told = as_json_object(config.get("text_config", config))
    longest = _count(told, "max_position_embeddings") or _count(told, "n_positions")
    return ModelBounds(vocab_size=_count(told, "vocab_size"), max_positions=longest and int(longest * _stretch(told)))


def find_misfit(trajectory: Trajectory, samples: list[TrainingSample], bounds: ModelBounds) -> ExcludedRollout | None:
    """Return why the rows of a rollout cannot be given to the model; None: they can."""
    end = 2**31 if bounds.vocab_size is None else bounds.vocab_size
    for sample in samples:
        for ids in (sample.prompt_ids, sample.response_ids):
            if ids and not 0 <= min(ids) <= max(ids) < end:
                found = next(one for one in ids if not 0 <= one < end)
                return exclude(
                    trajectory,
                    BAD_TOKEN_IDS,
                    f"expected token ids from 0 to {end - 1}, which the model has, found {found}; give the engine the"
                    " tokenizer and weights of the model that is trained",
                )
        num_tokens = len(sample.prompt_ids) + len(sample.response_ids)
        if bounds.max_positions is not None and num_tokens > bounds.max_positions:
            return exclude(
                trajectory,
                LONG_ROW,
                f"a row has {num_tokens} tokens, the model has {bounds.max_positions} positions; let"
                " limits.context_tokens of the task end rollouts earlier, or set optimizer.max_row_tokens and"
                " optimizer.long_rows to 'cut_end'",
            )
        if bounds.max_fitting is not None and num_tokens > bounds.max_fitting:
            return exclude(
                trajectory,
                LONG_ROW,
                f"a row has {num_tokens} tokens, and an update ran out of memory with hardly more than"
                f" {bounds.max_fitting}; set optimizer.max_row_tokens, optimizer.gradient_checkpointing, or delete"
                " row_memory.json in the run's directory where there is more memory now",
            )
    return None


def _count(told: Mapping[str, object], name: str) -> int | None:
    number = told.get(name)
    return number if isinstance(number, int) and number > 0 else None


def _stretch(told: Mapping[str, object]) -> float:
    """Return by how much engines lengthen a context at most, as RoPE scaling says."""
    scaling = as_json_object(told.get("rope_scaling") or told.get("rope_parameters"))
    factor = scaling.get("factor")
    return max(1.0, float(factor)) if isinstance(factor, int | float) else 1.0
