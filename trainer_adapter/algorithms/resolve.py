"""What the options of a run amount to, once the defaults of its algorithm are in place."""

from collections.abc import Mapping
from typing import Final, TypeVar, get_args

import msgspec

from agent_layer.errors import BadInputError
from trainer_adapter.algorithms.options import (
    AlgorithmConfig,
    CorrectionConfig,
    Credit,
    DistillConfig,
    Options,
    OverlongPenalty,
    RejectionRule,
)
from trainer_adapter.algorithms.papers import ALGORITHMS, CLIP_BOUNDS, DEFAULT, Estimator, KlEstimator, Loss, LossMean
from trainer_adapter.algorithms.plug_ins import ADVANTAGES, CREDITS, LOSSES, VERL_LOSSES, find_part
from trainer_adapter.algorithms.schedule import Schedule

_Value = TypeVar("_Value")

_LOSS_SCALE_FACTOR: Final = 3000.0
"""Dr. GRPO's generation budget."""
_TAU_POSITIVE, _TAU_NEGATIVE = 1.0, 1.05
"""SAPO's."""
_CLIP_DUAL: Final = 3.0
"""veRL's."""
_LOSSES: Final[tuple[str, ...]] = get_args(Loss)
_ESTIMATORS: Final[tuple[str, ...]] = get_args(Estimator)
_CREDITS: Final = ("rollout", "turn", "agent")


class ResolvedAlgorithm(msgspec.Struct, frozen=True, kw_only=True):
    """Every choice of an algorithm, with nothing left open. Fields mean what they do in ``AlgorithmConfig``."""

    name: str
    paper: str
    estimator: Estimator
    advantage: str | None
    """None: ``estimator``."""
    advantage_options: Options
    scale_by_std: bool
    loss: str
    loss_options: Options
    """Keyword arguments of the loss, of whichever kind it is."""
    loss_mean: LossMean
    loss_scale_factor: float | None
    """None: the mean has no such divisor."""
    clip_low: float | None
    clip_high: float | None
    """None: the loss has no bounds."""
    clip_dual: float | None
    tau_positive: float | None
    tau_negative: float | None
    entropy: Schedule
    kl: float
    kl_estimator: KlEstimator
    correction: CorrectionConfig
    credit: Credit
    credit_options: Options
    discount: float
    overlong_penalty: OverlongPenalty | None
    distill: DistillConfig | None
    resamples_equal: bool
    compares_groups: bool
    """Whether the baseline is the group, so that a group of equal values has no advantages."""
    has_rollout_value: bool
    """Whether the loss needs one number of a whole rollout, such as its ratio, whatever the number of its rows."""

    def is_regularised(self, step: int, run_steps: int) -> bool:
        """Whether a sample whose reward gives no advantage still changes the weights at this step."""
        return self.distill is not None or self.kl > 0 or self.entropy.value_at(step, run_steps) > 0


