"""Times, spans and ranges: read from text, written as text."""

import math
import re
from datetime import UTC, datetime

from agent_layer.errors import BadInputError

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

_READABLE = ((120.0, 1.0, "s"), (7_200.0, 60.0, "min"), (172_800.0, 3_600.0, "h"), (math.inf, 86_400.0, "d"))
"""Spans below the first number are written in the unit beside it."""
_ROUNDED = 10.0


def format_time(seconds: float) -> str:
    """Write seconds since the epoch as RFC 3339 in UTC, cut to milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_minute(seconds: float) -> str:
    """Write seconds since the epoch as people read them, to the minute: ``2026-11-20 18:00 UTC``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def format_span(seconds: float) -> str:
    """Write a span as people read it: ``0.4 s``, ``90 s``, ``12 min``, ``3.5 h``, ``2.1 d``."""
    for below, unit, name in _READABLE:
        if seconds < below:
            number = seconds / unit
            return f"{number:.0f} {name}" if number >= _ROUNDED or name == "min" else f"{number:.2g} {name}"
    return f"{seconds:.3g} s"


def parse_time(text: str, subject: str, now: float) -> float:
    """Read RFC 3339 (UTC where it names no zone), or a span before now such as ``2h``; return seconds since the epoch.

    Raises: BadInputError: it is neither.
    """
    if ago := _AGO.fullmatch(text):
        return now - float(ago[1]) * _SECONDS[ago[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInputError(
            f"{subject} {text!r}: expected a time such as 2026-11-20T18:00:00Z, or 90s, 2h, 3d for a span before now;"
            " write one of these"
        ) from error
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def parse_span(text: str, subject: str) -> float:
    """Read a span such as ``90s`` or ``2h``; return seconds.

    Raises: BadInputError: it is none.
    """
    if span := _AGO.fullmatch(text):
        return float(span[1]) * _SECONDS[span[2]]
    raise BadInputError(f"{subject} {text!r}: expected a span such as 90s, 2h or 3d; write one of these")


def parse_range(text: str, subject: str) -> tuple[float | None, float | None]:
    """Read ``LO..HI``, ``LO..``, ``..HI`` or one number; both ends belong to the range, None is open.

    Raises: BadInputError: it is no such range, or its low end is above its high end.
    """
    low, dots, high = text.partition("..")
    try:
        ends = (_number(low), _number(high if dots else low))
    except ValueError:
        ends = (None, None)
    if ends == (None, None) or (ends[0] is not None and ends[1] is not None and ends[0] > ends[1]):
        raise BadInputError(
            f"{subject} {text!r}: expected LO..HI with LO not above HI, where one end may be left out;"
            " write for example 5.., ..0.5 or 10..20"
        )
    return ends


def _number(text: str) -> float | None:
    if not text:
        return None
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
