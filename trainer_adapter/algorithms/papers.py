"""Published algorithms by name: formula, source and defaults, as their papers state them."""

from typing import Final, Literal, TypeAlias

import msgspec

Estimator: TypeAlias = Literal["grpo", "rloo", "reinforce++"]
"""How values become advantages: against the mean of the group, against the mean of its other members, or against mean
and deviation of the whole batch."""
Loss: TypeAlias = Literal["vanilla", "gspo", "sapo", "cispo", "geo_mean", "reinforce"]
"""What is averaged. ``vanilla`` is PPO's clipped ratio, ``reinforce`` the plain log-probability (veRL's ``gpg``)."""
LossMean: TypeAlias = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
"""How it is averaged. A sequence is a rollout, however many rows its forks make."""
KlEstimator: TypeAlias = Literal["k1", "k2", "k3", "abs", "k1+", "k3+"]
"""Schulman's estimators (joschu.net/blog/kl-approx.html) by veRL's names; k3 is also its ``low_var_kl``. With ``+`` the
value is k1's or k3's and the gradient k2's, which alone is unbiased; the gradient of plain k1 is 0 on average."""


class Algorithm(msgspec.Struct, frozen=True, kw_only=True):
    """A published algorithm. Options that a configuration gives override these values."""

    name: str
    paper: str
    """First author, year, arXiv number."""
    estimator: Estimator = "grpo"
    scale_by_std: bool = True
    """Divide advantages by the sample deviation of their group; of the estimator ``grpo`` only."""
    loss: Loss = "vanilla"
    loss_mean: LossMean
    clip_low: float | None = None
    clip_high: float | None = None
    """None: the loss has no bounds. ``vanilla``, ``gspo`` and ``cispo`` bound the ratio by 1 - low and 1 + high,
    ``geo_mean`` its logarithm by -low and high."""
    tau_positive: float | None = None
    tau_negative: float | None = None
    """Temperatures of the gate of ``sapo``, for advantages above and below 0."""
    loss_scale_factor: float | None = None
    """Divisor of ``seq-mean-token-sum-norm``."""
    kl: float = 0.0
    kl_estimator: KlEstimator = "k3"
    resamples_equal: bool = False
    """Whether groups whose rewards are all equal are replaced by others (dynamic sampling)."""


GRPO: Final = Algorithm(
    name="grpo",
    paper="Shao et al. 2024, arXiv 2402.03300",
    loss_mean="seq-mean-token-mean",
    clip_low=0.2,
    clip_high=0.2,
    kl=0.04,
    kl_estimator="k3",
)
"""GRPO (Shao et al. 2024, arXiv 2402.03300, eq. 3 and 4): PPO's clipped ratio, with the group as baseline.

    A_i = (R_i - mean(R)) / std(R)
    J   = 1/G sum_i 1/|o_i| sum_t [ min(w A_i, clip(w, 1 - 0.2, 1 + 0.2) A_i) - 0.04 KL ]
    w   = pi(o_t) / pi_old(o_t),  KL = pi_ref/pi - log(pi_ref/pi) - 1

The coefficient 0.04 is the paper's. It does not state the bounds; 0.2 is PPO's (Schulman et al. 2017).
"""

DR_GRPO: Final = Algorithm(
    name="dr_grpo",
    paper="Liu et al. 2025, arXiv 2503.20783",
    scale_by_std=False,
    loss_mean="seq-mean-token-sum-norm",
    clip_low=0.2,
    clip_high=0.2,
    loss_scale_factor=3000.0,
)
"""Dr. GRPO (Liu et al. 2025, arXiv 2503.20783): GRPO without the two divisions that bias it.

    A_i = R_i - mean(R)
    J   = 1/G sum_i 1/C sum_t min(w A_i, clip(w, 1 - 0.2, 1 + 0.2) A_i)

C is a constant, so that neither an answer's length nor the spread of its group changes its weight. The paper takes the
generation budget, 3000 tokens in its experiments; set ``loss_scale_factor`` to that of the run. There is no KL term.
"""

DAPO: Final = Algorithm(
    name="dapo",
    paper="Yu et al. 2025, arXiv 2503.14476",
    loss_mean="token-mean",
    clip_low=0.2,
    clip_high=0.28,
    resamples_equal=True,
)
"""DAPO (Yu et al. 2025, arXiv 2503.14476, eq. 8 to 13): clip-higher, a mean over tokens, dynamic sampling, no KL.

    A_i = (R_i - mean(R)) / std(R)
    J   = 1/(sum_i |o_i|) sum_i sum_t min(w A_i, clip(w, 1 - 0.2, 1 + 0.28) A_i)

Groups whose rewards are all equal are replaced by others (``rollouts.extra_groups``). The soft overlong punishment
(eq. 13) depends on the length that a run allows, so it is off until ``algorithm.overlong_penalty`` is set.
"""

RLOO: Final = Algorithm(
    name="rloo",
    paper="Ahmadian et al. 2024, arXiv 2402.14740",
    estimator="rloo",
    scale_by_std=False,
    loss="reinforce",
    loss_mean="seq-mean-token-sum",
)
"""RLOO (Ahmadian et al. 2024, arXiv 2402.14740, eq. 7): REINFORCE with the other members of the group as baseline.

    A_i = R_i - 1/(G - 1) sum_{j != i} R_j
    J   = 1/G sum_i A_i sum_t log pi(o_t)

The whole answer is one action, so its log-probabilities are summed. The paper subtracts a KL term from the reward; here
``kl`` adds one to the loss.
"""

