"""Rows of a batch, divided among the processes that share a model."""

from typing import cast

import torch
import torch.distributed
from tensordict import TensorDict
from torch import Tensor

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# Some of torch's functions carry no types.


def share_rows(rows: TensorDict) -> TensorDict:
    """Return the rows of this process: every n-th of n processes; all have equally many, idle ones included."""
    rank, num_ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    if num_ranks == 1:
        return rows
    idle = cast("TensorDict", rows[:1]).clone()
    for name in ("response_mask", "row_weights"):
        if name in idle:
            idle.set(name, torch.zeros_like(idle.get(name)))
    whole = torch.cat([rows, *[idle] * (-len(rows) % num_ranks)])
    return cast("TensorDict", whole[rank::num_ranks])


def join_rows(share: Tensor, num_rows: int) -> Tensor:
    """Return [num_rows, …], what all processes computed for the rows that ``share_rows`` gave them.

    Args:
        share: [num_own_rows, …] of this process.
        num_rows: of all, without idle ones.
    """
    num_ranks = torch.distributed.get_world_size()
    if num_ranks == 1:
        return share
    shares = [torch.empty_like(share) for _ in range(num_ranks)]
    torch.distributed.all_gather(shares, share.contiguous())
    return torch.stack(shares, dim=1).flatten(0, 1)[:num_rows]
