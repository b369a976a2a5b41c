"""Arrow table of steps: one row for each decision of a model, with its tokens."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import msgspec
import pyarrow as pa

from agent_layer.schema import JsonObject, Observation, Step, Trajectory, as_json_object, as_json_objects, resolve
from agent_layer.store.arrow.columns import (
    JSON,
    LOGPROBS,
    MOMENT,
    TOKENS,
    Column,
    build_batch,
    build_schema,
    json_text,
    select_columns,
)
from agent_layer.store.reading.display import step_reward

_VERSIONS = pa.list_(pa.struct([pa.field("version", pa.int64()), pa.field("num_tokens", pa.int32())]))
_CALLS = pa.list_(
    pa.struct([pa.field("id", pa.string()), pa.field("name", pa.string()), pa.field("arguments", pa.string())])
)
_ANSWERS = pa.list_(
    pa.struct(
        [
            pa.field("name", pa.string()),
            pa.field("arguments", JSON),
            pa.field("output", JSON),
            pa.field("status", pa.string()),
            pa.field("duration_ms", pa.float64()),
        ]
    )
)


class _StepContext(msgspec.Struct, frozen=True, dict=True):
    """One step and its trajectory."""

    trajectory: Trajectory
    step: Step
    index_of_call: dict[tuple[str, int], int]
    has_contents: bool

    @cached_property
    def observations(self) -> list[Observation]:
        """What followed the call; where it has several choices, its first one shows them."""
        step = self.step
        return [one for one in self.trajectory.observations if one.call_id == step.call_id and step.choice == 0]


def _made(name: str, kind: pa.DataType, value: Callable[[_StepContext], object], meaning: str) -> Column[_StepContext]:
    return Column(name, kind, value, meaning)


def _own(name: str, kind: pa.DataType, meaning: str) -> Column[_StepContext]:
    return _made(name, kind, lambda place: getattr(place.step, name), meaning)


def _acted(name: str, kind: pa.DataType, meaning: str) -> Column[_StepContext]:
    return _made(name, kind, lambda place: getattr(place.step.action, name), meaning)


def _started_column(name: str, meaning: str) -> Column[_StepContext]:
    return _made(name, pa.string(), lambda place: getattr(place.trajectory.started, name, None), meaning)


def _content(name: str, hash_of: Callable[[Step], str | list[str] | None], meaning: str) -> Column[_StepContext]:
    def read(place: _StepContext) -> str | None:
        referred = hash_of(place.step)
        if referred is None or not place.has_contents:
            return None
        contents = place.trajectory.contents
        if isinstance(referred, list):
            return json_text([resolve(contents, one) for one in referred])
        return json_text(resolve(contents, referred))

    return Column(name, JSON, read, f"{meaning}; null unless contents are asked for")


def _tool_calls(place: _StepContext) -> list[JsonObject] | None:
    if (message := place.step.action.message) is None:
        return None
    calls = [(call, as_json_object(call.get("function"))) for call in as_json_objects(message.get("tool_calls"))]
    return [
        {"id": _text(call.get("id")), "name": _text(of.get("name")), "arguments": _text(of.get("arguments"))}
        for call, of in calls
    ]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else json_text(value)


def _answer(one: Observation) -> JsonObject:
    seconds = one.duration_seconds
    return {
        "name": one.name,
        "arguments": json_text(one.arguments),
        "output": json_text(one.output),
        "status": one.status,
        "duration_ms": None if seconds is None else seconds * 1_000,
    }


def _versions(place: _StepContext) -> list[dict[str, int]] | None:
    runs = place.step.action.policy_versions
    return None if runs is None else [{"version": version, "num_tokens": count} for version, count in runs]


def _parent(place: _StepContext) -> int | None:
    step = place.step
    prefix = (step.prompt.parent_call, step.prompt.parent_choice) if step.prompt else (None, 0)
    call, choice = (step.parent_call, 0) if step.parent_call else prefix
    return None if call is None else place.index_of_call.get((call, choice))


def _sampling(place: _StepContext) -> str | None:
    step = place.step
    return json_text(step.sampling_asked if step.sampling_applied is None else step.sampling_applied)


STEP_COLUMNS: Final[tuple[Column[_StepContext], ...]] = (
    _own("trajectory_id", pa.string(), "see the table of trajectories"),
    _own("run", pa.string(), "training run"),
    _started_column("task_id", "what was asked"),
    _started_column("task_type", "kind of task"),
    _started_column("split", "train or eval"),
    _made("rollout_reward", pa.float64(), lambda place: place.trajectory.reward, "reward of its rollout"),
    _own("index", pa.int32(), "position in its trajectory, from 0"),
    _own("call_id", pa.string(), "the model call; a call with several choices is several steps"),
    _own("choice", pa.int32(), "which choice of the call"),
    _own("agent", pa.string(), "name of the agent that made the call"),
    _own("agent_path", pa.list_(pa.string()), "from the outermost agent to this one"),
    _own("role", pa.string(), "policy (trained) or aux (not)"),
    _own("node", pa.string(), "graph node or function"),
    _own("conversation", pa.string(), "such as a thread"),
    _made("parent", pa.int32(), _parent, "index of the step that led here"),
    _own("started_at", MOMENT, "of the call"),
    _own("ended_at", MOMENT, "of the call; null while it runs"),
    _own("status", pa.string(), "ok, aborted or error; null while it runs"),
    _own("error", pa.string(), "what went wrong"),
    _own("capture_level", pa.string(), "tokens, logprobs or text"),
    _own("sources", pa.list_(pa.string()), "layers that told of it"),
    _own("findings", pa.list_(pa.string()), "what was noticed, such as prefix_break"),
    _own("model", pa.string(), "as the agent asked for it"),
    _own("engine", pa.string(), "address of the engine that answered"),
    _own("template_hash", pa.string(), "of the chat template"),
    _own("tokenizer_hash", pa.string(), "of the tokenizer"),
    _made("message", JSON, lambda place: json_text(place.step.action.message), "what the model answered"),
    _made("tool_calls", _CALLS, _tool_calls, "tools it asked for; arguments as sent"),
    _acted("finish_reason", pa.string(), "stop, length, tool_calls, ..."),
    _own("prompt_token_ids", TOKENS, "[num_prompt_tokens], the engine's own"),
    _acted("response_token_ids", TOKENS, "[num_response_tokens], as sampled, end-of-turn token included"),
    _acted("logprobs", LOGPROBS, "[num_response_tokens], natural logarithm, of the sampled ids"),
    _made("policy_versions", _VERSIONS, _versions, "runs that add up to num_response_tokens"),
    _made("sampling", JSON, _sampling, "as applied, else as asked"),
    _own("temperature", pa.float64(), "of sampling"),
    _own("logprobs_mode", pa.string(), "raw or processed"),
    _made(
        "reward", pa.float64(), lambda place: step_reward(place.trajectory.rewards, place.step), "of this step alone"
    ),
    _made(
        "observations", _ANSWERS, lambda place: [_answer(one) for one in place.observations], "what the world answered"
    ),
    _made("message_hashes", pa.list_(pa.string()), lambda place: place.step.state.messages, "prompt, by content hash"),
    _content("messages", lambda step: step.state.messages, "prompt: list of messages"),
    _content("tools", lambda step: step.state.tools, "tools on offer"),
    _content("framework", lambda step: step.state.framework, "state of the framework"),
    _content("environment", lambda step: step.state.environment, "state of the environment"),
)

STEP_SCHEMA: Final = build_schema(STEP_COLUMNS)


def step_schema(columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the schema of these columns.

    Raises: BadInputError: there is no such column.
    """
    return build_schema(select_columns(STEP_COLUMNS, columns))


def tabulate_steps(
    trajectory: Trajectory,
    steps: Sequence[Step] | None = None,
    *,
    columns: Sequence[str] | None = None,
    contents: bool = False,
) -> pa.RecordBatch:
    """Put steps of one trajectory into a batch of ``STEP_SCHEMA``.

    Args:
        trajectory: the steps' own.
        steps: which of its steps; None: all of them.
        columns: names; other columns are not computed.
        contents: fill in messages, tools, framework and environment.

    Raises: BadInputError: there is no such column.
    """
    chosen = select_columns(STEP_COLUMNS, columns)
    index_of_call = {(step.call_id, step.choice): step.index for step in trajectory.steps}
    picked = trajectory.steps if steps is None else steps
    places = [_StepContext(trajectory, step, index_of_call, contents) for step in picked]
    return build_batch(chosen, places)
