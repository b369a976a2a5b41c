"""Rows of a batch seen as rollouts: the trained tokens of a rollout, in any number of rows, are one sequence."""

import torch
from torch import Tensor

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# Some of torch's methods carry no types.


class RolloutRows:
    """The rollout of each trained token.

    Args:
        rollout: [num_rows], any number for each rollout.
        mask: [num_rows, num_response_tokens], 1 where a token is trained.
    """

    def __init__(self, rollout: Tensor, mask: Tensor) -> None:
        names, self.rollout = rollout.unique(return_inverse=True)
        self.num_rollouts = len(names)
        self.tokens_of_rollout = torch.zeros(len(names)).index_add(0, self.rollout, mask.sum(dim=1).float())
        """[num_rollouts] trained tokens, as float32."""
        self._rows, self._columns = mask.nonzero(as_tuple=True)
        owners = self.rollout[self._rows]
        order = owners.argsort(stable=True)
        counts = owners.bincount(minlength=len(names))
        self._owners, self._places = owners, torch.empty_like(owners)
        self._places[order] = torch.arange(len(owners)) - (counts.cumsum(0) - counts)[owners[order]]
        self._shape = mask.shape

    @property
    def has_forks(self) -> bool:
        """Whether a rollout has more than one row."""
        return self.num_rollouts < len(self.rollout)

    def mask(self) -> Tensor:
        """Return [num_rollouts, max_tokens], 1 where a rollout has a trained token."""
        return self.join(torch.ones(self._shape, dtype=torch.long))

    def join(self, values: Tensor) -> Tensor:
        """Return [num_rollouts, max_tokens]: the trained tokens of each rollout, in order of its rows; 0 behind them.

        Args:
            values: [num_rows, num_response_tokens].
        """
        width = int(self.tokens_of_rollout.max()) if self.num_rollouts else 0
        joined = torch.zeros(self.num_rollouts, width, dtype=values.dtype)
        joined[self._owners, self._places] = values[self._rows, self._columns]
        return joined

    def split(self, joined: Tensor) -> Tensor:
        """Return [num_rows, num_response_tokens], the inverse of ``join``; 0 where a token is not trained."""
        values = torch.zeros(self._shape, dtype=joined.dtype)
        values[self._rows, self._columns] = joined[self._owners, self._places]
        return values

    def mean_by_rollout(self, values: Tensor) -> Tensor:
        """Return [num_rollouts], the mean of a value over the trained tokens of each rollout."""
        return self.join(values).sum(dim=1) / self.tokens_of_rollout.clamp(min=1)
