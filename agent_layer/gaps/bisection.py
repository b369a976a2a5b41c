"""Bisection of a gap: from a trajectory or an update to the first token that differs, and why.

    trajectory, or the one of an update with the largest gap
        └─ the step that the trainer computed otherwise; without an update, all of them
              └─ cache probe ─▶ scores on each engine and model ─▶ scores on each version that a spare engine loads
                    └─ name_cause, until a step has one

Engines that serve a run are only asked; versions are loaded into an engine that is not registered.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from socket import SOCK_STREAM, getaddrinfo
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from agent_layer.engines import (
    EngineRegistry,
    TeacherEngine,
    find_unreproducible,
    get_policy,
    open_engine_registry,
    read_model_list,
)
from agent_layer.errors import BadInputError, EngineError, NotFoundError
from agent_layer.gaps.causes import Cause, Evidence, Reading, TemplateGap, find_difference, name_cause
from agent_layer.gaps.replay import compare_template, probe_cache, score_response
from agent_layer.schema import Logprobs, PolicyRun, Step, TokenIds, Trajectory, resolve
from agent_layer.settings import Settings
from agent_layer.store import Store, list_batches

T = TypeVar("T")


class BisectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how exactly to look."""

    engines: Sequence[str] = ()
    """Addresses without /v1; none: the registered ones of the run."""
    versions: Sequence[int] = ()
    """Loaded one by one into the only engine, which keeps the last; none: engines are asked as they are."""
    tolerance: float = 0.1
    """Largest difference of two log-probabilities that are taken as equal, as bfloat16 needs; float32 needs 0.02."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a bisection found."""

    trajectory_id: str
    step: int | None
    """Index; None: no step differs."""
    token: int | None
    """Position among the step's sampled tokens of the first that differs; None: none of them does."""
    token_id: int | None = None
    text: str | None = None
    """Text of that token; None: the vocabulary is not stored."""
    sampled: float | None = None
    """Log-probability of that token at sampling."""
    trained: float | None = None
    """The same by the trainer; None: no update learned from it."""
    replayed: dict[str, float] = {}
    """The same now, by engine, model and version that was asked."""
    cause: Cause
    sentence: str


class _Target(NamedTuple):
    """An engine and a model of it to ask."""

    engine: TeacherEngine
    is_other_model: bool
    version: int | None
    is_loaded: bool = False


def bisect_gap(settings: Settings, store: Store, subject: str, options: BisectOptions) -> Finding:
    """Find the first token of a trajectory that differs, and its likely cause.

    Args:
        settings: of the namespace.
        store: has the trajectory.
        subject: id of a trajectory, or RUN:STEP for the one of that update with the largest gap.
        options: engines, versions, tolerance.

    Raises:
        BadInputError: it has no tokens that can be replayed, or a version cannot be loaded there.
        NotFoundError: there is no such trajectory or update.
        EngineError: an engine refuses the tokens. UnreachableError: an engine or the store does not answer.
    """
    trajectory = _find_subject(store, subject)
    gaps = {one.index: _measure_gap(store, trajectory, one) for one in trajectory.steps}
    suspects = [one for one in trajectory.steps if (gaps[one.index] or 0.0) > options.tolerance]
    suspects = suspects or [one for one in trajectory.steps if gaps[one.index] is None]
    steps = [one for one in suspects if one.prompt_token_ids and one.action.logprobs and _is_plain(one)]
    if not steps and (suspects or not gaps):
        raise BadInputError(
            f"bisect {subject}: expected steps with token ids and log-probabilities at temperature 1, of the whole"
            " distribution, found none to examine; engines replay no others"
        )
    registry = open_engine_registry(settings, store.redis)
    urls = _list_engines(registry, trajectory.steps[0].run, options)
    for step in steps:
        found = _examine(store, registry, trajectory, step, urls, options)
        if found.cause != "none":
            return found
    nothing = "no token differs"
    return Finding(trajectory_id=trajectory.trajectory_id, step=None, token=None, cause="none", sentence=nothing)


