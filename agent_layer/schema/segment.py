"""This file holds what a segment says of itself: where the bytes of each owner lie, and the rows that index them."""

import msgspec

from agent_layer.schema.record import Record, current_version

STARTED, ENDED = 1, 2
"""What the gateway has told of a call, added up; 0 where only layers in the agent's process have told of it."""


class Chunk(Record, frozen=True, kw_only=True):
    """One frame of a segment: all records of one owner (a trajectory, group or policy) in one segment."""

    owner: str
    offset: int
    """Bytes from the beginning of the segment to the frame's length field."""
    size_bytes: int
    """Frame header included."""


class Block(msgspec.Struct, frozen=True):
    """Fields of a row that one record says together."""

    rank: str
    """Of several blocks of the same fields the one with the lowest rank stands. Compared as text."""
    fields: dict[str, str]


class TrajectorySummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a segment's records of one trajectory say to the index; summaries merge in any order."""

    trajectory_id: str
    opening: Block | None = None
    """Of its best AttemptStarted; without one, what any record says of run and time."""
    is_started: bool = False
    ending: Block | None = None
    is_accepted: bool = False
    calls: dict[str, tuple[int, int]] = {}
    """Call id → (what the gateway has told of it, number of choices)."""
    agents: list[str] = []
    tools: list[str] = []
    """Names of tools that were asked for or answered."""
    policy_min: int | None = None
    policy_max: int | None = None
    rewards: dict[str, bytes] = {}
    """Reward id → encoded Reward."""
    blobs: list[str] = []
    """Names of the blobs that hold contents of it."""


class PolicyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One policy version."""

    run: str
    number: str
    record: bytes
    """Encoded PolicyVersion."""


class BatchEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What one update learned from."""

    run: str
    step: str
    batch_id: str
    record: bytes
    """Encoded TrainedBatch."""


class GroupEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One closed group."""

    run: str
    group_id: str
    closed_at: str
    record: bytes
    """Encoded Group."""


class SegmentFooter(Record, frozen=True, kw_only=True, tag="segment_footer"):
    """The last frame of a segment: what is inside. An index can be made of footers alone."""

    name: str
    created_at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    chunks: list[Chunk] = []
    trajectories: list[TrajectorySummary] = []
    policies: list[PolicyEntry] = []
    batches: list[BatchEntry] = []
    groups: list[GroupEntry] = []
    replaces: list[str] = []
    """Names of the segments whose living records are all in this one: once it is indexed, they may go."""


class Tombstone(Record, frozen=True, kw_only=True, tag="tombstone"):
    """What is left of a deleted trajectory or group, so that it stays dead. Nothing of it can be read from this."""

    owner_hash: str
    """SHA-1 of the owner's name, hexadecimal: ids may hold what a user had to have deleted."""
    deleted_at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    reason: str = ""
