"""Steps: decisions of the model, and the parts from which they are assembled; observations; tool names.

Several layers see the same call. Each writes its own immutable ``StepPart`` records: one ``start`` and one ``end`` per
layer, joined by the call id that the outermost layer minted.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from agent_layer.schema.messages import as_json_object, as_json_objects
from agent_layer.schema.record import JsonObject, Logprobs, Record, TokenIds, current_version

PartSource: TypeAlias = Literal["gateway", "hook", "handler", "decorator", "otel", "import"]
"""Layers that write parts, highest authority first; ``import``: a foreign log, read afterwards."""

Role: TypeAlias = Literal["policy", "aux"]
"""``policy`` steps are trained, ``aux`` steps (judges, assistants) are not."""

CaptureLevel: TypeAlias = Literal["tokens", "logprobs", "text"]
"""``tokens``: ids and log-probabilities from the engine; ``logprobs``: no prompt ids; ``text``: neither."""

StepStatus: TypeAlias = Literal["ok", "aborted", "error"]

PolicyRun: TypeAlias = tuple[int, int]
"""(version, num_tokens): number of consecutive tokens sampled by this version."""
_MAX_NAME_LENGTH: Final = 128
"""Models request tools that do not exist, too: their names must not grow the index."""


class Content(Record, frozen=True, kw_only=True, tag="content"):
    """A message, tool list, framework value or image, stored once per trajectory and referred to by hash.

    A body may refer to others: ``{"$content": HASH}`` stands for the content of that hash. So an image is stored beside
    the messages that show it, as the JSON string of its data URL.
    """

    trajectory_id: str
    hash: str
    body: bytes
    """JSON text, UTF-8; ``hash`` is its content hash."""
    schema_version: int = msgspec.field(default_factory=current_version)


class ContentRef(Record, frozen=True, kw_only=True, tag="content_ref"):
    """Replaces a large content, or media, in a segment: its body is an object of its own, a blob."""

    trajectory_id: str
    hash: str
    """Hash by which others refer to the content."""
    blob: str
    """Name of the blob: the content hash of the body as it is stored, then '-' and an id."""
    size_bytes: int
    """Size of the body."""
    schema_version: int = msgspec.field(default_factory=current_version)


class PromptDelta(Record, frozen=True, kw_only=True):
    """Prompt ids, stored as the difference to an earlier step of the same trajectory.

    prompt = prompt(parent) + response(parent) + delta, where the parent's two together have ``prefix_length`` ids
    that hash to ``prefix_hash``. Without a parent, ``prefix_length`` is 0 and delta is the whole prompt.
    """

    delta: TokenIds
    """[num_prompt_tokens - prefix_length]."""
    parent_call: str | None = None
    parent_choice: int = 0
    prefix_length: int = 0
    prefix_hash: str | None = None


class Usage(Record, frozen=True, kw_only=True):
    """Tokens as the engine counted them."""

    prompt_tokens: int | None = None
    response_tokens: int | None = None
    cached_tokens: int | None = None
    """Tokens of the prompt that it read from its prefix cache; None: it does not say."""


class Action(Record, frozen=True, kw_only=True):
    """What the model answered: one choice of one call."""

    message: JsonObject | None = None
    """The assistant message as it was sent to the client, tool calls included."""
    response_token_ids: TokenIds | None = None
    """[num_response_tokens], as sampled, end-of-turn token included."""
    logprobs: Logprobs | None = None
    """[num_response_tokens], of the sampled ids."""
    finish_reason: str | None = None
    policy_versions: list[PolicyRun] | None = None
    """Runs that add up to num_response_tokens."""
    arrays: dict[str, bytes] = {}
    """Named per-token arrays of the engine, each the bytes of a .npy file, which contains dtype and shape.

    ``routed_experts`` (vLLM): [num_prompt_tokens + num_response_tokens - 1, num_layers, num_experts_per_token], uint8,
    uint16 or int32; the last sampled token never passes through the layers.
    """


class StepState(Record, frozen=True, kw_only=True):
    """State of model, framework and environment before the call. Hashes refer to ``Content`` records."""

    messages: list[str] | None = None
    """[num_messages] content hashes, in prompt order."""
    tools: str | None = None
    framework: str | None = None
    """State of the framework, such as LangGraph channel values."""
    environment: str | None = None


class GraphPlace(Record, frozen=True, kw_only=True):
    """Where in a graph of nodes, such as LangGraph's, a call was made."""

    path: list[str]
    """Nodes, from the outermost graph to the innermost."""
    superstep: int | None = None
    """Superstep of the innermost graph; nodes of one superstep run in parallel."""
    came_from: list[str] | None = None
    """Nodes that ended in the superstep before, or that the node waited for; ``["__start__"]`` at the beginning."""
    branch: int | None = None
    """Index of the branch that the superstep before sent out; None when an edge led here."""


