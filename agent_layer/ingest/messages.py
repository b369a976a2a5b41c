"""Logged conversations as trajectories: text only, in the form that the recorder writes. Pure.

All ids derive from the run and the line: importing a line again yields the same trajectory.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from agent_layer.ingest.spans import Conversation, Turn
from agent_layer.schema import (
    UNREADABLE,
    Action,
    AttemptStarted,
    Content,
    JsonObject,
    LogRecord,
    Observation,
    Outcome,
    Reward,
    Split,
    StepPart,
    StepState,
    Task,
    Usage,
    as_json_object,
    as_json_objects,
    content_hash,
    hash_input,
    make_trajectory_id,
    split_trajectory_id,
)

_MESSAGE_SECONDS = 0.001
"""Time between two messages of a line, so that they keep their order."""


class ImportBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults for all lines of a file."""

    run: str
    split: Split = "train"
    task_type: str = "default"
    """Used where a line names none."""
    at: float
    """Seconds since the epoch; used where a line has no time."""


class _ImportTarget(NamedTuple):
    trajectory_id: str
    run: str
    began_at: float

    def at(self, num_messages: float) -> float:
        """Return the time of message ``num_messages`` of the conversation."""
        return self.began_at + _MESSAGE_SECONDS * num_messages


def line_trajectory_id(line: bytes, run: str) -> str:
    """Return the id of a line's trajectory."""
    return make_trajectory_id("import." + content_hash(run.encode() + b"\n" + line.strip()), 0)


def make_records(conversation: Conversation, trajectory_id: str, batch: ImportBatch) -> list[LogRecord]:
    """Return all records of a line's trajectory."""
    target = _ImportTarget(trajectory_id, batch.run, batch.at if conversation.at is None else conversation.at)
    contents = [_content(target, message) for message in conversation.messages]
    tools = _content(target, conversation.tools) if conversation.tools else None
    distinct = {content.hash: content for content in [*contents, *([tools] if tools else [])]}
    state = StepState(messages=[content.hash for content in contents], tools=tools.hash if tools else None)
    end = target.at(len(conversation.messages) + 1)
    return [
        _make_start(conversation, target, batch),
        *distinct.values(),
        *(part for turn in conversation.turns for part in _make_parts(conversation, turn, state, target)),
        *_make_observations(conversation.messages, target),
        *(_make_reward(name, score, target, end) for name, score in conversation.rewards.items()),
        Outcome(
            trajectory_id=trajectory_id, run=batch.run, status="completed", ended_at=end, details=conversation.rest
        ),
    ]


def _make_start(conversation: Conversation, target: _ImportTarget, batch: ImportBatch) -> AttemptStarted:
    rollout_id, attempt = split_trajectory_id(target.trajectory_id)
    prompt = conversation.messages[: conversation.turns[0].num_before]
    task = Task(
        id=conversation.task_id or f"import.{content_hash(msgspec.json.encode(prompt))[:12]}",
        run=batch.run,
        split=batch.split,
        task_type=conversation.task_type or batch.task_type,
        input=prompt,
        labels=conversation.labels,
    )
    return AttemptStarted(
        trajectory_id=target.trajectory_id,
        rollout_id=rollout_id,
        attempt=attempt,
        run=batch.run,
        task_id=task.id,
        task_type=task.task_type,
        split=batch.split,
        started_at=target.began_at,
        labels=conversation.labels,
        input_hash=hash_input(task),
        task=task,
    )


def _make_parts(
    conversation: Conversation, turn: Turn, state: StepState, target: _ImportTarget
) -> tuple[StepPart, StepPart]:
    before = turn.num_before
    start = StepPart(
        trajectory_id=target.trajectory_id,
        call_id=_call_id(target, before),
        run=target.run,
        source="import",
        phase="start",
        at=target.at(before),
        role="aux" if turn.choices[0].get("weight") == 0 else "policy",
        state=msgspec.structs.replace(state, messages=(state.messages or [])[:before]),
        sampling_asked=conversation.sampling or None,
        model=conversation.model,
        capture_level="text",
    )
    actions = [
        Action(message=message, finish_reason=reason)
        for message, reason in zip(turn.choices, turn.finish_reasons, strict=True)
    ]
    end = StepPart(
        trajectory_id=target.trajectory_id,
        call_id=start.call_id,
        run=target.run,
        source="import",
        phase="end",
        at=target.at(before + 0.5),
        actions=actions,
        usage=_read_usage(conversation.usage),
        status="ok",
    )
    return start, end


def _make_observations(messages: list[JsonObject], target: _ImportTarget) -> Iterator[Observation]:
    """Return tool outputs; each names its tool call, or follows the call before it."""
    open_calls: dict[str, tuple[str, JsonObject]] = {}
    last_call: str | None = None
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            last_call = _call_id(target, number)
            for call in as_json_objects(message.get("tool_calls")):
                open_calls[str(call.get("id"))] = last_call, as_json_object(call.get("function"))
        elif message["role"] in ("tool", "function"):
            call_id, function = open_calls.get(str(message.get("tool_call_id"))) or (last_call, JsonObject())
            yield Observation(
                trajectory_id=target.trajectory_id,
                observation_id=f"{target.trajectory_id}.o{number}",
                run=target.run,
                name=str(message.get("name") or function.get("name") or "tool"),
                at=target.at(number),
                call_id=call_id,
                arguments=_read_arguments(function.get("arguments")),
                output=message.get("content"),
            )


def _make_reward(name: str, score: float, target: _ImportTarget, at: float) -> Reward:
    own = f"{target.trajectory_id}.{name}"
    return Reward(trajectory_id=target.trajectory_id, reward_id=own, run=target.run, at=at, name=name, score=score)


def _read_usage(usage: JsonObject) -> Usage | None:
    num_prompt, num_response = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(num_prompt, int) and not isinstance(num_response, int):
        return None
    num_cached = as_json_object(usage.get("prompt_tokens_details")).get("cached_tokens")
    return Usage(
        prompt_tokens=num_prompt if isinstance(num_prompt, int) else None,
        response_tokens=num_response if isinstance(num_response, int) else None,
        cached_tokens=num_cached if isinstance(num_cached, int) else None,
    )


def _call_id(target: _ImportTarget, number: int) -> str:
    return f"{target.trajectory_id}.{number}"


def _content(target: _ImportTarget, value: object) -> Content:
    body = msgspec.json.encode(value)
    return Content(trajectory_id=target.trajectory_id, hash=content_hash(body), body=body)


def _read_arguments(text: object) -> object:
    """Decode arguments from JSON text; other text stays unchanged."""
    try:
        return msgspec.json.decode(text) if isinstance(text, str) else text
    except UNREADABLE:
        return text
