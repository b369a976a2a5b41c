"""Segment footers: where the bytes of each owner are, and the rows that index them."""

import msgspec

from agent_layer.schema.record import Record, current_version

STARTED, ENDED = 1, 2
"""Bits of what the gateway recorded of a call; 0 when only layers in the agent's process recorded it."""


class Chunk(Record, frozen=True, kw_only=True):
    """One frame of a segment: all records of one owner (a trajectory, group or policy) in one segment."""

    owner: str
    offset: int
    """Bytes from the beginning of the segment to the frame's length field."""
    size_bytes: int
    """Frame header included."""


class Block(msgspec.Struct, frozen=True):
    """Fields of a row that come from one record."""

    rank: str
    """Order among blocks of the same fields: the lowest rank counts. Compared as text."""
    fields: dict[str, str]


class TrajectorySummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Index entries of one trajectory in one segment; summaries merge in any order."""

    trajectory_id: str
    opening: Block | None = None
    """From its best AttemptStarted; without one, run and time of any record."""
    is_started: bool = False
    ending: Block | None = None
    is_accepted: bool = False
    calls: dict[str, tuple[int, int]] = {}
    """Call id → (bits STARTED and ENDED, number of choices)."""
    agents: list[str] = []
    tools: list[str] = []
    """Names of tools that were requested or answered."""
    policy_min: int | None = None
    policy_max: int | None = None
    rewards: dict[str, bytes] = {}
    """Reward id → encoded Reward."""
    blobs: list[str] = []
    """Names of the blobs with its contents."""
    findings: list[str] = []
    """Kinds of findings in its steps and its outcome."""
    engines: list[str] = []
    """Addresses of the engines that its calls went to."""
    given_labels: dict[str, tuple[str, str | None]] = {}
    """Label given later → (rank, value or None for withdrawn). Of several the one with the highest rank counts."""


class PolicyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One policy version."""

    run: str
    number: str
    record: bytes
    """Encoded PolicyVersion."""


class BatchEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Batch of one update."""

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
    """Last frame of a segment: its table of contents. An index can be rebuilt from footers alone."""

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
    """Names of the segments whose remaining records are all in this one: once it is indexed, they can be removed."""


class Tombstone(Record, frozen=True, kw_only=True, tag="tombstone"):
    """Mark of a deleted trajectory or group, so that it stays deleted. Contains nothing of it."""

    owner_hash: str
    """SHA-1 of the owner's name, hexadecimal: ids may contain what a user had to delete."""
    deleted_at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    reason: str = ""
