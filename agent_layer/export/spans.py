"""Spans of a trajectory, by OpenTelemetry's GenAI conventions.

Pure: the same trajectory yields the same spans and ids, so a receiver can drop duplicates::

    invoke_agent {agent}          the attempt; its rewards are events
    ├── chat {model}              one for each call; its choices are steps, the first one's index is its attribute
    ├── execute_tool {name}       one for each observation
    └── invoke_agent {agent}      one for each further agent, with its own calls and tools below

A call made inside one of the agent's own spans is that span's child instead.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

import msgspec

from agent_layer import otel_names as names
from agent_layer.export.attributes import (
    AttributeValue,
    attempt_attributes,
    call_attributes,
    observation_attributes,
    reward_attributes,
)
from agent_layer.schema import Observation, Reward, Step, Trajectory, current_rewards, derive_span_id, derive_trace_id

Member: TypeAlias = Step | Observation

_FAILED = ("failed", "cancelled", "dead", "lost")


class ExportedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event inside a span."""

    name: str
    at: float
    attributes: dict[str, AttributeValue]


class ExportedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One span. Times are seconds since the epoch."""

    name: str
    span_id: str
    parent_id: str | None
    began_at: float
    ended_at: float
    attributes: dict[str, AttributeValue]
    events: list[ExportedEvent] = []
    is_client: bool = False
    """The work happens at a server."""
    error: str | None = None
    """Why it failed; None: it succeeded."""


class ExportedTrace(msgspec.Struct, frozen=True, kw_only=True):
    """All spans of one attempt, the root first."""

    trace_id: str
    state: str | None
    spans: list[ExportedSpan]


def make_trace(trajectory: Trajectory, *, contents: bool = False) -> ExportedTrace:
    """Return the spans of one attempt; if it still runs, the spans so far.

    Args:
        trajectory: whole.
        contents: also include messages, tool definitions, arguments and outputs.
    """
    begun_in = trajectory.started.trace if trajectory.started else None
    known = [begun_in.trace_id] if begun_in else [step.trace_id for step in trajectory.steps if step.trace_id]
    return ExportedTrace(
        trace_id=known[0] if known else derive_trace_id(trajectory.trajectory_id),
        state=begun_in.state if begun_in else None,
        spans=list(_spans(trajectory, contents=contents)),
    )


def _spans(trajectory: Trajectory, *, contents: bool) -> Iterator[ExportedSpan]:
    yield _attempt(trajectory)
    members: list[Member] = [*trajectory.steps, *trajectory.observations]
    for agent in sorted({one.agent for one in members if one.agent} - {_root_agent(trajectory)}):
        yield _agent(trajectory, agent, [one for one in members if one.agent == agent])
    rewards = [reward for reward in current_rewards(trajectory.rewards) if reward.scope == "step"]
    for _, choices in groupby(trajectory.steps, key=lambda step: step.call_id):
        yield _call(trajectory, list(choices), rewards, contents=contents)
    for observation in trajectory.observations:
        yield _tool(trajectory, observation, contents=contents)


def _attempt(trajectory: Trajectory) -> ExportedSpan:
    started, outcome = trajectory.started, trajectory.outcome
    task = started.task_id if started else trajectory.trajectory_id
    began_at = started.started_at if started else min((step.started_at for step in trajectory.steps), default=0.0)
    latest = max((step.ended_at or step.started_at for step in trajectory.steps), default=began_at)
    return ExportedSpan(
        name=f"{names.INVOKE_AGENT} {_root_agent(trajectory) or task}",
        span_id=_agent_span_id(trajectory, None),
        parent_id=started.trace.span_id if started and started.trace else None,
        began_at=began_at,
        ended_at=outcome.ended_at if outcome else latest,
        attributes=attempt_attributes(trajectory),
        events=[_event(reward) for reward in current_rewards(trajectory.rewards) if reward.scope != "step"],
        error=(outcome.error or outcome.status) if outcome and outcome.status in _FAILED else None,
    )


def _agent(trajectory: Trajectory, agent: str, members: Sequence[Member]) -> ExportedSpan:
    return ExportedSpan(
        name=f"{names.INVOKE_AGENT} {agent}",
        span_id=_agent_span_id(trajectory, agent),
        parent_id=_agent_span_id(trajectory, None),
        began_at=min(_begin(one) for one in members),
        ended_at=max(_end(one) for one in members),
        attributes={
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT: agent,
            names.TRAJECTORY: trajectory.trajectory_id,
        },
    )


def _call(
    trajectory: Trajectory, choices: Sequence[Step], rewards: Sequence[Reward], *, contents: bool
) -> ExportedSpan:
    step, indices = choices[0], {choice.index for choice in choices}
    return ExportedSpan(
        name=f"{names.CHAT} {step.model}" if step.model else names.CHAT,
        span_id=step.span_id or derive_span_id(f"{step.trajectory_id} {step.call_id}"),
        parent_id=_span_around(trajectory, step) or _agent_span_id(trajectory, step.agent),
        began_at=step.started_at,
        ended_at=_end(step),
        attributes=call_attributes(choices, trajectory.contents if contents else None),
        events=[_event(reward) for reward in rewards if reward.step in indices],
        is_client=True,
        error=(step.error or step.status) if step.status in ("error", "aborted") else None,
    )


def _tool(trajectory: Trajectory, observation: Observation, *, contents: bool) -> ExportedSpan:
    return ExportedSpan(
        name=f"{names.EXECUTE_TOOL} {observation.name}",
        span_id=derive_span_id(f"{observation.trajectory_id} {observation.observation_id}"),
        parent_id=_agent_span_id(trajectory, observation.agent),
        began_at=_begin(observation),
        ended_at=observation.at,
        attributes=observation_attributes(observation, contents=contents),
        error="error" if observation.status == "error" else None,
    )


def _event(reward: Reward) -> ExportedEvent:
    return ExportedEvent(name=names.EVALUATION_EVENT, at=reward.at, attributes=reward_attributes(reward))


def _root_agent(trajectory: Trajectory) -> str | None:
    return trajectory.started.agent if trajectory.started else None


def _agent_span_id(trajectory: Trajectory, agent: str | None) -> str:
    """Return the agent's span id; the attempt's span id for its main agent or for none."""
    is_further = agent is not None and agent != _root_agent(trajectory)
    return derive_span_id(f"{trajectory.trajectory_id} {agent}" if is_further else trajectory.trajectory_id)


def _span_around(trajectory: Trajectory, step: Step) -> str | None:
    """Return the agent's own span around the call; None if it has none or it belongs to another trace."""
    begun_in = trajectory.started.trace if trajectory.started else None
    return step.parent_span_id if begun_in and begun_in.span_id else None


def _begin(member: Member) -> float:
    return member.started_at if isinstance(member, Step) else member.at - (member.duration_seconds or 0.0)


def _end(member: Member) -> float:
    return (member.ended_at or member.started_at) if isinstance(member, Step) else member.at
