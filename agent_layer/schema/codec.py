"""Encoding of records: msgpack, tagged by kind, with unknown fields kept.

A reader that is older than the writer puts fields it does not know into ``unknown``. When it writes the record again
they are kept, and a newer reader finds them in their place. Which fields may contain records is worked out once per
kind, so that other values are not visited.
"""

from collections.abc import Callable
from functools import cache
from typing import Protocol, TypeAlias, cast

import msgspec
from msgspec import inspect

from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.schema.ids import owner_text, trajectory_owner
from agent_layer.schema.record import Advantages, JsonObject, Logprobs, Record, TokenIds
from agent_layer.schema.reward import Label, Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Group, Outcome, Resumed
from agent_layer.schema.segment import SegmentFooter, Tombstone
from agent_layer.schema.step import Content, ContentRef, Observation, Step, StepPart
from agent_layer.schema.task import Task
from agent_layer.schema.training import ExcludedRollout, PolicyVersion, TrainedBatch, TrainedTokens, Vocabulary
from agent_layer.schema.trajectory import Trajectory

Normalizer: TypeAlias = Callable[[object], object]
"""Returns the fields of a record in the form of its reader; does not change its argument."""


@cache
def normalizer_for(kind: type[Record]) -> Normalizer:
    """Return the normalizer of one kind of record."""
    return _normalize_record(cast("inspect.StructType", inspect.type_info(kind)))


def _normalizer(form: inspect.Type) -> Normalizer | None:
    """Return the normalizer for values of this type; None when they cannot contain records."""
    match form:
        case inspect.StructType():
            return _normalize_record(form)
        case inspect.ListType():
            return (fold := _normalizer(form.item_type)) and _normalize_items(fold)
        case inspect.DictType():
            return (fold := _normalizer(form.value_type)) and _normalize_values(fold)
        case inspect.UnionType():
            folds = [fold for fold in map(_normalizer, form.types) if fold is not None]
            return _normalize_any(folds) if folds else None
        case _:
            return None


def _normalize_record(form: inspect.StructType) -> Normalizer:
    known = {field.encode_name for field in form.fields} | {form.tag_field}
    folds = {field.encode_name: inner for field in form.fields if (inner := _normalizer(field.type))}

    def fold(value: object) -> object:
        if not isinstance(value, dict):
            return value
        fields = dict(cast("JsonObject", value))
        carried = fields.pop("unknown", None)
        if isinstance(carried, dict):
            fields = cast("JsonObject", carried) | fields
        unknown = {name: fields.pop(name) for name in [*fields] if name not in known}
        for name in fields.keys() & folds.keys():
            fields[name] = folds[name](fields[name])
        return fields | {"unknown": unknown} if unknown else fields

    return fold


def _normalize_items(fold: Normalizer) -> Normalizer:
    return lambda value: [fold(item) for item in cast("list[object]", value)] if isinstance(value, list) else value


def _normalize_values(fold: Normalizer) -> Normalizer:
    def fold_all(value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {key: fold(item) for key, item in cast("JsonObject", value).items()}

    return fold_all


def _normalize_any(folds: list[Normalizer]) -> Normalizer:
    def fold_first(value: object) -> object:
        return next((folded for fold in folds if (folded := fold(value)) is not value), value)

    return fold_first


LogRecord: TypeAlias = (
    AttemptStarted
    | StepPart
    | Content
    | ContentRef
    | Observation
    | Reward
    | Label
    | Outcome
    | Accepted
    | Resumed
    | Group
    | PolicyVersion
    | TrainedBatch
    | TrainedTokens
    | ExcludedRollout
)
"""Records that log files, and so segments, contain."""

_KINDS: dict[str, type[Record]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        AttemptStarted,
        StepPart,
        Content,
        ContentRef,
        Observation,
        Reward,
        Label,
        Outcome,
        Accepted,
        Resumed,
        Group,
        PolicyVersion,
        TrainedBatch,
        TrainedTokens,
        ExcludedRollout,
        Vocabulary,
        Task,
        Step,
        Trajectory,
        SegmentFooter,
        Tombstone,
    )
}


_ARRAYS = (TokenIds, Logprobs, Advantages)


def _pack_array(value: object) -> bytes:
    if isinstance(value, _ARRAYS):
        return value.tobytes()
    raise TypeError(f"{type(value).__name__} has no stored form")


def _unpack_array(kind: type, value: object) -> object:
    if kind in _ARRAYS and isinstance(value, bytes | list | tuple):
        return kind(cast("bytes", value))
    if kind is object:
        return value
    raise TypeError(f"{kind.__name__} cannot be read from {type(value).__name__}")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_pack_array)
_LOG_DECODER = msgspec.msgpack.Decoder(LogRecord, dec_hook=_unpack_array)
_FOOTER_DECODER = msgspec.msgpack.Decoder(SegmentFooter)
_UNREADABLE = (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError, ValueError, RecursionError)


def encode(record: Record) -> bytes:
    """Return the stored form of the record."""
    return _ENCODER.encode(record)


def check_storable(value: object, subject: str) -> None:
    """Check that a value from outside can be stored in a record.

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

    Raises: CorruptRecordError: not msgpack, not a known kind, or a field has the wrong type.
    """
    try:
        fields = msgspec.msgpack.decode(content)
        kind = _KINDS[fields["type"]]
        return msgspec.convert(normalizer_for(kind)(fields), kind, dec_hook=_unpack_array)
    except _UNREADABLE as error:
        raise _unreadable(error) from error


def decode_known(content: bytes) -> LogRecord:
    """Read a record of a log at a quarter of the cost of ``decode``, without unknown fields.

    Raises: CorruptRecordError: as ``decode``.
    """
    try:
        return _LOG_DECODER.decode(content)
    except _UNREADABLE as error:
        raise _unreadable(error) from error


def decode_footer(content: bytes) -> SegmentFooter:
    """Read a footer, without unknown fields: rebuilding an index reads all of them.

    Raises: CorruptRecordError: not a footer.
    """
    try:
        return _FOOTER_DECODER.decode(content)
    except _UNREADABLE as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> CorruptRecordError:
    return CorruptRecordError(
        f"stored record: expected msgpack of a known kind ({', '.join(sorted(_KINDS))}), found {error!r};"
        " it was written by another program, or by an incompatible later version"
    )


class _OfTrajectory(Protocol):
    """A record of a trajectory, or its outline."""

    @property
    def trajectory_id(self) -> str: ...


_OWN_OWNERS = frozenset[type]({Group, PolicyVersion, TrainedBatch})


def record_owner(record: LogRecord | _OfTrajectory) -> str:
    """Return the owner of the record: a trajectory, a group, a policy version or a step of training.

    See ``owner_text``.
    """
    if type(record) not in _OWN_OWNERS:  # nearly all: a shipper asks this of every record
        return trajectory_owner(cast("_OfTrajectory", record).trajectory_id)
    match record:
        case Group():
            return owner_text("group", record.group_id)
        case PolicyVersion():
            return owner_text("policy", f"{record.run}:{record.number}")
        case TrainedBatch():
            return owner_text("batch", f"{record.run}:{record.step}")
        case _:
            return trajectory_owner(record.trajectory_id)
