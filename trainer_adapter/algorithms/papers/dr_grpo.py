"""Dr. GRPO (Liu et al. 2025, arXiv 2503.20783): GRPO without the two divisions that bias it.

    A_i = R_i - mean(R)
    J   = 1/G sum_i 1/C sum_t min(w A_i, clip(w, 1 - 0.2, 1 + 0.2) A_i)

C is a constant, so that neither an answer's length nor the spread of its group changes its weight. The paper takes the
generation budget, 3000 tokens in its experiments; set ``loss_scale_factor`` to that of the run. There is no KL term.
"""

from typing import Final

from trainer_adapter.algorithms.papers.algorithm import Algorithm

DR_GRPO: Final = Algorithm(
    name="dr_grpo",
    paper="Liu et al. 2025, arXiv 2503.20783",
    scale_by_std=False,
    loss_mean="seq-mean-token-sum-norm",
    clip_low=0.2,
    clip_high=0.2,
    loss_scale_factor=3000.0,
)
