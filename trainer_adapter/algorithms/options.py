"""Options of a configuration's section ``algorithm``. ``resolve_algorithm`` says what they amount to."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from trainer_adapter.algorithms.papers import Estimator, KlEstimator, LossMean
from trainer_adapter.algorithms.schedule import Schedule

Credit: TypeAlias = str
"""What shares one advantage: all tokens of a ``rollout``, a ``turn`` or an ``agent``, or what a part of users says."""
Options: TypeAlias = dict[str, object]
"""Keyword arguments of a part that users bring."""
Divergence: TypeAlias = Literal[
    "token_k1",
    "token_k2",
    "token_k3",
    "seq_sum_k1",
    "seq_sum_k2",
    "seq_sum_k3",
    "seq_mean_k1",
    "seq_mean_k2",
    "seq_mean_k3",
    "seq_max_k2",
    "seq_max_k3",
]
"""veRL's ``rollout_rs``: a token's estimate, or its sum, mean or maximum over a rollout. With r = probability of the
trainer / of the engine, k1 is -log r, k2 is (log r)²/2, k3 is r - 1 - log r."""
NotNegative: TypeAlias = Annotated[float, Meta(ge=0)]
AboveZero: TypeAlias = Annotated[float, Meta(gt=0)]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections: a misspelt option is an error."""


class RejectionRule(_Section, frozen=True):
    """Tokens, or whole rollouts, that are not trained because trainer and engine disagree about them."""

    by: Divergence
    upper: AboveZero
    """Largest accepted divergence; for k1 the largest accepted 1/r."""
    lower: AboveZero | None = None
    """Smallest accepted 1/r, for k1 only; None: 1 / ``upper``."""


class CorrectionConfig(_Section, frozen=True):
    """Correction for samples of other weights, or of an engine that computes differently: veRL's rollout correction.

    With r = trainer's probability before the update / engine's probability at sampling, of a token or of a rollout.
    """

    weights: Literal["token", "sequence"] | None = "token"
    """Each token's loss is multiplied by min(r, ``upper``), r of the token or of its whole rollout; None: by 1."""
    upper: AboveZero = 2.0
    lower: AboveZero | None = None
    """Given: IcePop, where a weight outside [``lower``, ``upper``] is 0. None: truncation above only."""
    normalize: bool = False
    """Divide the weights by their mean over the batch."""
    reject: tuple[RejectionRule, ...] = ()
    """A token is trained when it passes every rule."""
    bypass: bool = False
    """Take the engine's log-probabilities as those of the old policy: two policies in place of three. The ratio of a
    clipped loss then corrects by itself, so weights apply to ``reinforce`` only; rules use the present weights."""


class OverlongPenalty(_Section, frozen=True):
    """Soft punishment of long rollouts (DAPO, Yu et al. 2025, eq. 13), added to their reward.

    0 up to ``max_tokens`` - ``buffer_tokens`` sampled tokens, then a line down to -1 at ``max_tokens``, and -1 beyond.
    """

    max_tokens: Annotated[int, Meta(ge=1)]
    buffer_tokens: Annotated[int, Meta(ge=1)]


class TeacherConfig(_Section, frozen=True):
    """A model that judges tokens: a vLLM server, whose vocabulary is that of the trained model."""

    url: str
    """Its address, with or without /v1; the key is the setting AGENT_LAYER_TEACHER_KEY."""
    model: str
    """Name under which it serves the teacher."""
    concurrency: Annotated[int, Meta(ge=1)] = 16
    """Rows that it is asked about at a time."""
    patience_seconds: AboveZero = 300.0
    """A row is asked about again for this long when the server does not answer. Then its rollout is left out."""

    def __post_init__(self) -> None:
        """Check the address."""
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"expected a url such as http://127.0.0.1:8001, found {self.url!r}")


class DistillConfig(_Section, frozen=True):
    """On-policy distillation: a teacher judges each sampled token, beside the rewards or in their place.

    ``coefficient`` x (log p_teacher - log p_student) of the token is added to its advantage. Its mean is the negative
    reverse KL divergence of the trained policy from the teacher (Agarwal et al. 2024, arXiv 2306.13649; Thinking
    Machines 2025, "On-Policy Distillation").
    """

    teacher: TeacherConfig
    coefficient: AboveZero = 1.0
    replace_rewards: bool = False
    """Whether rewards teach nothing. Rollouts without a reward are left out all the same."""


class AlgorithmConfig(_Section, frozen=True):
    """What the trainer computes from the rewards. None: as the paper of ``name`` has it; what is given overrides it."""

    name: str | None = None
    """``grpo``, ``dr_grpo``, ``dapo``, ``rloo``, ``reinforce++``, ``gspo``, ``sapo``, ``cispo``, ``gmpo``; None: GRPO
    without division by the deviation, with DAPO's bounds and its mean over tokens."""
    estimator: Estimator | None = None
    advantage: str | None = None
    """Another estimator: a name of the entry point ``agent_layer.advantages``, or ``module:attribute``."""
    advantage_options: Options = {}
    scale_by_std: bool | None = None
    """Divide advantages by the deviation of their group (estimator ``grpo`` only)."""
    loss: str | None = None
    """``vanilla``, ``gspo``, ``sapo``, ``cispo``, ``geo_mean``, ``reinforce``; of veRL ``dppo_tv``, ``dppo_kl`` or
    ``dro``; a name of the entry point ``agent_layer.losses``, or ``module:attribute``."""
    loss_options: Options = {}
    """Keyword arguments of a loss that is not one of the first six."""
    loss_mean: LossMean | None = None
    loss_scale_factor: AboveZero | None = None
    """Divisor of ``seq-mean-token-sum-norm``, a constant such as the most tokens that a rollout may sample; None: 3000
    (Dr. GRPO)."""
    clip_low: NotNegative | None = None
    clip_high: NotNegative | None = None
    """Bounds of the ratio; None: those of the algorithm, or of ``loss`` where it replaces the algorithm's."""
    clip_dual: Annotated[float, Meta(gt=1)] | None = None
    """Bound of the ratio where the advantage is negative (loss ``vanilla`` only; Ye et al. 2020); None: 3."""
    tau_positive: AboveZero | None = None
    tau_negative: AboveZero | None = None
    """Temperatures of the gate of ``sapo``."""
    entropy: Schedule = Schedule(start=0.0)
    """Coefficient of the entropy bonus."""
    kl: NotNegative | None = None
    """Coefficient of the KL penalty towards the first weights; above 0 a second copy of the model is in memory."""
    kl_estimator: KlEstimator | None = None
    correction: CorrectionConfig = CorrectionConfig()
    credit: Credit = "rollout"
    """``rollout``, ``turn``, ``agent``, a name of the entry point ``agent_layer.credits``, or ``module:attribute``."""
    credit_options: Options = {}
    discount: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Weight of a reward for the turn before it (credit ``turn`` only)."""
    overlong_penalty: OverlongPenalty | None = None
    distill: DistillConfig | None = None
    """None: no teacher."""