def resolve_algorithm(options: AlgorithmConfig) -> ResolvedAlgorithm:
    """Return the options with the algorithm's defaults in place of those that are None.

    Raises: BadInputError: no algorithm has the name, or an option has no effect beside the others.
    """
    if options.name is not None and options.name not in ALGORITHMS:
        raise BadInputError(f"algorithm.name: expected one of {', '.join(ALGORITHMS)}, found {options.name!r}")
    _refuse_unknown_parts(options)
    algorithm = DEFAULT if options.name is None else ALGORITHMS[options.name]
    loss = options.loss or algorithm.loss
    clip_low, clip_high = CLIP_BOUNDS.get(loss, (None, None))  # of the loss that replaces the algorithm's
    if loss == algorithm.loss:
        clip_low, clip_high = algorithm.clip_low, algorithm.clip_high
    is_sapo = loss == "sapo"
    resolved = ResolvedAlgorithm(
        name=algorithm.name,
        paper=algorithm.paper,
        estimator=options.estimator or algorithm.estimator,
        advantage=options.advantage,
        advantage_options=options.advantage_options,
        scale_by_std=_or(options.scale_by_std, algorithm.scale_by_std),
        loss=loss,
        loss_options=options.loss_options,
        loss_mean=options.loss_mean or algorithm.loss_mean,
        loss_scale_factor=options.loss_scale_factor or algorithm.loss_scale_factor or _LOSS_SCALE_FACTOR,
        clip_low=_or(options.clip_low, clip_low),
        clip_high=_or(options.clip_high, clip_high),
        clip_dual=_or(options.clip_dual, _CLIP_DUAL) if loss == "vanilla" else None,
        tau_positive=options.tau_positive or algorithm.tau_positive or _TAU_POSITIVE if is_sapo else None,
        tau_negative=options.tau_negative or algorithm.tau_negative or _TAU_NEGATIVE if is_sapo else None,
        entropy=options.entropy,
        kl=_or(options.kl, algorithm.kl),
        kl_estimator=options.kl_estimator or algorithm.kl_estimator,
        correction=options.correction,
        credit=options.credit,
        credit_options=options.credit_options,
        discount=options.discount,
        overlong_penalty=options.overlong_penalty,
        distill=options.distill,
        resamples_equal=algorithm.resamples_equal and options.distill is None,  # each group teaches
        compares_groups=_compares_groups(options, algorithm.estimator),
        has_rollout_value=_has_rollout_value(loss, options.loss_options),
    )
    if resolved.loss_mean != "seq-mean-token-sum-norm":
        resolved = msgspec.structs.replace(resolved, loss_scale_factor=None)
    if resolved.estimator != "grpo" or resolved.advantage is not None:
        resolved = msgspec.structs.replace(resolved, scale_by_std=False)
    _refuse_without_effect(options, resolved)
    return msgspec.structs.replace(resolved, loss_options=resolved.loss_options or _options_of_ours(resolved))


def _refuse_unknown_parts(options: AlgorithmConfig) -> None:  # kept: beside the refusal of what has no effect
    """Raise for the first loss, advantage or credit that there is not, or that does not take its options."""
    if options.advantage in _ESTIMATORS:
        raise BadInputError(f"algorithm.advantage {options.advantage!r}: it is one of ours; write it as 'estimator'")
    if options.advantage is not None:
        find_part(ADVANTAGES, options.advantage, options.advantage_options)
    if options.credit not in _CREDITS:
        find_part(CREDITS, options.credit, options.credit_options)
    if options.loss is not None and options.loss not in (*_LOSSES, *VERL_LOSSES):
        find_part(LOSSES, options.loss, options.loss_options)


def _compares_groups(options: AlgorithmConfig, estimator: Estimator) -> bool:
    if options.advantage is not None:
        found = find_part(ADVANTAGES, options.advantage, options.advantage_options)
        return bool(getattr(found, "compares_groups", True))
    return (options.estimator or estimator) != "reinforce++"


def _has_rollout_value(loss: str, options: Mapping[str, object]) -> bool:
    if loss in (*_LOSSES, *VERL_LOSSES):
        return loss in ("gspo", "geo_mean")
    return hasattr(find_part(LOSSES, loss, options), "rollout_value")


def _options_of_ours(resolved: ResolvedAlgorithm) -> Options:
    """Return the keyword arguments of a loss of ours."""
    bounds: Options = {"low": resolved.clip_low, "high": resolved.clip_high}
    match resolved.loss:
        case "vanilla":
            return {**bounds, "dual": resolved.clip_dual}
        case "gspo" | "cispo" | "geo_mean":
            return bounds
        case "sapo":
            return {"tau_positive": resolved.tau_positive, "tau_negative": resolved.tau_negative}
        case _:
            return {}


