"""GRPO (Shao et al. 2024, arXiv 2402.03300, eq. 3 and 4): PPO's clipped ratio, with the group as baseline.

    A_i = (R_i - mean(R)) / std(R)
    J   = 1/G sum_i 1/|o_i| sum_t [ min(w A_i, clip(w, 1 - 0.2, 1 + 0.2) A_i) - 0.04 KL ]
    w   = pi(o_t) / pi_old(o_t),  KL = pi_ref/pi - log(pi_ref/pi) - 1

The coefficient 0.04 is the paper's. It does not state the bounds; 0.2 is PPO's (Schulman et al. 2017).
"""

from typing import Final

from trainer_adapter.algorithms.papers.algorithm import Algorithm

GRPO: Final = Algorithm(
    name="grpo",
    paper="Shao et al. 2024, arXiv 2402.03300",
    loss_mean="seq-mean-token-mean",
    clip_low=0.2,
    clip_high=0.2,
    kl=0.04,
    kl_estimator="k3",
)
