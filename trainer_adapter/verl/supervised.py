"""Updates from rows that others sampled: imitation (SFT) and preference (DPO), by the trainer of the policy gradient.

Both are sums of log-probabilities with fixed coefficients, ``-sum w A log pi``, as REINFORCE is. In SFT each trained
token has A = 1. In DPO the gradient of a pair is that of its two log-probabilities, with coefficients that follow from
the present weights: they are computed first, and stay fixed during the step. So no result depends on micro-batches.
"""

from collections.abc import Sequence

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.nn.functional import logsigmoid

from agent_layer.infra import batched
from trainer_adapter.config import TrainConfig
from trainer_adapter.verl.losses import LossPlan
from trainer_adapter.verl.tensors import TokenRow, pack_tokens
from trainer_adapter.verl.trainer import EmbeddedTrainer

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# veRL and tensordict carry no types.

_ROWS_PER_PASS = 256


class SupervisedTrainer(EmbeddedTrainer):
    """The model inside this process, trained on rows instead of rollouts.

    Args: config: model, optimizer and adapter; its algorithm has the loss ``reinforce``.
    """

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self._set_loss(LossPlan(loss="reinforce", options={}, entropy=0.0, kl=0.0, kl_estimator="k3"))

    def imitate(self, rows: Sequence[TokenRow], rate: float) -> dict[str, float]:
        """Make one step of SFT: the mean over trained tokens of -log pi.

        Args:
            rows: [num_rows].
            rate: of learning.

        Returns: ``loss`` before the step, ``grad_norm`` and ``tokens``, the number of trained ones.
        """
        data = _pack(rows)
        data["advantages"] = torch.ones_like(data["old_log_probs"])
        num_tokens = float(data["response_mask"].sum())
        found = self._step(data, torch.full((len(rows),), 1 / num_tokens), rate)
        return {"loss": found["actor/pg_loss"], "grad_norm": found["grad_norm"], "tokens": num_tokens}

    def prefer(self, rows: Sequence[TokenRow], reference: Tensor, beta: float, rate: float) -> dict[str, float]:
        """Make one step of DPO (Rafailov et al. 2023, arXiv 2305.18290, eq. 7).

            loss = mean over pairs of -log sigmoid(h),  h = beta (gain(chosen) - gain(rejected)),  gain = log pi/ref

        Args:
            rows: [2 num_pairs], the chosen and the rejected of each pair.
            reference: [2 num_pairs] log-probability of each row's trained tokens under the reference.
            beta: strength of the reference.
            rate: of learning.

        Returns: before the step ``loss``, ``accuracy``, the share of pairs with h > 0, and ``margin``, the mean of h;
            ``grad_norm`` and ``tokens``.
        """
        data = _pack(rows)
        gain = self._sum_logprobs(data) - reference
        h = beta * (gain[::2] - gain[1::2])
        pull = beta * torch.sigmoid(-h)  # -d loss / d log pi of the chosen
        sides = torch.stack([pull, -pull], dim=1).flatten()
        data["advantages"] = sides.unsqueeze(1).expand_as(data["old_log_probs"]).contiguous()
        found = self._step(data, torch.full((len(rows),), 1 / len(h)), rate)
        return {
            "loss": float(-logsigmoid(h).mean()),
            "accuracy": float((h > 0).float().mean()),
            "margin": float(h.mean()),
            "grad_norm": found["grad_norm"],
            "tokens": float(data["response_mask"].sum()),
        }

    def sum_logprobs(self, rows: Sequence[TokenRow]) -> Tensor:
        """Return [num_rows] the log-probability of each row's trained tokens under the present weights."""
        return torch.cat([self._sum_logprobs(_pack(part)) for part in batched(rows, _ROWS_PER_PASS)])

    def _sum_logprobs(self, data: TensorDict) -> Tensor:
        logprobs = self._infer(data)["log_probs"]
        return torch.where(data["response_mask"].bool(), logprobs, 0.0).sum(dim=1)

    def _step(self, data: TensorDict, weights: Tensor, rate: float) -> dict[str, float]:
        self._set_learning_rate(rate)
        data["row_weights"] = weights
        return self._make_step(data, calculate_entropy=False, global_batch_size=len(data))


def _pack(rows: Sequence[TokenRow]) -> TensorDict:
    tokens = pack_tokens(rows)
    unused = torch.zeros(tokens["responses"].shape)
    return TensorDict(
        {
            **tokens,
            "old_log_probs": unused,
            "rollout_log_probs": unused.clone(),
            "temperature": torch.ones(len(rows)),
        },
        batch_size=len(rows),
    )
