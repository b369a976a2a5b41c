"""GSPO (Zheng et al. 2025, arXiv 2507.18071, eq. 5 to 7): the ratio of a whole sequence, clipped once.

    A_i = (R_i - mean(R)) / std(R)
    s_i = exp( 1/|o_i| sum_t log(pi(o_t) / pi_old(o_t)) )
    J   = 1/G sum_i min(s_i A_i, clip(s_i, 1 - 3e-4, 1 + 4e-4) A_i)

The bounds are the paper's (section 5.1): the ratio of a sequence is a mean, and moves far less than that of a token.
"""

from typing import Final

from trainer_adapter.algorithms.papers.algorithm import Algorithm

GSPO: Final = Algorithm(
    name="gspo",
    paper="Zheng et al. 2025, arXiv 2507.18071",
    loss="gspo",
    loss_mean="seq-mean-token-mean",
    clip_low=3e-4,
    clip_high=4e-4,
)
