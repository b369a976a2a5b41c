"""Sampling of the policy's calls in training rollouts: what a trainer cannot reproduce is replaced, refused or kept.

A grammar has no neutral value. It is left out, the form that it forces stands in the prompt (``arrangement``), and the
answer is the policy's: what its agent makes of a wrong one is the policy's failure.

Trainers take groups, so a rollout without a group keeps what its agent asks, with a finding. Eval rollouts, calls of
other agents (``aux``) and external models pass untouched.
"""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.engines import (
    GREEDY,
    NEUTRAL_SAMPLING,
    NEUTRALISED,
    UNREPRODUCIBLE,
    can_neutralise,
    find_unreproducible,
    neutral_value,
)
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.schema import JsonObject, as_json_object, as_json_objects

SamplingPolicy: TypeAlias = Literal["neutralise", "refuse_grammars", "refuse", "keep"]
"""See the setting ``unreproducible_sampling``."""

STRICT_TOOLS: Final = "tools.strict"
"""Lets vLLM restrict the arguments of tool calls to their schema."""
_TEMPERATURE: Final = "temperature"
_FREE: Final = {"tool_choice": "auto"}
"""What takes the place of a grammar; others are left out."""


class SettledSampling(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the sampling of one call."""

    changes: JsonObject
    """Put in place of what was asked, or added to it."""
    tools: list[JsonObject] | None = None
    """Sent in place of the request's; None: those are sent."""
    findings: list[str] = []


def settle_sampling(
    sampling: JsonObject, strict_tools: msgspec.Raw | None, policy: SamplingPolicy | None, subject: str
) -> SettledSampling:
    """Make the sampling of a call one that a trainer can reproduce, as far as the policy says.

    Fields that an engine would fill from its ``generation_config.json`` are always named.

    Args:
        sampling: asked by the agent, with the overrides of its task.
        strict_tools: JSON text of the request's, where one of them is strict; None: none is.
        policy: what happens to fields without which the sampling could be reproduced; None: the call is not trained.
        subject: names the rollout in an error.

    Raises: RefusedError: the policy refuses a field.
    """
    if policy is None:
        return SettledSampling(changes={})
    found = find_unreproducible(sampling)
    named = found if strict_tools is None else [*found, STRICT_TOOLS]
    missing = {name: value for name, value in NEUTRAL_SAMPLING.items() if sampling.get(name) is None}
    if policy == "keep" or not named:
        return SettledSampling(changes=missing, findings=[_kept(name) for name in named])
    grammars = [name for name in found if not can_neutralise(name)]
    if refused := {"refuse": named, "refuse_grammars": grammars}.get(policy):
        raise _refusal(subject, refused)
    free = {name: neutral_value(name) if can_neutralise(name) else _FREE.get(name) for name in found}
    return SettledSampling(
        changes=missing | free,
        tools=None if strict_tools is None else _without_strict(strict_tools),
        findings=[f"{NEUTRALISED}:{name}" for name in named],
    )


def _kept(name: str) -> str:
    return GREEDY if name == _TEMPERATURE else f"{UNREPRODUCIBLE}:{name}"


def _without_strict(tools: msgspec.Raw) -> list[JsonObject]:
    return [_relax(tool) for tool in as_json_objects(msgspec.json.decode(tools))]


def _relax(tool: JsonObject) -> JsonObject:
    relaxed = {name: value for name, value in tool.items() if name != "strict"}
    if "function" in tool:
        function = as_json_object(tool["function"])
        relaxed["function"] = {name: value for name, value in function.items() if name != "strict"}
    return relaxed


def _refusal(subject: str, names: Iterable[str]) -> RefusedError:
    return RefusedError(
        400,
        "unreproducible_sampling",
        f"{subject}: expected sampling that a trainer can reproduce, found {', '.join(names)}; leave it out (ask for a"
        " format in the prompt, and check it in the agent or the scorer), give a judge's call the role 'aux', ask with"
        " split 'eval', or set AGENT_LAYER_UNREPRODUCIBLE_SAMPLING=neutralise, which lets the policy answer freely",
    )
