"""SAPO (Gao et al. 2025, arXiv 2511.20347): a soft gate in place of bounds.

    A_i = (R_i - mean(R)) / std(R)
    J   = 1/G sum_i 1/|o_i| sum_t f(w) A_i
    f(w) = 4/tau sigmoid(tau (w - 1)),  tau = 1.0 where A_i > 0, else 1.05

The gradient weighs a token by how close its ratio w is to 1, and no token is cut off.
"""

from typing import Final

from trainer_adapter.algorithms.papers.algorithm import Algorithm

SAPO: Final = Algorithm(
    name="sapo",
    paper="Gao et al. 2025, arXiv 2511.20347",
    loss="sapo",
    loss_mean="seq-mean-token-mean",
    tau_positive=1.0,
    tau_negative=1.05,
)