REINFORCE_PLUS_PLUS: Final = Algorithm(
    name="reinforce++",
    paper="Hu et al. 2025, arXiv 2501.03262",
    estimator="reinforce++",
    scale_by_std=False,
    loss_mean="token-mean",
    clip_low=0.2,
    clip_high=0.2,
)
"""REINFORCE++ (Hu et al. 2025, arXiv 2501.03262): PPO's clipped ratio, with the whole batch as baseline.

    A_i = (R_i - mean(all R)) / std(all R)
    J   = 1/(sum_i |o_i|) sum_i sum_t min(w A_i, clip(w, 1 - 0.2, 1 + 0.2) A_i)

Mean and deviation are over the rollouts of the batch, so a group of equal rewards teaches, too. The paper subtracts a
KL term from the reward; here ``kl`` adds one to the loss.
"""

GSPO: Final = Algorithm(
    name="gspo",
    paper="Zheng et al. 2025, arXiv 2507.18071",
    loss="gspo",
    loss_mean="seq-mean-token-mean",
    clip_low=3e-4,
    clip_high=4e-4,
)
"""GSPO (Zheng et al. 2025, arXiv 2507.18071, eq. 5 to 7): the ratio of a whole sequence, clipped once.

    A_i = (R_i - mean(R)) / std(R)
    s_i = exp( 1/|o_i| sum_t log(pi(o_t) / pi_old(o_t)) )
    J   = 1/G sum_i min(s_i A_i, clip(s_i, 1 - 3e-4, 1 + 4e-4) A_i)

The bounds are the paper's (section 5.1): the ratio of a sequence is a mean, and moves far less than that of a token.
"""

SAPO: Final = Algorithm(
    name="sapo",
    paper="Gao et al. 2025, arXiv 2511.20347",
    loss="sapo",
    loss_mean="seq-mean-token-mean",
    tau_positive=1.0,
    tau_negative=1.05,
)
"""SAPO (Gao et al. 2025, arXiv 2511.20347): a soft gate in place of bounds.

    A_i = (R_i - mean(R)) / std(R)
    J   = 1/G sum_i 1/|o_i| sum_t f(w) A_i
    f(w) = 4/tau sigmoid(tau (w - 1)),  tau = 1.0 where A_i > 0, else 1.05

The gradient weighs a token by how close its ratio w is to 1, and no token is cut off.
"""

CISPO: Final = Algorithm(
    name="cispo",
    paper="MiniMax 2025, arXiv 2506.13585",
    loss="cispo",
    loss_mean="token-mean",
    clip_low=10.0,
    clip_high=0.2,
)
"""CISPO (MiniMax 2025, arXiv 2506.13585, eq. 4 and 5): the clipped ratio is a weight, and every token has a gradient.

    A_i = (R_i - mean(R)) / std(R)
    J   = 1/(sum_i |o_i|) sum_i sum_t stop(clip(w, 1 - low, 1 + high)) A_i log pi(o_t)

The paper sets no lower bound (a large ``low``) and does not publish its upper one; 10 and 0.2 are those of veRL's
example (examples/cispo_trainer).
"""

GMPO: Final = Algorithm(
    name="gmpo",
    paper="Zhao et al. 2025, arXiv 2507.20673",
    loss="geo_mean",
    loss_mean="seq-mean-token-mean",
    clip_low=0.4,
    clip_high=0.4,
)
"""GMPO (Zhao et al. 2025, arXiv 2507.20673, eq. 4): the geometric mean of a sequence's clipped ratios.

    A_i = (R_i - mean(R)) / std(R)
    J   = 1/G sum_i A_i exp( 1/|o_i| sum_t v_t )
    v_t = the smaller of log w and clip(log w, -0.4, 0.4) where A_i > 0, the larger where A_i < 0

Bounds hold for the logarithm of each token's ratio; 0.4 is the paper's. Importance weights of a rollout's tokens act by
their geometric mean. veRL's ``geo_mean`` averages the sequences of each micro-batch, so that its gradient depends on
their number; ours sums over all.
"""

ALGORITHMS: Final = {one.name: one for one in (GRPO, DR_GRPO, DAPO, RLOO, REINFORCE_PLUS_PLUS, GSPO, SAPO, CISPO, GMPO)}

DEFAULT: Final = Algorithm(
    name="default",
    paper="Shao et al. 2024 with the corrections of Liu et al. 2025 (no division) and Yu et al. 2025 (bounds, mean)",
    scale_by_std=False,
    loss_mean="token-mean",
    clip_low=0.2,
    clip_high=0.28,
)
"""GRPO without division by the deviation, with DAPO's bounds and its mean over tokens."""

CLIP_BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "vanilla": (0.2, 0.28),
    "gspo": (3e-4, 4e-4),
    "cispo": (10.0, 0.2),
    "geo_mean": (0.4, 0.4),
}
"""(low, high) of each loss that has bounds, where the algorithm's own loss was replaced by it."""
