"""Outlines of records: the fields that the index needs. The rest of a long record is skipped, and stored as it came.

A shipper and a compaction read every record that is stored; most of a step is tokens, messages and log-probabilities.
Outlines are in no cycle, so the garbage collection need not look at the thousands of a log (``gc=False``).
"""

from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec

from agent_layer.schema import (
    UNREADABLE,
    Accepted,
    AttemptStarted,
    CaptureLevel,
    Content,
    ContentRef,
    ExcludedRollout,
    Group,
    JsonObject,
    Label,
    LogRecord,
    Outcome,
    PartSource,
    PolicyVersion,
    Resumed,
    Reward,
    TrainedBatch,
    decode_known,
)


class _FunctionOutline(msgspec.Struct, frozen=True):
    name: str


class _ToolCallOutline(msgspec.Struct, frozen=True):
    function: _FunctionOutline


class _MessageOutline(msgspec.Struct, frozen=True):
    tool_calls: list[_ToolCallOutline]


_MESSAGE_DECODER = msgspec.msgpack.Decoder(_MessageOutline)


class ActionOutline(msgspec.Struct, frozen=True, gc=False):
    """See Action."""

    packed_message: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="message")
    policy_versions: list[tuple[int, int]] | None = None

    @property
    def may_request_tools(self) -> bool:
        """Whether it is worth the while to read the message."""
        return b"tool_calls" in bytes(self.packed_message)

    @property
    def message(self) -> JsonObject | None:
        """What names the tools in a message that requests some; None for others, and for one that cannot be read."""
        if not self.may_request_tools:
            return None
        with suppress(*UNREADABLE):  # the form that nearly all have; their arguments are passed over
            calls = _MESSAGE_DECODER.decode(self.packed_message).tool_calls
            return {"tool_calls": [{"function": {"name": call.function.name}} for call in calls]}
        try:
            return msgspec.msgpack.decode(self.packed_message, type=JsonObject)
        except UNREADABLE:
            return None


class StepOutline(msgspec.Struct, frozen=True, tag="step_part", gc=False):
    """See StepPart."""

    trajectory_id: str
    call_id: str
    run: str
    source: PartSource
    phase: Literal["start", "end"]
    at: float
    agent: str | None = None
    actions: list[ActionOutline] | None = None
    engine: str | None = None
    capture_level: CaptureLevel | None = None
    findings: list[str] = []


class ObservationOutline(msgspec.Struct, frozen=True, tag="observation", gc=False):
    """See Observation."""

    trajectory_id: str
    run: str
    name: str
    at: float


class TrainedTokensOutline(msgspec.Struct, frozen=True, tag="trained_tokens", gc=False):
    """See TrainedTokens."""

    trajectory_id: str
    run: str
    at: float


Outline: TypeAlias = (
    StepOutline
    | ObservationOutline
    | TrainedTokensOutline
    | AttemptStarted
    | Content
    | ContentRef
    | Reward
    | Label
    | Outcome
    | Accepted
    | Resumed
    | Group
    | PolicyVersion
    | TrainedBatch
    | ExcludedRollout
)
"""Short records as they are, long ones by their outline."""

_DECODER = msgspec.msgpack.Decoder(Outline)


def decode_outline(content: bytes) -> Outline | LogRecord:
    """Read the outline of a record of a log.

    Raises: CorruptRecordError: these bytes are no record.
    """
    try:
        return _DECODER.decode(content)
    except UNREADABLE:
        return decode_known(content)  # says why
