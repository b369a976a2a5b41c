"""Limits for times from other machines: those that a clock can have shown and a page can display."""

from functools import cache

from agent_layer.errors import BadInputError
from agent_layer.schema import LogRecord

_TOO_LATE = 32_503_680_000.0
"""Seconds; the year 3000."""


def is_believable(seconds: float) -> bool:
    """Whether this is between 1970 and 3000; False for NaN."""
    return 0 <= seconds < _TOO_LATE


def check_times(record: LogRecord) -> None:
    """Check the times of a record: readers fail to display a time outside the range.

    Raises: BadInputError: a time is out of range.
    """
    for field in _time_fields(type(record)):
        value = getattr(record, field)
        if value is not None and not is_believable(value):
            raise BadInputError(
                f"record {type(record).__name__}: expected {field} between 1970 and 3000, found {value:g} s; check the"
                " sender's clock"
            )


@cache
def _time_fields(kind: type[LogRecord]) -> list[str]:
    return [field for field in kind.__struct_fields__ if field == "at" or field.endswith("_at")]