def _is_plain(step: Step) -> bool:
    """Whether its log-probabilities are of the distribution as it is, which engines can compute again."""
    is_neutral = step.temperature in (None, 1.0) and not find_unreproducible(step.sampling_applied or {})
    return is_neutral or step.logprobs_mode == "raw"


def _find_subject(store: Store, subject: str) -> Trajectory:
    run, colon, number = subject.rpartition(":")
    if not (colon and number.isdecimal()):
        return store.get(subject)
    batches = [one for one in list_batches(store.redis, store.keys, run) if one.step == int(number)]
    if not batches:
        raise NotFoundError(
            f"update {number} of run {run!r}: it is not stored; 'agent-layer cost --by run,update' lists them"
        )
    found = [store.get(one.trajectory_id) for one in batches[0].rollouts]
    if not found:
        raise NotFoundError(f"update {number} of run {run!r}: the trajectories that it learned from were deleted")
    return max(found, key=lambda one: max((_measure_gap(store, one, step) or 0.0 for step in one.steps), default=0.0))


def _measure_gap(store: Store, trajectory: Trajectory, step: Step) -> float | None:
    """Return the largest difference between engine and trainer in a step; None: no update learned from it."""
    tokens = store.step_tokens(trajectory, step.index)
    pairs = zip(tokens.logprobs or (), tokens.trained_logprobs, strict=False)
    gaps = [abs(one - two) for one, two in pairs]
    return max((math.inf if math.isnan(gap) else gap for gap in gaps), default=None)


def _examine(
    store: Store,
    registry: EngineRegistry,
    trajectory: Trajectory,
    step: Step,
    urls: Sequence[str],
    options: BisectOptions,
) -> Finding:
    tokens = store.step_tokens(trajectory, step.index)
    trained = next((one for one in reversed(trajectory.trained) if one.step == tokens.update), None)
    sampled = tokens.logprobs or Logprobs()
    first = find_difference(sampled, tokens.trained_logprobs, options.tolerance) or 0
    version, start, end = _find_run(step.action.policy_versions or [], first, len(sampled))
    prompt, response = step.prompt_token_ids or TokenIds(), tokens.token_ids
    targets = [one for url in urls for one in _list_models(registry, url, step)]
    serving = [one.engine for one in targets if not one.is_other_model]
    cache = _first(probe_cache(one, prompt, options.tolerance) for one in serving)  # before the scores
    template = _first(_compare_template(store, trajectory, step, one) for one in serving)
    readings: list[Reading] = []
    for engine, is_other_model, number, is_loaded in chain(targets, _load_versions(store, registry, step, options)):
        logprobs = Logprobs(score_response(engine, prompt, response)[start:end])
        reading = Reading(engine=engine.url, model=engine.model, is_other_model=is_other_model, logprobs=logprobs)
        rendered = None
        if template is not None and not is_other_model:
            rendered = Logprobs(score_response(engine, template.prompt, response)[start:end])
        readings.append(msgspec.structs.replace(reading, version=number, is_loaded=is_loaded, rendered=rendered))
    evidence = Evidence(
        version=version,
        sampled=Logprobs(sampled[start:end]),
        trained=None if trained is None else Logprobs(tokens.trained_logprobs[start:end]),
        trained_version=trained and trained.policy_version,
        readings=readings,
        template=template,
        cache=cache,
        num_cached=step.usage.cached_tokens if step.usage else None,
    )
    cause, sentence, at = name_cause(evidence, options.tolerance)
    found = Finding(trajectory_id=step.trajectory_id, step=step.index, token=None, cause=cause, sentence=sentence)
    if at is None:
        return found
    place = start + at
    text = tokens.texts[place]
    return msgspec.structs.replace(
        found,
        token=place,
        token_id=tokens.token_ids[place],
        text=None if text is None else text.decode("utf-8", "replace"),
        sampled=sampled[place],
        trained=tokens.trained_logprobs[place] if place < len(tokens.trained_logprobs) else None,
        replayed={str(one): one.logprobs[at] for one in readings},
    )


