"""veRL's FSDP engine for packed rows: its attention and its log-probabilities are ours.

A model is asked at its start whether it can be packed: two short rows in one sequence must have the log-probabilities
that each has alone, by the model's own attention. That finds any layer that looks across rows, whatever it is.
"""

from collections.abc import Callable

import torch
from tensordict import TensorDict
from torch import Tensor
from transformers import PreTrainedModel
from verl.models.transformers.dense_common import CausalLMOutputForPPO
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from agent_layer.errors import BadInputError
from trainer_adapter.verl.packed.attention import register_attention
from trainer_adapter.verl.packed.logprobs import ScoredTokens, replace_logits
from trainer_adapter.verl_keys import PACKED_ATTENTION

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportUntypedBaseClass=false, reportIncompatibleMethodOverride=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# veRL and much of transformers carry no types.

_PROBE = [5, 3]
"""Lengths of two rows."""
_MAX_GAP = 1e-3
"""Nats between the log-probabilities of a row that is packed and of the same row alone, in float32."""


class PackedEngine(FSDPEngineWithLMHead):
    """veRL's engine; its model gets one sequence of rows without padding, and returns scores of tokens."""

    def _build_module(self) -> PreTrainedModel:
        module = super()._build_module()
        replace_logits(module)
        if torch.distributed.get_rank() == 0:  # other processes may have no weights yet
            check_packing(module)
        return module

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict[str, object], dict[str, object]]:
        """Return the arguments of the model, and what ``prepare_model_outputs`` needs."""
        inputs, outputs = super().prepare_model_inputs(micro_batch)
        lengths = micro_batch["input_ids"].offsets().diff().tolist()
        has_entropy = tu.get_non_tensor_data(micro_batch, "calculate_entropy", default=False)
        scored = ScoredTokens(outputs["input_ids_rmpad_rolled"], outputs["temperature_rmpad"], bool(has_entropy))
        padding = [outputs["pad_size"]] if outputs["pad_size"] else []
        return inputs | {"row_lengths": [*lengths, *padding], "scored": scored}, outputs

    def prepare_model_outputs(
        self,
        output: CausalLMOutputForPPO,
        output_args: dict[str, int],
        micro_batch: TensorDict,
        logits_processor_func: Callable[..., object],
    ) -> dict[str, Tensor]:
        """Return log-probabilities and perhaps entropies, jagged, one for each token of a row."""
        del logits_processor_func
        offsets = micro_batch["input_ids"].offsets()
        found: dict[str, Tensor | None] = {"log_probs": output.log_probs, "entropy": output.entropy}
        return {
            name: torch.nested.nested_tensor_from_jagged(
                self._gather_and_unpad_packed(values, output_args["pad_size"]), offsets
            )
            for name, values in found.items()
            if values is not None
        }


def register_engine(device: str, vendor: str) -> None:
    """Let veRL use ``PackedEngine`` for FSDP2 on a device."""
    from verl.workers.engine import EngineRegistry  # noqa: PLC0415  # asks for the platform when it is imported

    register_attention()
    EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device=device, vendor=vendor)(PackedEngine)


@torch.no_grad()
def check_packing(model: PreTrainedModel) -> None:
    """Raise BadInputError where rows of a packed sequence do not have the log-probabilities that each has alone.

    Args:
        model: on the CPU, with its weights, after ``replace_logits``.
    """
    vocabulary = model.get_input_embeddings().weight.shape[0]
    rows = [torch.arange(1, length + 1) * 7919 % vocabulary for length in _PROBE]
    joined = torch.cat(rows)
    scored = ScoredTokens(joined.roll(-1), torch.ones(len(joined)), has_entropy=False)
    places = torch.cat([torch.arange(length) for length in _PROBE])[None]
    packed = model(
        input_ids=joined[None], position_ids=places, row_lengths=_PROBE, scored=scored, use_cache=False
    ).log_probs.split(_PROBE)
    model.set_attn_implementation("eager")
    alone = [
        model(input_ids=row[None], use_cache=False).logits[0, :-1].float().log_softmax(-1).gather(-1, row[1:, None])
        for row in rows
    ]
    model.set_attn_implementation(PACKED_ATTENTION)
    gap = max(float((own[:-1] - other[:, 0]).abs().max()) for own, other in zip(packed, alone, strict=True))
    if not gap <= _MAX_GAP:
        raise BadInputError(
            f"model {type(model).__name__}: expected the log-probabilities of rows that are alone also where they are"
            f" packed, found a difference of {gap:.2g}; its layers see other rows, or change its logits in a way that"
            " this trainer does not know: train another model"
        )
