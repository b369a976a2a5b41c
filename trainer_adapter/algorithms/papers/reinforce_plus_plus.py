"""REINFORCE++ (Hu et al. 2025, arXiv 2501.03262): PPO's clipped ratio, with the whole batch as baseline.

    A_i = (R_i - mean(all R)) / std(all R)
    J   = 1/(sum_i |o_i|) sum_i sum_t min(w A_i, clip(w, 1 - 0.2, 1 + 0.2) A_i)

Mean and deviation are over the rollouts of the batch, so a group of equal rewards teaches, too. The paper subtracts a
KL term from the reward; here ``kl`` adds one to the loss.
"""

from typing import Final

from trainer_adapter.algorithms.papers.algorithm import Algorithm

REINFORCE_PLUS_PLUS: Final = Algorithm(
    name="reinforce++",
    paper="Hu et al. 2025, arXiv 2501.03262",
    estimator="reinforce++",
    scale_by_std=False,
    loss_mean="token-mean",
    clip_low=0.2,
    clip_high=0.2,
)