def _refuse_without_effect(options: AlgorithmConfig, resolved: ResolvedAlgorithm) -> None:
    """Raise for the first option that was given and changes nothing, or contradicts another."""
    has_bounds = resolved.loss in CLIP_BOUNDS
    faults = {
        "advantage: it takes the place of estimator and scale_by_std; leave these out": options.advantage is not None
        and (options.estimator is not None or bool(options.scale_by_std)),
        "advantage_options: there is no advantage that takes them; leave them out": bool(options.advantage_options)
        and options.advantage is None,
        f"loss_options: loss {resolved.loss!r} takes none; leave them out": bool(options.loss_options)
        and resolved.loss in _LOSSES,
        f"credit_options: credit {resolved.credit!r} takes none; leave them out": bool(options.credit_options)
        and resolved.credit in _CREDITS,
        f"clip_low and clip_high: loss {resolved.loss!r} has no bounds; leave them out": not has_bounds
        and (options.clip_low is not None or options.clip_high is not None),
        f"tau_positive and tau_negative: loss {resolved.loss!r} has no gate; leave them out": resolved.loss != "sapo"
        and (options.tau_positive is not None or options.tau_negative is not None),
        f"scale_by_std: estimator {resolved.estimator!r} never divides by a group's deviation; leave it out": bool(
            options.scale_by_std
        )
        and resolved.estimator != "grpo",
        "loss_scale_factor: only the mean 'seq-mean-token-sum-norm' divides by it; choose that mean or leave it out": (
            options.loss_scale_factor is not None and resolved.loss_scale_factor is None
        ),
        "discount: only credit 'turn' discounts; choose that credit or leave it out": options.discount != 1
        and options.credit != "turn",
        "credit: loss 'geo_mean' has one advantage for a whole rollout; choose credit 'rollout' or another loss": (
            options.credit != "rollout" and resolved.loss == "geo_mean"
        ),
        f"clip_dual: loss {resolved.loss!r} has no such bound; leave it out": options.clip_dual is not None
        and resolved.loss != "vanilla",
        "kl_estimator: without a KL penalty it estimates nothing; set kl or leave it out": (
            options.kl_estimator is not None and not resolved.kl
        ),
        "overlong_penalty.buffer_tokens: expected at most max_tokens": options.overlong_penalty is not None
        and options.overlong_penalty.buffer_tokens > options.overlong_penalty.max_tokens,
    }
    faults |= _faults_of_correction(resolved.correction, resolved.loss) | _faults_of_distillation(options, resolved)
    if found := [fault for fault, is_found in faults.items() if is_found]:
        raise BadInputError(f"algorithm.{found[0]}")


def _faults_of_correction(correction: CorrectionConfig, loss: str) -> dict[str, bool]:
    """Return what may be wrong with a correction, and whether it is."""
    rules = correction.reject
    is_clipped = correction.bypass and loss != "reinforce"
    shapes_weights = correction.lower is not None or correction.normalize
    return {
        "correction.lower: expected at most correction.upper": (correction.lower or 0) > correction.upper,
        "correction.lower and correction.normalize: without weights they change nothing; leave them out": (
            correction.weights is None and shapes_weights
        ),
        f"correction.bypass: loss {loss!r} has no weights beside it, because its ratio corrects already; leave out"
        " weights, lower and normalize": is_clipped and (correction.weights == "sequence" or shapes_weights),
        "correction.lower: loss 'geo_mean' takes the geometric mean of a rollout's weights, which a single 0 would make"
        " 0; leave it out, or reject by a rule": correction.lower is not None and loss == "geo_mean",
        "correction.reject: only the estimators k1 have a lower bound; leave it out": any(
            rule.lower is not None and not rule.by.endswith("k1") for rule in rules
        ),
        "correction.reject: expected a lower bound of at most the upper one, which without a lower bound is 1 or more"
        " for k1": any(_lowest(rule) > rule.upper for rule in rules),
        "correction.reject: expected each estimator once": len({rule.by for rule in rules}) < len(rules),
    }


def _faults_of_distillation(options: AlgorithmConfig, resolved: ResolvedAlgorithm) -> dict[str, bool]:
    """Return what may be wrong beside a teacher, and whether it is."""
    if options.distill is None:
        return {}
    of_rewards = {
        "estimator": options.estimator is not None,
        "advantage": options.advantage is not None,
        "scale_by_std": options.scale_by_std is not None,
        "credit": options.credit != "rollout",
        "overlong_penalty": options.overlong_penalty is not None,
    }
    faults = {
        "distill: loss 'geo_mean' has one advantage for a whole rollout, and a teacher gives each token its own; choose"
        " another loss": resolved.loss == "geo_mean",
    }
    return faults | {
        f"distill.replace_rewards: {name} is about rewards, which teach nothing then; leave one out": is_given
        and options.distill.replace_rewards
        for name, is_given in of_rewards.items()
    }


def _lowest(rule: RejectionRule) -> float:
    """Return the lower bound of a rule; 0: it has none."""
    if rule.by.endswith("k1"):
        return _or(rule.lower, 1 / rule.upper)
    return rule.lower or 0.0


def _or(given: _Value | None, default: _Value) -> _Value:
    return default if given is None else given
