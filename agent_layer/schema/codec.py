"""This file holds how records become bytes and come back: msgpack, tagged by kind, unknown fields kept.

A reader older than the writer puts fields it does not know into ``unknown``; when it writes the record again they
travel along, and a reader that does know them finds them in their place.
"""

from typing import TypeAlias, cast

import msgspec

from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.schema.batch import TrainedBatch
from agent_layer.schema.folding import fold_of
from agent_layer.schema.group import Group
from agent_layer.schema.observation import Observation
from agent_layer.schema.policy import PolicyVersion
from agent_layer.schema.record import Logprobs, Record, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome, Resumed
from agent_layer.schema.segment import SegmentFooter, Tombstone
from agent_layer.schema.step import Content, ContentRef, Step, StepPart
from agent_layer.schema.task import Task
from agent_layer.schema.trajectory import Trajectory

__all__ = ["LogRecord", "check_storable", "decode", "decode_footer", "decode_known", "encode", "owner_of"]

LogRecord: TypeAlias = (
    AttemptStarted
    | StepPart
    | Content
    | ContentRef
    | Observation
    | Reward
    | Outcome
    | Accepted
    | Resumed
    | Group
    | PolicyVersion
    | TrainedBatch
)
"""What may stand in a log file, and so in a segment."""

_KINDS: dict[str, type[Record]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        AttemptStarted,
        StepPart,
        Content,
        ContentRef,
        Observation,
        Reward,
        Outcome,
        Accepted,
        Resumed,
        Group,
        PolicyVersion,
        TrainedBatch,
        Task,
        Step,
        Trajectory,
        SegmentFooter,
        Tombstone,
    )
}


def _pack_array(value: object) -> bytes:
    if isinstance(value, TokenIds | Logprobs):
        return value.tobytes()
    raise TypeError(f"{type(value).__name__} has no stored form")


def _unpack_array(kind: type, value: object) -> object:
    if kind in (TokenIds, Logprobs) and isinstance(value, bytes | list | tuple):
        return kind(cast("bytes", value))
    if kind is object:
        return value
    raise TypeError(f"{kind.__name__} cannot be read from {type(value).__name__}")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_pack_array)
_LOG_DECODER = msgspec.msgpack.Decoder(LogRecord, dec_hook=_unpack_array)
_FOOTER_DECODER = msgspec.msgpack.Decoder(SegmentFooter)
_UNREADABLE = (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError, ValueError, RecursionError)


def encode(record: Record) -> bytes:
    """Give the record's stored form."""
    return _ENCODER.encode(record)


def check_storable(value: object, subject: str) -> None:
    """Check that what came from outside can stand in a record.

    Raises: BadInputError: an integer has more than 64 bits.
    """
    try:
        _ENCODER.encode(value)
    except OverflowError as error:
        raise BadInputError(
            f"{subject}: expected integers of at most 64 bits, found a longer one; choose one that fits"
        ) from error


def decode(content: bytes) -> Record:
    """Read a record of any kind.

    Raises: CorruptRecordError: this is no msgpack, no known kind, or a field has the wrong type.
    """
    try:
        fields = msgspec.msgpack.decode(content)
        kind = _KINDS[fields["type"]]
        return msgspec.convert(fold_of(kind)(fields), kind, dec_hook=_unpack_array)
    except _UNREADABLE as error:
        raise _unreadable(error) from error


def decode_known(content: bytes) -> LogRecord:
    """Read a log's record at a quarter of the cost of ``decode``: what only a newer reader would know is left out.

    Raises: CorruptRecordError: what ``decode`` raises it for.
    """
    try:
        return _LOG_DECODER.decode(content)
    except _UNREADABLE as error:
        raise _unreadable(error) from error


def decode_footer(content: bytes) -> SegmentFooter:
    """Read a footer as fast as can be: an index is rebuilt from all there are.

    Raises: CorruptRecordError: it is none.
    """
    try:
        return _FOOTER_DECODER.decode(content)
    except _UNREADABLE as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> CorruptRecordError:
    return CorruptRecordError(
        f"stored record: expected msgpack of a known kind ({', '.join(sorted(_KINDS))}), found {error!r};"
        " it was written by something else, or by a later version of another meaning"
    )


def owner_of(record: LogRecord) -> str:
    """Name what the record belongs to: a trajectory, a group, a policy version or a step of training."""
    match record:
        case Group():
            return f"group:{record.group_id}"
        case PolicyVersion():
            return f"policy:{record.run}:{record.number}"
        case TrainedBatch():
            return f"batch:{record.run}:{record.step}"
        case _:
            return record.trajectory_id
