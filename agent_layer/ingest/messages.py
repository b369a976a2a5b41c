"""This file holds how conversations that others logged become trajectories: text only, as if recorded. Pure.

All ids follow from the run and the line, so that the same line is the same trajectory whenever it is imported.
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
    content_hash,
    hash_input,
    object_of,
    objects_of,
    split_trajectory_id,
    trajectory_id_of,
)

_MESSAGE_SECONDS = 0.001
"""Between two messages of a line, so that they keep their order."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all lines of a file."""

    run: str
    split: Split = "train"
    task_type: str = "default"
    """Where a line names none."""
    at: float
    """When its conversations took place, where a line does not say; seconds since the epoch."""


class _Home(NamedTuple):
    trajectory_id: str
    run: str
    began_at: float

    def at(self, num_messages: float) -> float:
        """When so many messages had been said."""
        return self.began_at + _MESSAGE_SECONDS * num_messages


def trajectory_id_of_line(line: bytes, run: str) -> str:
    """Name the trajectory that a line becomes."""
    return trajectory_id_of("import." + content_hash(run.encode() + b"\n" + line.strip()), 0)


def records_of(told: Conversation, trajectory_id: str, batch: Batch) -> list[LogRecord]:
    """Give all records of the trajectory that a line becomes."""
    home = _Home(trajectory_id, batch.run, batch.at if told.at is None else told.at)
    contents = [_content(home, message) for message in told.messages]
    tools = _content(home, told.tools) if told.tools else None
    distinct = {content.hash: content for content in [*contents, *([tools] if tools else [])]}
    state = StepState(messages=[content.hash for content in contents], tools=tools.hash if tools else None)
    end = home.at(len(told.messages) + 1)
    return [
        _start_of(told, home, batch),
        *distinct.values(),
        *(part for turn in told.turns for part in _parts_of(told, turn, state, home)),
        *_observations_of(told.messages, home),
        *(_reward_of(name, score, home, end) for name, score in told.rewards.items()),
        Outcome(trajectory_id=trajectory_id, run=batch.run, status="completed", ended_at=end, details=told.rest),
    ]


def _start_of(told: Conversation, home: _Home, batch: Batch) -> AttemptStarted:
    rollout_id, attempt = split_trajectory_id(home.trajectory_id)
    prompt = told.messages[: told.turns[0].num_before]
    task = Task(
        id=told.task_id or f"import.{content_hash(msgspec.json.encode(prompt))[:12]}",
        run=batch.run,
        split=batch.split,
        task_type=told.task_type or batch.task_type,
        input=prompt,
        labels=told.labels,
    )
    return AttemptStarted(
        trajectory_id=home.trajectory_id,
        rollout_id=rollout_id,
        attempt=attempt,
        run=batch.run,
        task_id=task.id,
        task_type=task.task_type,
        split=batch.split,
        started_at=home.began_at,
        labels=told.labels,
        input_hash=hash_input(task),
        task=task,
    )


def _parts_of(told: Conversation, turn: Turn, state: StepState, home: _Home) -> tuple[StepPart, StepPart]:
    before = turn.num_before
    start = StepPart(
        trajectory_id=home.trajectory_id,
        call_id=_call_id(home, before),
        run=home.run,
        source="import",
        phase="start",
        at=home.at(before),
        role="aux" if turn.choices[0].get("weight") == 0 else "policy",
        state=msgspec.structs.replace(state, messages=(state.messages or [])[:before]),
        sampling_asked=told.sampling or None,
        model=told.model,
        capture_level="text",
    )
    actions = [
        Action(message=message, finish_reason=reason)
        for message, reason in zip(turn.choices, turn.finish_reasons, strict=True)
    ]
    end = StepPart(
        trajectory_id=home.trajectory_id,
        call_id=start.call_id,
        run=home.run,
        source="import",
        phase="end",
        at=home.at(before + 0.5),
        actions=actions,
        usage=_usage_of(told.usage),
        status="ok",
    )
    return start, end


def _observations_of(messages: list[JsonObject], home: _Home) -> Iterator[Observation]:
    """What tools answered; each names the call that asked for it, or follows the one before."""
    asked: dict[str, tuple[str, JsonObject]] = {}
    last_call: str | None = None
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            last_call = _call_id(home, number)
            for call in objects_of(message.get("tool_calls")):
                asked[str(call.get("id"))] = last_call, object_of(call.get("function"))
        elif message["role"] in ("tool", "function"):
            call_id, function = asked.get(str(message.get("tool_call_id"))) or (last_call, JsonObject())
            yield Observation(
                trajectory_id=home.trajectory_id,
                observation_id=f"{home.trajectory_id}.o{number}",
                run=home.run,
                name=str(message.get("name") or function.get("name") or "tool"),
                at=home.at(number),
                call_id=call_id,
                arguments=_value_of(function.get("arguments")),
                output=message.get("content"),
            )


def _reward_of(name: str, score: float, home: _Home, at: float) -> Reward:
    own = f"{home.trajectory_id}.{name}"
    return Reward(trajectory_id=home.trajectory_id, reward_id=own, run=home.run, at=at, name=name, score=score)


def _usage_of(usage: JsonObject) -> Usage | None:
    asked, said = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(asked, int) and not isinstance(said, int):
        return None
    return Usage(
        prompt_tokens=asked if isinstance(asked, int) else None, response_tokens=said if isinstance(said, int) else None
    )


def _call_id(home: _Home, number: int) -> str:
    return f"{home.trajectory_id}.{number}"


def _content(home: _Home, value: object) -> Content:
    body = msgspec.json.encode(value)
    return Content(trajectory_id=home.trajectory_id, hash=content_hash(body), body=body)


def _value_of(text: object) -> object:
    """Read arguments, which are sent as JSON text; what is none stays as it is."""
    try:
        return msgspec.json.decode(text) if isinstance(text, str) else text
    except UNREADABLE:
        return text
