"""Span attributes of attempts, calls and observations. Token arrays are never exported."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeGuard, cast
from urllib.parse import urlsplit

import msgspec

from agent_layer import otel_names as names
from agent_layer.schema import JsonObject, Observation, Reward, Step, Trajectory, resolve, to_part_message

AttributeValue: TypeAlias = str | bool | int | float | list[str] | list[int]


def attempt_attributes(trajectory: Trajectory) -> dict[str, AttributeValue]:
    """Return agent, task and outcome of an attempt."""
    started, outcome = trajectory.started, trajectory.outcome
    return _known(
        {
            names.OPERATION: names.INVOKE_AGENT,
            names.TRAJECTORY: trajectory.trajectory_id,
            names.AGENT: started and started.agent,
            names.RUN: started and started.run,
            names.TASK: started and started.task_id,
            names.TASK_TYPE: started and started.task_type,
            names.SPLIT: started and started.split,
            names.GROUP: started and started.group_id,
            names.STATUS: outcome and outcome.status,
            names.CAUSE: outcome and outcome.cause,
            names.ERROR_TYPE: outcome and _error_type(outcome.error),
            names.ACCEPTED: trajectory.accepted is not None,
            names.REWARD: trajectory.reward,
        }
    )


def call_attributes(choices: Sequence[Step], contents: Mapping[str, bytes] | None) -> dict[str, AttributeValue]:
    """Return model, request, answer and usage of a call.

    Args:
        choices: the steps of one call, in order.
        contents: JSON text by hash; None leaves messages out.
    """
    step = choices[0]
    server = urlsplit(step.engine) if step.engine else None
    known = {
        names.OPERATION: names.CHAT,
        names.PROVIDER: "vllm" if step.engine else "unknown",
        names.REQUEST_MODEL: step.model,
        names.RESPONSE_MODEL: step.model if step.status == "ok" else None,
        names.CHOICE_COUNT: len(choices) if len(choices) > 1 else None,
        names.FINISH_REASONS: [choice.action.finish_reason or "error" for choice in choices] if step.ended_at else None,
        names.INPUT_TOKENS: step.usage and step.usage.prompt_tokens,
        names.OUTPUT_TOKENS: step.usage and step.usage.response_tokens,
        names.AGENT: step.agent,
        names.CONVERSATION: step.conversation or step.trajectory_id,
        names.SERVER_ADDRESS: server and server.hostname,
        names.SERVER_PORT: server and server.port,
        names.ERROR_TYPE: _error_type(step.error) or ("aborted" if step.status == "aborted" else None),
        names.TRAJECTORY: step.trajectory_id,
        names.CALL: step.call_id,
        names.STEP: step.index,
        names.ROLE: step.role,
        names.CAPTURE_LEVEL: step.capture_level,
        names.FINDINGS: step.findings or None,
        names.POLICY_VERSIONS: _policy_versions(choices) or None,
    }
    return _known(
        known | _sampling_attributes(step) | (_content_attributes(choices, contents) if contents is not None else {})
    )


def observation_attributes(observation: Observation, *, contents: bool) -> dict[str, AttributeValue]:
    """Return the tool's name and call id; with ``contents``, also its output."""
    values = {
        names.TOOL_ARGUMENTS: _text(observation.arguments),
        names.TOOL_RESULT: _text(observation.output),
    }
    known = {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL_NAME: observation.name,
        names.AGENT: observation.agent,
        names.ERROR_TYPE: "error" if observation.status == "error" else None,
        names.TRAJECTORY: observation.trajectory_id,
        names.OBSERVATION: observation.observation_id,
        names.CALL: observation.call_id,
    }
    return _known(known | (values if contents else {}))


def reward_attributes(reward: Reward) -> dict[str, AttributeValue]:
    """Return name, scorer and score of a reward; the score is left out where it is not known."""
    return _known(
        {
            names.EVALUATION_NAME: reward.name,
            names.EVALUATION_SCORE: reward.score,
            names.EVALUATION_LABEL: reward.status,
            names.SCORE_SCOPE: reward.scope,
            names.SCORE_SOURCE: reward.source,
            names.AGENT: reward.agent,
            names.STEP: reward.step,
        }
    )


def _sampling_attributes(step: Step) -> dict[str, object]:
    sampling = step.sampling_asked if step.sampling_applied is None else step.sampling_applied
    values = {names.SAMPLING[name]: value for name, value in (sampling or {}).items() if name in names.SAMPLING}
    stop = values.get(names.SAMPLING["stop"])
    return values | ({names.SAMPLING["stop"]: [stop]} if isinstance(stop, str) else {})


def _content_attributes(choices: Sequence[Step], contents: Mapping[str, bytes]) -> dict[str, object]:
    state = choices[0].state
    parts = [_to_part_message(resolve(contents, hash_)) for hash_ in state.messages or ()]
    answered = [_answer(choice) for choice in choices if choice.action.message]
    return {
        names.INPUT_MESSAGES: _text(parts),
        names.OUTPUT_MESSAGES: _text(answered),
        names.TOOL_DEFINITIONS: _text(resolve(contents, state.tools)) if state.tools else None,
    }


def _to_part_message(message: object) -> object:
    return to_part_message(cast("JsonObject", message)) if isinstance(message, dict) else message


def _answer(choice: Step) -> JsonObject:
    return to_part_message(choice.action.message or {}) | {"finish_reason": choice.action.finish_reason}


def _policy_versions(choices: Sequence[Step]) -> list[int]:
    return sorted({version for choice in choices for version, _ in choice.action.policy_versions or ()})


def _error_type(error: str | None) -> str | None:
    """Return the class name in an error's ``repr``."""
    name = (error or "").partition("(")[0]
    return name if name.isidentifier() else "error" if error else None


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _known(values: Mapping[str, object]) -> dict[str, AttributeValue]:
    """Drop unknown values, and values of types that attributes cannot have."""
    return {name: value for name, value in values.items() if _is_attribute(value)}


def _is_attribute(value: object) -> TypeGuard[AttributeValue]:
    if not isinstance(value, list):
        return isinstance(value, str | bool | int | float)
    items = cast("list[object]", value)
    return all(isinstance(item, str) for item in items) or all(isinstance(item, int) for item in items)