class StepPart(Record, frozen=True, kw_only=True, tag="step_part"):
    """What one layer saw of one call, at its start or at its end."""

    trajectory_id: str
    call_id: str
    run: str
    source: PartSource
    phase: Literal["start", "end"]
    at: float
    """Seconds since the epoch, UTC, on the writer's clock."""
    schema_version: int = msgspec.field(default_factory=current_version)
    agent: str | None = None
    agent_path: list[str] | None = None
    """[depth] from the outermost agent to this one; None for an agent that is no sub-agent."""
    role: Role | None = None
    conversation: str | None = None
    node: str | None = None
    """Graph node or function that made the call."""
    graph: GraphPlace | None = None
    parent_call: str | None = None
    """Causal parent: the call whose answer led here."""
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    """OpenTelemetry's span that was active when the call was made."""
    state: StepState | None = None
    prompt: PromptDelta | None = None
    actions: list[Action] | None = None
    """[num_choices]."""
    sampling_asked: JsonObject | None = None
    sampling_applied: JsonObject | None = None
    temperature: float | None = None
    logprobs_mode: Literal["raw", "processed"] | None = None
    model: str | None = None
    engine: str | None = None
    template_hash: str | None = None
    tokenizer_hash: str | None = None
    capture_level: CaptureLevel | None = None
    status: StepStatus | None = None
    error: str | None = None
    usage: Usage | None = None
    findings: list[str] = []
    """Findings such as ``prefix_break``; merged over all parts."""


class _PartLike(Protocol):
    """What a part of a step says of its recorder."""

    @property
    def source(self) -> PartSource: ...
    @property
    def phase(self) -> Literal["start", "end"]: ...
    @property
    def capture_level(self) -> CaptureLevel | None: ...
    @property
    def actions(self) -> Sequence[object] | None: ...


def is_caller_note(part: _PartLike) -> bool:
    """Whether this part only says who made a call: it is no step unless another layer recorded the call.

    The gateway may have refused the call, or never have seen it.
    """
    is_program = part.source in ("hook", "handler", "decorator")
    return is_program and part.phase == "start" and part.capture_level is None and not part.actions


class Step(Record, frozen=True, kw_only=True, tag="step"):
    """One decision of the model: one choice of one call, assembled from all parts."""

    trajectory_id: str
    call_id: str
    choice: int
    run: str
    started_at: float
    schema_version: int = msgspec.field(default_factory=current_version)
    index: int = 0
    """Position in its trajectory, by start time."""
    ended_at: float | None = None
    """None while the call runs, or when its recorder died."""
    agent: str | None = None
    agent_path: list[str] | None = None
    """[depth] from the outermost agent to this one; None for an agent that is no sub-agent."""
    role: Role = "policy"
    conversation: str | None = None
    node: str | None = None
    graph: GraphPlace | None = None
    parent_call: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    state: StepState = StepState()
    prompt: PromptDelta | None = None
    prompt_token_ids: TokenIds | None = None
    """[num_prompt_tokens]; filled when the whole trajectory is assembled, never stored."""
    action: Action = Action()
    sampling_asked: JsonObject | None = None
    sampling_applied: JsonObject | None = None
    temperature: float | None = None
    logprobs_mode: Literal["raw", "processed"] | None = None
    model: str | None = None
    engine: str | None = None
    template_hash: str | None = None
    tokenizer_hash: str | None = None
    capture_level: CaptureLevel = "text"
    status: StepStatus | None = None
    """None while the call runs."""
    error: str | None = None
    usage: Usage | None = None
    findings: list[str] = []
    sources: list[PartSource] = []
    """Layers that recorded it, highest authority first."""


class Observation(Record, frozen=True, kw_only=True, tag="observation"):
    """One answer of a tool or environment."""

    trajectory_id: str
    observation_id: str
    run: str
    name: str
    at: float
    """When the answer was complete; seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    call_id: str | None = None
    """The model call that led to it; None without an earlier call."""
    agent: str | None = None
    arguments: object = None
    output: object = None
    status: Literal["ok", "error"] | None = None
    duration_seconds: float | None = None
    truncated: bool = False
    """Whether the output was cut."""


class _ActionLike(Protocol):
    """An answer's message."""

    @property
    def message(self) -> JsonObject | None: ...


def requested_tool_names(action: _ActionLike) -> Iterator[str]:
    """Yield the names of the tools that the model requested, in order."""
    message: JsonObject = action.message or {}
    for call in as_json_objects(message.get("tool_calls")):
        name = as_json_object(call.get("function")).get("name", call.get("name"))
        if isinstance(name, str) and name:
            yield name[:_MAX_NAME_LENGTH]
