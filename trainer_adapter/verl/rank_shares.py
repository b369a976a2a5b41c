"""Rows of a batch, divided among the processes that share a model."""

from typing import cast

import torch
import torch.distributed
from tensordict import TensorDict
from torch import Tensor

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# Some of torch's functions carry no types.


def share_rows(rows: TensorDict, sequence_parallel: int = 1) -> TensorDict:
    """Return the rows of this process: every n-th of n shares; all have equally many, idle ones included.

    Args:
        rows: of all processes.
        sequence_parallel: processes that have one share together, neighbours by their ranks.
    """
    share, num_shares = (
        number // sequence_parallel for number in (torch.distributed.get_rank(), torch.distributed.get_world_size())
    )
    if num_shares == 1:
        return rows
    idle = cast("TensorDict", rows[:1]).clone()
    for name in ("response_mask", "row_weights"):
        if name in idle:
            idle.set(name, torch.zeros_like(idle.get(name)))
    whole = torch.cat([rows, *[idle] * (-len(rows) % num_shares)])
    return cast("TensorDict", whole[share::num_shares])


def join_rows(share: Tensor, num_rows: int, sequence_parallel: int = 1) -> Tensor:
    """Return [num_rows, …], what all processes computed for the rows that ``share_rows`` gave them.

    Args:
        share: [num_own_rows, …] of this process.
        num_rows: of all, without idle ones.
        sequence_parallel: as ``share_rows`` had it; such processes computed the same.
    """
    num_ranks = torch.distributed.get_world_size()
    if num_ranks == sequence_parallel:
        return share
    shares = [torch.empty_like(share) for _ in range(num_ranks)]
    torch.distributed.all_gather(shares, share.contiguous())
    return torch.stack(shares[::sequence_parallel], dim=1).flatten(0, 1)[:num_rows]
