"""CISPO (MiniMax 2025, arXiv 2506.13585, eq. 4 and 5): the clipped ratio is a weight, and every token has a gradient.

    A_i = (R_i - mean(R)) / std(R)
    J   = 1/(sum_i |o_i|) sum_i sum_t stop(clip(w, 1 - low, 1 + high)) A_i log pi(o_t)

The paper sets no lower bound (a large ``low``) and does not publish its upper one; 10 and 0.2 are those of veRL's
example (examples/cispo_trainer).
"""

from typing import Final

from trainer_adapter.algorithms.papers.algorithm import Algorithm

CISPO: Final = Algorithm(
    name="cispo",
    paper="MiniMax 2025, arXiv 2506.13585",
    loss="cispo",
    loss_mean="token-mean",
    clip_low=10.0,
    clip_high=0.2,
)
