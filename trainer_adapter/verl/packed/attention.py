"""Attention over packed rows, whole or shared among processes: each token sees those before it in its own row.

Rows lie behind each other in one sequence. Each goes through PyTorch's attention alone, whose kernels need memory that
is linear in its length; where flash-attn is installed and tensors are on a GPU, all rows take one call. With sequence
parallelism (DeepSpeed-Ulysses, Jacobs et al. 2023, arXiv 2309.14509), a process has a part of the sequence outside
attention, and whole rows for a part of the heads inside.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from verl.utils.ulysses import (
    gather_heads_scatter_seq,
    gather_seq_scatter_heads,
    get_ulysses_sequence_parallel_world_size,
)

from agent_layer.errors import BadInputError
from trainer_adapter.verl_keys import PACKED_ATTENTION

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# veRL and much of transformers carry no types.

_WINDOW_QUERIES = 1024
"""Queries of a sliding window that are computed at a time."""
_SEQUENCE, _HEADS = 2, 1


def register_attention() -> None:
    """Let models of this process name ``PACKED_ATTENTION``. Idempotent."""
    AttentionInterface.register(PACKED_ATTENTION, attend_packed)


def attend_packed(  # noqa: PLR0913  # transformers' signature
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    row_lengths: Sequence[int] | None = None,
    **options: object,
) -> tuple[Tensor, None]:
    """Return the output of attention, [1, num_tokens, num_heads, head_dim].

    Args:
        module: whose attention it is.
        query: [1, num_heads, num_tokens, head_dim]; of this process, as are key and value.
        key: [1, num_key_heads, num_tokens, head_dim]
        value: as ``key``.
        attention_mask: None.
        scaling: of scores; None: 1 / sqrt(head_dim).
        dropout: of scores.
        sliding_window: keys that a query sees, its own included; None: all before it.
        row_lengths: tokens of each row, those of all processes.
        options: transformers'; some change the formula.

    Raises: BadInputError: the model does not hand the lengths on, or its attention has another formula.
    """
    odd = next((name for name in ("softcap", "s_aux", "position_bias") if options.get(name) is not None), None)
    if row_lengths is None or attention_mask is not None or odd is not None:
        found = odd or ("no lengths of rows" if row_lengths is None else "a mask")
        raise BadInputError(
            f"{type(module).__name__}: expected causal attention over packed rows, found {found}; the trainer does not"
            " have this model's attention"
        )
    num_ranks = get_ulysses_sequence_parallel_world_size()
    if num_ranks > 1:
        repeats = max(1, num_ranks // key.shape[_HEADS])
        key, value = (one.repeat_interleave(repeats, dim=_HEADS) for one in (key, value))
        query, key, value = (gather_seq_scatter_heads(one, _SEQUENCE, _HEADS) for one in (query, key, value))
    if query.is_cuda and find_spec("flash_attn") is not None:
        found = _attend_at_once(query, key, value, row_lengths, scaling, dropout, sliding_window)
    else:
        rows = [slice(start, end) for start, end in pairwise(accumulate(row_lengths, initial=0))]
        parts = [
            _attend_row(query[:, :, row], key[:, :, row], value[:, :, row], scaling, dropout, sliding_window)
            for row in rows
        ]
        found = torch.cat(parts, dim=_SEQUENCE)
    if num_ranks > 1:
        found = gather_heads_scatter_seq(found, _HEADS, _SEQUENCE)
    return found.transpose(1, 2).contiguous(), None


def _attend_row(  # those of attention
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, dropout: float, window: int | None
) -> Tensor:
    length, options = query.shape[_SEQUENCE], {"scale": scaling, "dropout_p": dropout, "enable_gqa": True}
    if window is None or length <= window:
        return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, **options)  # pyright: ignore[reportArgumentType]
    parts: list[Tensor] = []
    for start in range(0, length, _WINDOW_QUERIES):
        end, first = min(length, start + _WINDOW_QUERIES), max(0, start - window + 1)
        places = torch.arange(start, end, device=query.device)[:, None]
        others = torch.arange(first, end, device=query.device)[None]
        mask = (others <= places) & (others > places - window)
        seen = (query[:, :, start:end], key[:, :, first:end], value[:, :, first:end])
        parts.append(nn.functional.scaled_dot_product_attention(*seen, attn_mask=mask, **options))  # pyright: ignore[reportArgumentType]
    return torch.cat(parts, dim=_SEQUENCE)


def _attend_at_once(  # noqa: PLR0913, PLR0917  # those of attention
    query: Tensor,
    key: Tensor,
    value: Tensor,
    row_lengths: Sequence[int],
    scaling: float | None,
    dropout: float,
    window: int | None,
) -> Tensor:
    from flash_attn import flash_attn_varlen_func  # noqa: PLC0415  # pyright: ignore[reportMissingImports]  # CUDA only

    ends = torch.tensor([0, *accumulate(row_lengths)], dtype=torch.int32, device=query.device)
    found = flash_attn_varlen_func(
        *(one.squeeze(0).transpose(0, 1) for one in (query, key, value)),
        cu_seqlens_q=ends,
        cu_seqlens_k=ends,
        max_seqlen_q=max(row_lengths),
        max_seqlen_k=max(row_lengths),
        dropout_p=dropout,
        softmax_scale=scaling,
        causal=True,
        window_size=(-1, -1) if window is None else (window - 1, 0),
    )
    return found.transpose(0, 1).unsqueeze(0)
