"""Filters of trajectories, and their meaning for bitmaps and columns."""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from hashlib import sha1
from typing import Literal, NamedTuple, TypeAlias, TypedDict

from agent_layer.errors import BadInputError
from agent_layer.store.segments.fields import FIELDS, rest_name
from agent_layer.times import parse_time

Range: TypeAlias = tuple[float | None, float | None]
"""Both ends are included; None is an open end. An unknown number is in no range."""

Which: TypeAlias = int | Literal["last"] | tuple[Literal["tool"], str]
"""A step: its index, the last one, or all that asked for a tool of this name."""
_BY_VALUE = {field.filter: field for field in FIELDS if field.filter is not None}
_ACCEPTED = "accepted=1"
_REWARDED = "rewarded"
"""Bitmap of all trajectories with a reward."""
_BUCKETS_PER_UNIT, _LAST_BUCKET = 20, 200
_MAX_VALUE_LENGTH = 64
"""The bitmap of a longer value is named by its hash; lua/prelude.lua has the same number."""


class Filters(TypedDict, total=False):
    """Conditions on trajectories. None, like a filter that is left out, matches all."""

    run: str | None
    split: str | None
    task: str | None
    task_type: str | None
    input_hash: str | None
    """Content hash of its task's input; tasks with the same input share it."""
    env: str | None
    env_version: str | None
    status: str | None
    cause: str | None
    agent: str | None
    """Name of an agent that made at least one of its calls."""
    tool: str | None
    """Name of a tool that was asked for, or that answered, at least once."""
    finding: str | None
    """Kind of a finding, such as ``prefix_break``: the part before a colon."""
    engine: str | None
    """Address of an engine that at least one of its calls went to; ``http://`` and ``/v1`` may be left out."""
    labels: Mapping[str, str] | None
    """All of these."""
    accepted: bool | None
    step: Which | None
    """A step that it must have."""
    policy: Range | None
    """Overlaps the span from its oldest to its newest policy version."""
    reward: Range | None
    since: float | str | None
    """Started then or later: seconds since the epoch, RFC 3339, or a span before now such as ``2h``."""
    until: float | str | None
    """Started then or earlier."""


class NumberRange(NamedTuple):
    """The members of a column that lie between two ends, both included."""

    column: str
    low: float
    high: float


class BoundedValue(NamedTuple):
    """Value of a field whose first values alone have a bitmap each."""

    name: str
    """Its bitmap, if it has one."""
    rest: str
    """Bitmap of the members whose rows may have it, too."""
    field: str
    """Field of a row, a list, that decides about these."""
    value: str


class Conditions(NamedTuple):
    """Conditions on the members of a block."""

    names: tuple[str, ...]
    """Bitmaps that it must be in; at least one, ``all``."""
    bounded: tuple[BoundedValue, ...] = ()
    """Those of the names for which a bitmap does not have all members."""
    without: tuple[str, ...] = ()
    """Bitmaps that it must not be in."""
    ranges: tuple[NumberRange, ...] = ()


_LABEL_ENDS = re.compile("[\0=]")
"""Characters that a NUL escapes in the name of a label, so that it ends at the first plain '='; same in
lua/prelude.lua."""

_HOST_AND_PORT = re.compile(r"[^/]+:[0-9]+")


def find_bucket(reward: float) -> int:
    """Return the bucket of a reward, each 0.05 wide; rewards beyond 10 share the last ones. As in lua/prelude.lua."""
    return math.floor(max(-_LAST_BUCKET, min(_LAST_BUCKET, reward * _BUCKETS_PER_UNIT)))


@cache
def bucket_ends(bucket: int) -> tuple[float, float]:
    """Return the least and the greatest reward of a bucket; the first and the last one have an open end."""
    return (
        -math.inf if bucket <= -_LAST_BUCKET else _find_bucket_begin(bucket),
        math.inf if bucket >= _LAST_BUCKET else math.nextafter(_find_bucket_begin(bucket + 1), -math.inf),
    )


def _find_bucket_begin(bucket: int) -> float:
    first = bucket / _BUCKETS_PER_UNIT
    while find_bucket(before := math.nextafter(first, -math.inf)) >= bucket:  # 0.44999999999999996 * 20 is 9
        first = before
    return first


