"""The likely cause of a gap, from log-probabilities of the same tokens by several computations. Pure.

An engine's numbers at sampling are compared with those that engines compute for the same ids now, token by token:

    sampled = its version, loaded again    the engine was right: the trainer differs
        trainer = behind rendered messages     another template
        trainer = another version's reading    other weights
    sampled = another version's reading    stale weights
    sampled = another model's reading      wrong adapter
    sampled = no reading, and an answer    prefix cache kept over a switch
              with cache differs from one without

A cause is named by what equals, never because nothing else does; without a reading of its version there is none.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from agent_layer.schema import Logprobs, TokenIds

Cause: TypeAlias = Literal[
    "none", "template", "stale_weights", "wrong_adapter", "kept_cache", "trainer_version", "trainer", "unknown"
]


_REPLAY = "--engine URL --versions"


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
    rendered: Logprobs | None = None
    """[num_tokens], behind the prompt of a ``TemplateGap``; None: not asked."""

    def __str__(self) -> str:
        is_certain = self.is_loaded and self.version is not None
        source = f"version {self.version}" if is_certain else "the weights that it has"
        return f"{self.model} at {self.engine} with {source}"


class TemplateGap(NamedTuple):
    """The first token by which an engine renders recorded messages otherwise than they were recorded."""

    engine: str
    position: int
    recorded: int | None
    """Token id; None: the recorded prompt ends there."""
    rendered: int | None
    prompt: TokenIds
    """[num_prompt_tokens], as the engine renders them."""


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
    token = find_difference(found.sampled, found.trained or (), tolerance)
    right = _find_equal(found.sampled, own, tolerance)
    if token is None and (found.trained or right or not own):
        return Verdict("none", "no token differs", None)
    if not own:
        known = "the step names no version" if found.version is None else f"nothing computed version {found.version}"
        return Verdict("unknown", f"{known}; load the versions that may have sampled it: {_REPLAY} LO..HI", token)
    if right is None:
        return _blame_engine(found, find_difference(found.sampled, own[0].logprobs, tolerance), tolerance)
    return _blame_trainer(found, right, token, tolerance)


def _blame_trainer(found: Evidence, right: Reading, token: int | None, tolerance: float) -> Verdict:
    trained, same = found.trained or Logprobs(), [one for one in found.readings if not one.is_other_model]
    rendered = [one.rendered for one in same if one.rendered]
    if found.template and any(find_difference(trained, one, tolerance) is None for one in rendered):
        engine, position, recorded, other, _ = found.template
        sentence = f"prompt token {position} is {recorded}, and {engine} renders {other} there, as the trainer did"
        return Verdict("template", f"another template: {sentence}", token)
    if not right.is_loaded:
        sentence = f"{right} still computes what was sampled; to tell whether that is version {found.version}, load it"
        return Verdict("unknown", f"{sentence} into another engine: {_REPLAY} {found.version}..{found.version}", token)
    if (used := _find_equal(trained, same, tolerance)) is not None:
        sentence = f"the trainer's numbers are those of {used}; it computed with other weights"
        return Verdict("trainer_version", f"the engine was right, and {sentence}", token)
    number = found.trained_version
    if not any(one.is_loaded and one.version == number for one in same):
        sentence = f"the engine was right, and the trainer computed with version {number}, so a gap is expected"
        return Verdict("unknown", f"{sentence}; to tell whether that explains it, load that: {_REPLAY} LO..HI", token)
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
    sentence = f"sampled by none of {', '.join(map(str, found.readings))}; load more versions: {_REPLAY} LO..HI"
    if found.num_cached:
        sentence += f"; {found.num_cached} tokens of its prompt came from the cache, which may have been kept too long"
    return Verdict("unknown", sentence, token)


def _find_equal(row: Sequence[float], readings: Iterable[Reading], tolerance: float) -> Reading | None:
    equal = [one for one in readings if find_difference(row, one.logprobs, tolerance) is None]
    return min(equal, key=lambda one: not one.is_loaded, default=None)
