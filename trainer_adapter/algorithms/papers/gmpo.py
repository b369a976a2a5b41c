"""GMPO (Zhao et al. 2025, arXiv 2507.20673, eq. 4): the geometric mean of a sequence's clipped ratios.

    A_i = (R_i - mean(R)) / std(R)
    J   = 1/G sum_i A_i exp( 1/|o_i| sum_t v_t )
    v_t = the smaller of log w and clip(log w, -0.4, 0.4) where A_i > 0, the larger where A_i < 0

Bounds hold for the logarithm of each token's ratio; 0.4 is the paper's. veRL's ``geo_mean`` averages the sequences of
each micro-batch, so that its gradient depends on their number; ours sums over all.
"""

from typing import Final

from trainer_adapter.algorithms.papers.algorithm import Algorithm

GMPO: Final = Algorithm(
    name="gmpo",
    paper="Zhao et al. 2025, arXiv 2507.20673",
    loss="geo_mean",
    loss_mean="seq-mean-token-mean",
    clip_low=0.4,
    clip_high=0.4,
)