def parse_filters(filters: Filters, occurs: Callable[[str, str], bool] | None = None) -> Conditions:
    """Translate filters to conditions.

    Args:
        filters: of trajectories.
        occurs: whether a field (by its bitmap) has this value in the index; then it passes, though no choice of this
            version; None: it never does.

    Raises: BadInputError: no such filter, or it cannot have this value.
    """
    _check(filters, occurs)
    accepted = filters.get("accepted")
    names = [*_exact(filters), *([_ACCEPTED] if accepted else [])]
    names += [_REWARDED] if filters.get("reward") not in (None, (None, None)) else []
    return Conditions(
        names=tuple(names) or ("all",),
        bounded=tuple(_list_bounded(filters)),
        without=(_ACCEPTED,) if accepted is False else (),
        ranges=tuple(_ranges(filters)),
    )


def _exact(filters: Filters) -> Iterator[str]:
    for name, field in _BY_VALUE.items():
        if (value := filters.get(name)) is not None:
            yield name_bitmap(str(field.bitmap), _engine_address(str(value)) if name == "engine" else str(value))
    for label, value in (filters.get("labels") or {}).items():
        yield name_label(label, value)
    match filters.get("step"):
        case ("tool", str(name)):
            yield name_bitmap("tool", name)
        case _:
            pass


def _list_bounded(filters: Filters) -> Iterator[BoundedValue]:
    for name, field in _BY_VALUE.items():
        bitmap, step = str(field.bitmap), filters.get("step")
        values = {filters.get(name), step[1] if name == "tool" and isinstance(step, tuple) else None} - {None}
        if field.is_bounded:
            for value in map(str, values):
                yield BoundedValue(name_bitmap(bitmap, value), rest_name(bitmap), field.name, value)


def _engine_address(text: str) -> str:
    """Return an engine's address as calls record it."""
    address = text.rstrip("/").removesuffix("/v1")
    return f"http://{address}" if _HOST_AND_PORT.fullmatch(address) else address


def name_label(label: str, value: str) -> str:
    """Return the name of the bitmap of a label's value."""
    return name_bitmap("label", f"{_LABEL_ENDS.sub(_escaped, label)}={value}")


def _escaped(found: re.Match[str]) -> str:
    return f"\0{found[0]}"


def name_bitmap(field: str, value: str) -> str:
    """Return the name of the bitmap of a value; that of a long one has its hash."""
    stored = value.encode("utf-8", "surrogatepass")
    return f"{field}={sha1(stored, usedforsecurity=False).hexdigest() if len(stored) > _MAX_VALUE_LENGTH else value}"


def _ranges(filters: Filters) -> Iterator[NumberRange]:
    oldest, newest = filters.get("policy") or (None, None)
    bounds: dict[str, Range] = {
        "started_at": (_moment(filters.get("since"), "since"), _moment(filters.get("until"), "until")),
        "reward": filters.get("reward") or (None, None),
        "policy_max": (oldest, None),
        "policy_min": (None, newest),
        "num_steps": (_least_steps(filters.get("step")), None),
    }
    for column, (low, high) in bounds.items():
        if (low, high) != (None, None):
            ends = -math.inf if low is None else _as_float(low), math.inf if high is None else _as_float(high)
            if any(map(math.isnan, ends)):
                raise BadInputError(f"range of {column}: expected numbers as its ends, found {ends}; write others")
            yield NumberRange(column, *ends)


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer beyond all floats
        return math.inf if number > 0 else -math.inf


def _least_steps(step: Which | None) -> int | None:
    match step:
        case None:
            return None
        case int():
            return step + 1
        case _:
            return 1


def _check(filters: Filters, occurs: Callable[[str, str], bool] | None) -> None:
    if unknown := filters.keys() - Filters.__annotations__.keys():
        known = ", ".join(Filters.__annotations__)
        raise BadInputError(f"filter {min(unknown)!r}: expected one of {known}; correct it or leave it out")
    for name, field in _BY_VALUE.items():
        value = filters.get(name)
        is_known = not field.choices or value in (None, *field.choices)
        if not is_known and not (occurs and occurs(str(field.bitmap), str(value))):
            raise BadInputError(f"{name} {value!r}: expected one of {', '.join(field.choices)}; choose one of these")
    if ":" in (finding := filters.get("finding") or ""):
        kind = finding.partition(":")[0]
        raise BadInputError(f"finding {finding!r}: expected a kind, without a colon; ask for {kind!r}, and see 'show'")
    match filters.get("step"):
        case None | "last" | ("tool", str()):
            pass
        case int(index) if index >= 0:
            pass
        case other:
            raise BadInputError(
                f"step {other!r}: expected an index of 0 or more, 'last' or ('tool', NAME); choose one of these"
            )


def _moment(value: float | str | None, subject: str) -> float | None:
    return parse_time(value, subject, time.time()) if isinstance(value, str) else value
