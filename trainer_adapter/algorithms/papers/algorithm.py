"""The defaults of one algorithm, as its paper states them."""

from typing import Literal, TypeAlias

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
