"""Steps and trajectories as JSON: references filled in, each tool answer at its step.

Values are JSON values throughout (dicts, lists, text, numbers, None), ready for any JSON writer.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from agent_layer.schema import (
    JsonObject,
    Label,
    Logprobs,
    Observation,
    Outcome,
    Resumed,
    Reward,
    Step,
    StepState,
    TokenIds,
    Trajectory,
    counted_score,
    current_rewards,
    find_alarms,
    newest_labels,
    resolve,
)
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.times import format_time


def show_row(row: TrajectoryRow) -> JsonObject:
    """One line of a query's answer."""
    return msgspec.structs.asdict(row)


def show_trajectory(row: TrajectoryRow, trajectory: Trajectory) -> JsonObject:
    """Everything that is stored of one attempt.

    ``observations`` beside the steps are those that no step of the trajectory led to.
    """
    calls = {step.call_id for step in trajectory.steps}
    standing = {reward.reward_id for reward in current_rewards(trajectory.rewards)}
    newest = newest_labels(trajectory.given_labels).values()
    return {
        **show_row(row),
        "steps": [show_step(trajectory, step) for step in trajectory.steps],
        "observations": [_observation(one) for one in trajectory.observations if one.call_id not in calls],
        "rewards": [{**_timed(one), "is_current": one.reward_id in standing} for one in trajectory.rewards],
        "given_labels": [{**_timed(one), "is_current": one in newest} for one in trajectory.given_labels],
        "resumes": [_timed(one) for one in trajectory.resumes],
        "outcome": _timed(trajectory.outcome) if trajectory.outcome else None,
        "alarms": [msgspec.structs.asdict(alarm) for alarm in find_alarms(trajectory)],
    }


def show_step(trajectory: Trajectory, step: Step, contents: Mapping[str, bytes] | None = None) -> JsonObject:
    """One decision of the model, with what the world answered to it.

    Observations follow a call; where the call has several choices, its first one shows them.

    Args:
        trajectory: that the step belongs to.
        step: which one.
        contents: what references stand for, such as ``Store.contents``; None: what the trajectory has fetched.
    """
    return {
        "index": step.index,
        "call_id": step.call_id,
        "choice": step.choice,
        "agent": step.agent,
        "agent_path": step.agent_path or ([step.agent] if step.agent else []),
        "role": step.role,
        "node": step.node,
        "graph": step.graph and msgspec.to_builtins(step.graph),
        "conversation": step.conversation,
        "parent": _parent(trajectory.steps, step),
        "state": _state(step.state, trajectory.contents if contents is None else contents),
        "action": _action(step),
        "observations": [
            _observation(one) for one in trajectory.observations if one.call_id == step.call_id and step.choice == 0
        ],
        "reward": step_reward(trajectory.rewards, step),
        "capture_level": step.capture_level,
        "sources": step.sources,
        "status": step.status,
        "error": step.error,
        "findings": step.findings,
        "model": step.model,
        "engine": step.engine,
        "started_at": format_time(step.started_at),
        "duration_ms": None if step.ended_at is None else _milliseconds(step.ended_at - step.started_at),
    }


def step_reward(rewards: Sequence[Reward], step: Step) -> float | None:
    """Sum the current rewards of the step; None when it has none."""
    return step_rewards(rewards).get(step.index)


def step_rewards(rewards: Sequence[Reward]) -> dict[int | None, float]:
    """Sum the current rewards of each step that has some."""
    sums: dict[int | None, float] = {}
    for reward in current_rewards(rewards):
        if reward.scope == "step" and (score := counted_score(reward)) is not None:
            sums[reward.step] = sums.get(reward.step, 0) + score
    return sums


def _parent(steps: Sequence[Step], step: Step) -> int | None:
    """Index of the step that led here, else of the step whose tokens this one continues."""
    prefix = (step.prompt.parent_call, step.prompt.parent_choice) if step.prompt else (None, 0)
    call, choice = (step.parent_call, 0) if step.parent_call else prefix
    return next((one.index for one in steps if one.call_id == call and one.choice == choice), None)


def _state(state: StepState, contents: Mapping[str, bytes]) -> JsonObject:
    messages = state.messages
    return {
        "messages": None if messages is None else [_expand(hash_, contents) for hash_ in messages],
        "tools": _expand(state.tools, contents),
        "framework": _expand(state.framework, contents),
        "environment": _expand(state.environment, contents),
    }


def _expand(hash_: str | None, contents: Mapping[str, bytes]) -> object:
    """Fill in what the hash refers to; a hash whose content is not stored stays a hash."""
    return resolve(contents, hash_) if hash_ is not None and hash_ in contents else hash_


def _action(step: Step) -> JsonObject:
    action = step.action
    return {
        "message": action.message,
        "tool_calls": (action.message or {}).get("tool_calls") or [],
        "prompt_token_ids": _listed(step.prompt_token_ids),
        "response_token_ids": _listed(action.response_token_ids),
        "logprobs": _listed(action.logprobs),
        "finish_reason": action.finish_reason,
        "sampling": step.sampling_asked if step.sampling_applied is None else step.sampling_applied,
        "sampling_asked": step.sampling_asked,
        "policy_versions": action.policy_versions,
    }


def _listed(array: TokenIds | Logprobs | None) -> Sequence[float] | None:
    return None if array is None else array.tolist()


def _observation(observation: Observation) -> JsonObject:
    seconds = observation.duration_seconds
    return {
        "name": observation.name,
        "arguments": observation.arguments,
        "output": observation.output,
        "status": observation.status,
        "duration_ms": None if seconds is None else _milliseconds(seconds),
        "truncated": observation.truncated,
        "at": format_time(observation.at),
    }


def _timed(record: Reward | Label | Outcome | Resumed) -> JsonObject:
    """All fields of the record, those that have their default too, with readable times."""
    fields = cast("JsonObject", msgspec.to_builtins(msgspec.structs.asdict(record)))
    times = {name: format_time(at) for name in ("at", "ended_at") if isinstance(at := fields.get(name), float)}
    return {**fields, **times}


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1_000, 3)
