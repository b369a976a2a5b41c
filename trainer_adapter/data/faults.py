"""What keeps a rollout from being trained exactly: a step lacks something, or the trainer cannot compute how likely its
tokens were.

One such step excludes its whole rollout: a reward that follows from all steps must not teach a part of them. A step
that a grammar guided is left out alone, as a judge's is: the grammar chose with the policy, which the others did not.
"""

from collections.abc import Iterator
from itertools import chain
from math import inf, isfinite
from typing import NamedTuple

from agent_layer.engines import (
    BAD_LOGPROBS,
    GRAMMARS,
    GREEDY,
    LOWEST_TEMPERATURE,
    NO_LOGPROBS,
    RAW_LOGPROBS,
    SMALLEST_LOGPROB,
    UNREPRODUCIBLE,
    find_unreproducible,
)
from agent_layer.schema import DISAGREES, MEDIA, ExcludedRollout, Step, Trajectory

_CAPTURE = (
    "call the policy through the gateway, from an engine that returns token ids; a judge or assistant needs the role"
    " 'aux'"
)
_SAMPLING = "set rollouts.temperature of the training, or sampling.temperature of its tasks"
_PROCESSED = (
    "start vLLM with --logprobs-mode=processed_logprobs and set AGENT_LAYER_LOGPROBS_MODE=processed, or sample at"
    " temperature 1"
)
_ENGINE = "look at the engine's version and log: what it sent contradicts itself"
_TEXT_ALONE = "describe them in text, or train with a trainer that reads them"
_NEUTRAL = "leave it out, or let the gateway replace or refuse it: AGENT_LAYER_UNREPRODUCIBLE_SAMPLING"


_GUIDED = frozenset(f"{UNREPRODUCIBLE}:{name}" for name in (*GRAMMARS, "tools.strict"))
"""Kinds of what a grammar guided."""


class _Fault(NamedTuple):
    kind: str
    need: str
    remedy: str


def find_faults(trajectory: Trajectory) -> ExcludedRollout | dict[tuple[str, int], str]:
    """Return why the steps of a rollout cannot be trained exactly, by the first faulty one.

    Only successful steps of the policy count: those that were cut off are not trained anyway.

    Returns: where they can be trained, the kinds of fault of steps that are left out, by call id and choice.
    """
    guided: dict[tuple[str, int], str] = {}
    first: ExcludedRollout | None = None
    num_free = 0
    for step in trajectory.steps:
        if step.role != "policy" or step.status != "ok":
            continue
        if not (faults := list(_faults(step))):
            num_free += bool(step.action.response_token_ids)
            continue
        needs = " and ".join(dict.fromkeys(fault.need for fault in faults))
        reason = f"step {step.call_id}: training needs {needs}, but found {_found(step)}; {faults[0].remedy}"
        found = exclude(trajectory, faults[0].kind, reason)
        if any(fault.kind not in _GUIDED for fault in faults):
            return found
        guided[step.call_id, step.choice] = faults[0].kind
        first = first or found
    return first if first is not None and not num_free else guided


def exclude(trajectory: Trajectory, kind: str, reason: str) -> ExcludedRollout:
    """Return the record of a rollout that is left out for a reason, in words that follow its name."""
    subject = trajectory.trajectory_id
    return ExcludedRollout(trajectory_id=subject, kind=kind, reason=f"trajectory {subject}: {reason}")


def _faults(step: Step) -> Iterator[_Fault]:
    num_tokens = len(step.action.response_token_ids or ())
    yield from _capture_faults(step, num_tokens)
    if num_tokens:
        yield from _sampling_faults(step)
        yield from _logprob_faults(step)


def _capture_faults(step: Step, num_tokens: int) -> Iterator[_Fault]:
    action = step.action
    for kind in sorted({*MEDIA.values()}.intersection(step.findings)):
        yield _Fault(kind, f"a prompt without {kind}, which its rows of token ids cannot hold", _TEXT_ALONE)
    for finding in step.findings:
        if finding.partition(":")[0] == DISAGREES:
            yield _Fault(finding, f"an answer that agrees with itself (found {finding})", _ENGINE)
    if not step.prompt_token_ids:
        yield _Fault("no_token_ids", "the ids of its prompt", _CAPTURE)
    if action.response_token_ids is None:
        yield _Fault("no_token_ids", "the ids of its answer", _CAPTURE)
    if len(action.logprobs or ()) != num_tokens:
        yield _Fault(NO_LOGPROBS, "a log-probability for each sampled token", _CAPTURE)
    runs = action.policy_versions or ()
    if sum(number for _, number in runs) != num_tokens or any(min(run) < 0 for run in runs):
        yield _Fault("no_policy_version", "a policy version for each sampled token", _CAPTURE)


def _sampling_faults(step: Step) -> Iterator[_Fault]:
    if step.temperature is None:  # the engine's own, whatever that was
        yield _Fault("unknown_temperature", "the temperature at which it was sampled", _SAMPLING)
    if step.temperature is not None and not LOWEST_TEMPERATURE <= step.temperature < inf:  # NaN passes no comparison
        yield _Fault(GREEDY, f"a temperature above 0, at least {LOWEST_TEMPERATURE}", _SAMPLING)
    sampling = step.sampling_asked if step.sampling_applied is None else step.sampling_applied
    seen = (one.partition(":") for one in step.findings)
    found = [field.strip() for name, _, field in seen if name == UNREPRODUCIBLE]
    for name in dict.fromkeys(chain(found, find_unreproducible(sampling or {}))):
        if name != "temperature":
            yield _Fault(f"{UNREPRODUCIBLE}:{name}", f"sampling without {name}, which it cannot reproduce", _NEUTRAL)


def _logprob_faults(step: Step) -> Iterator[_Fault]:
    logprobs, is_scaled = step.action.logprobs, step.temperature not in (None, 1)
    # the sum of finite float32 numbers is finite, and NaN passes every comparison
    if logprobs and not (isfinite(sum(logprobs)) and SMALLEST_LOGPROB < min(logprobs) <= max(logprobs) <= 0):
        need = f"log-probabilities above {SMALLEST_LOGPROB:g} and at most 0"
        yield _Fault(BAD_LOGPROBS, need, "look at the engine's log")
    if is_scaled and step.logprobs_mode == "raw":
        yield _Fault(RAW_LOGPROBS, "processed log-probabilities, as its temperature is not 1", _PROCESSED)
    if is_scaled and step.logprobs_mode is None:
        need = "the kind of its log-probabilities, raw or processed, as its temperature is not 1"
        yield _Fault("unknown_logprobs", need, _CAPTURE)


def _found(step: Step) -> str:
    """Return what is known of a step, for an error."""
    temperature = "unknown" if step.temperature is None else f"{step.temperature:g}"
    return (
        f"capture level {step.capture_level!r} from {', '.join(step.sources) or 'no layer'}, temperature {temperature},"
        f" {step.logprobs_mode or 'unknown'} log-probabilities"
    )
