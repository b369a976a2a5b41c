"""The likely cause of a gap, from log-probabilities of the same tokens by several computations. Pure.

An engine's numbers at sampling are compared with those that engines compute for the same ids now, token by token:

    sampled = its version, loaded again    the engine was right: a template or the trainer differs
    sampled = another version's reading    stale weights
    sampled = another model's reading      wrong adapter
    sampled = no reading, and an answer    prefix cache kept over a switch
              with cache differs from one without
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from agent_layer.schema import Logprobs

Cause: TypeAlias = Literal[
    "none", "template", "stale_weights", "wrong_adapter", "kept_cache", "trainer_version", "trainer", "unknown"
]


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Log-probabilities of recorded tokens, computed again by an engine without its prefix cache."""

    engine: str
    model: str
    is_other_model: bool = False
    """Whether the engine serves it beside the model that the step names."""
    version: int | None = None
    """Policy version of the weights; None: not known."""
    is_loaded: bool = False
    """Whether that version was loaded to be read; otherwise it is the engine's word, which stale weights belie."""
    logprobs: Logprobs
    """[num_tokens]."""

    def __str__(self) -> str:
        source = f"version {self.version}" if self.is_loaded else "the weights that it has"
        return f"{self.model} at {self.engine} with {source}"


class TemplateGap(NamedTuple):
    """The first token by which an engine renders recorded messages otherwise than they were recorded."""

    engine: str
    position: int
    recorded: int | None
    """Token id; None: the recorded prompt ends there."""
    rendered: int | None


class CacheGap(NamedTuple):
    """The next token of a recorded prompt, with an engine's prefix cache and without it."""

    engine: str
    cached: float
    fresh: float


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the tokens of one step that one version sampled."""

    version: int | None
    """The version that the step names."""
    sampled: Logprobs
    """[num_tokens], of the engine at sampling."""
    trained: Logprobs | None = None
    """[at most num_tokens], of the trainer; None: no update learned from the step."""
    trained_version: int | None = None
    readings: Sequence[Reading] = ()
    template: TemplateGap | None = None
    cache: CacheGap | None = None
    num_cached: int | None = None
    """Prompt tokens that the engine had cached at sampling; None: not known."""


class Verdict(NamedTuple):
    """The likely cause, and the token that shows it."""

    cause: Cause
    sentence: str
    token: int | None
    """Position among the sampled tokens; None: none of them differs."""


def find_difference(one: Sequence[float], two: Sequence[float], tolerance: float) -> int | None:
    """Return the first position at which two rows differ by more than the tolerance, as far as both go; None: none."""
    pairs = enumerate(zip(one, two, strict=False))
    return next((at for at, (first, second) in pairs if not abs(first - second) <= tolerance), None)


def name_cause(found: Evidence, tolerance: float) -> Verdict:
    """Return the likely cause of a gap, or that there is none."""
    own = [one for one in found.readings if not one.is_other_model and one.version == found.version is not None]
    own = [one for one in own if one.is_loaded] or own
    is_trained_alike = found.trained_version == found.version
    trained_gap = None if found.trained is None else find_difference(found.sampled, found.trained, tolerance)
    right = _find_equal(found.sampled, own, tolerance)
    if trained_gap is None and (right is not None or not own):
        return _name_template(found) or Verdict("none", "no token differs", None)
    if right is not None and not right.is_loaded and found.template is None:
        sentence = (
            f"{right} still computes what was sampled; to tell whether that is version {found.version}, replay it"
        )
        return Verdict("unknown", f"{sentence} on another engine: --engine URL --versions {found.version}", trained_gap)
    if right is not None:
        return _blame_trainer(found, right, trained_gap, tolerance)
    if not own and not is_trained_alike:
        sentence = f"the trainer computed with version {found.trained_version}, so a gap is expected; replay on version"
        return Verdict("unknown", f"{sentence} {found.version}: --engine URL --versions {found.version}", trained_gap)
    token = find_difference(found.sampled, own[0].logprobs, tolerance) if own else trained_gap
    return _blame_engine(found, token, tolerance)


def _blame_trainer(found: Evidence, right: Reading, token: int | None, tolerance: float) -> Verdict:
    if (template := _name_template(found, token)) is not None:
        return template
    others = [one for one in found.readings if one is not right and not one.is_other_model]
    used = _find_equal(found.trained or (), others, tolerance)
    if used is not None:
        sentence = (
            f"the engine was right, and the trainer's numbers are those of {used}; it computed with other weights"
        )
        return Verdict("trainer_version", sentence, token)
    if found.trained_version != found.version:
        sentence = f"the trainer computed with version {found.trained_version}, so a gap is expected"
        return Verdict("none", f"the engine was right; {sentence}", token)
    sentence = f"the engine was right, as {right} confirms; the trainer's numbers differ: look at its precision,"
    return Verdict("trainer", f"{sentence} attention and temperature", token)


def _blame_engine(found: Evidence, token: int | None, tolerance: float) -> Verdict:
    same = [one for one in found.readings if not one.is_other_model]
    if (stale := _find_equal(found.sampled, same, tolerance)) is not None:
        sentence = f"sampled by {stale}, recorded as version {found.version}: the engine had not loaded it"
        return Verdict("stale_weights", sentence, token)
    others = [one for one in found.readings if one.is_other_model]
    if (other := _find_equal(found.sampled, others, tolerance)) is not None:
        return Verdict("wrong_adapter", f"sampled by another model: {other}", token)
    if found.cache is not None:
        engine, cached, fresh = found.cache
        sentence = f"{engine} still answers {cached:.4f} from its cache where it computes {fresh:.4f}"
        return Verdict("kept_cache", f"prefix cache kept over a switch of weights: {sentence}", token)
    if found.num_cached:
        sentence = f"no reading equals it, and {found.num_cached} tokens of its prompt came from the cache"
        return Verdict("kept_cache", f"probably a prefix cache kept over a switch of weights: {sentence}", token)
    tried = ", ".join(map(str, found.readings)) or "no engine"
    return Verdict(
        "unknown", f"sampled by none of {tried}; replay on more versions: --engine URL --versions LO..HI", token
    )


def _name_template(found: Evidence, token: int | None = None) -> Verdict | None:
    if found.template is None:
        return None
    engine, position, recorded, rendered = found.template
    sentence = f"another template: prompt token {position} is {recorded}, and {engine} renders {rendered} there"
    return Verdict("template", sentence, token)


def _find_equal(row: Sequence[float], readings: Iterable[Reading], tolerance: float) -> Reading | None:
    equal = [one for one in readings if find_difference(row, one.logprobs, tolerance) is None]
    return min(equal, key=lambda one: not one.is_loaded, default=None)