def _find_run(  # kept: its result has a meaning of its own
    runs: Sequence[PolicyRun], token: int, num_tokens: int
) -> tuple[int | None, int, int]:
    """Return the version that sampled a token, and where its tokens begin and end."""
    start = 0
    for version, size in runs:
        if token < start + size:
            return version, start, start + size
        start += size
    return None, 0, num_tokens


def _list_engines(registry: EngineRegistry, run: str, options: BisectOptions) -> list[str]:
    """Return the addresses to ask as they are: those given; where versions are loaded, the run's, if it has any."""
    registered = {one.url: one.run for one in registry.engines()}
    own = [url for url, its_run in registered.items() if its_run == run]
    if options.versions and (len(options.engines) != 1 or any(_is_same(options.engines[0], url) for url in registered)):
        raise BadInputError(
            "bisect: versions are loaded into one engine that serves no run; name it with --engine URL, and remove"
            " it from rotation before with 'agent-layer engines leave'"
        )
    if not own and not options.engines:
        raise BadInputError(f"bisect: run {run!r} has no registered engine to ask; name one with --engine URL")
    return own if own and (options.versions or not options.engines) else list(options.engines)


def _is_same(one: str, two: str) -> bool:
    """Whether two addresses lead to one server, as localhost and 127.0.0.1 do."""
    return one == two or not _resolve(one).isdisjoint(_resolve(two))


def _resolve(url: str) -> set[tuple[str, int]]:
    parts = urlsplit(url)
    try:
        found = getaddrinfo(parts.hostname, parts.port or parts.scheme, type=SOCK_STREAM)
    except OSError:
        return set()  # it is only known by another machine
    return {(str(place[0]), int(place[1])) for *_, place in found}


def _list_models(registry: EngineRegistry, url: str, step: Step, version: int | None = None) -> Iterator[_Target]:
    """Yield the models of an engine. One beside that of the step is an adapter, or the model below it."""
    entry, key = registry.read(url), registry.control(url).access_key
    names = read_model_list(url, key, key_names="the key with which the engine was registered")
    own = step.model if step.model in names else entry.model if entry else next(iter(names), None)
    for name in names:
        known = entry.version if entry is not None and name == entry.model else None
        known = version if name == own and version is not None else known
        yield _Target(TeacherEngine(url, name, key, noun="engine"), name != own, known, version is not None)


def _load_versions(store: Store, registry: EngineRegistry, step: Step, options: BisectOptions) -> Iterator[_Target]:
    """Yield the models of the only engine, with one version loaded after the other."""
    for number in options.versions:
        policy, (url,) = get_policy(store.redis, store.keys, step.run, number), options.engines
        if policy is None or not Path(policy.location).is_dir():
            found = "it is not registered" if policy is None else f"{policy.location!r} is no directory here"
            raise BadInputError(f"bisect: version {number} of run {step.run!r} cannot be loaded, {found}; leave it out")
        model = registry.control(url).load(Path(policy.location))
        yield from _list_models(registry, url, msgspec.structs.replace(step, model=model), number)


def _compare_template(store: Store, trajectory: Trajectory, step: Step, engine: TeacherEngine) -> TemplateGap | None:
    """Compare how an engine renders the beginning of a conversation, unless its template is known to be the same.

    Later prompts hold earlier answers as they were sampled, which no template renders.
    """
    prompt = step.prompt_token_ids
    if step.prompt is None or step.prompt.parent_call is not None or not step.state.messages or prompt is None:
        return None
    contents = store.contents(trajectory)
    messages = [resolve(contents, one) for one in step.state.messages]
    tools = resolve(contents, step.state.tools) if step.state.tools else None
    try:
        return compare_template(engine, prompt, messages, tools, step.sampling_applied or {})
    except EngineError:
        return None  # a template may refuse messages that the gateway rearranged before it sent them


def _first(found: Iterable[T | None]) -> T | None:
    return next((one for one in found if one is not None), None)
