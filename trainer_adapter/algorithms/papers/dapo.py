"""DAPO (Yu et al. 2025, arXiv 2503.14476, eq. 8 to 13): clip-higher, a mean over tokens, dynamic sampling, no KL.

    A_i = (R_i - mean(R)) / std(R)
    J   = 1/(sum_i |o_i|) sum_i sum_t min(w A_i, clip(w, 1 - 0.2, 1 + 0.28) A_i)

Groups whose rewards are all equal are replaced by others (``rollouts.extra_groups``). The soft overlong punishment
(eq. 13) depends on the length that a run allows, so it is off until ``algorithm.overlong_penalty`` is set.
"""

from typing import Final

from trainer_adapter.algorithms.papers.algorithm import Algorithm

DAPO: Final = Algorithm(
    name="dapo",
    paper="Yu et al. 2025, arXiv 2503.14476",
    loss_mean="token-mean",
    clip_low=0.2,
    clip_high=0.28,
    resamples_equal=True,
)
