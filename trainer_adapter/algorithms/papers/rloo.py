"""RLOO (Ahmadian et al. 2024, arXiv 2402.14740, eq. 7): REINFORCE with the other members of the group as baseline.

    A_i = R_i - 1/(G - 1) sum_{j != i} R_j
    J   = 1/G sum_i A_i sum_t log pi(o_t)

The whole answer is one action, so its log-probabilities are summed. The paper subtracts a KL term from the reward; here
``kl`` adds one to the loss.
"""

from typing import Final

from trainer_adapter.algorithms.papers.algorithm import Algorithm

RLOO: Final = Algorithm(
    name="rloo",
    paper="Ahmadian et al. 2024, arXiv 2402.14740",
    estimator="rloo",
    scale_by_std=False,
    loss="reinforce",
    loss_mean="seq-mean-token-sum",
)
