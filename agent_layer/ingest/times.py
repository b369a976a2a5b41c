"""This file holds which times of others are believed: those that a clock can have shown, and a page can show."""

from functools import cache

from agent_layer.errors import BadInputError
from agent_layer.schema import LogRecord

_TOO_LATE = 32_503_680_000.0
"""Seconds; the year 3000."""


def is_believable(seconds: float) -> bool:
    """Whether this is between 1970 and 3000; what is no number is not."""
    return 0 <= seconds < _TOO_LATE


def check_times(record: LogRecord) -> None:
    """Check the times that a record tells: one that no reader can write out would spoil whatever shows it.

    Raises: BadInputError: a time cannot be.
    """
    for field in _time_fields(type(record)):
        told = getattr(record, field)
        if told is not None and not is_believable(told):
            raise BadInputError(
                f"record {type(record).__name__}: expected {field} between 1970 and 3000, found {told:g} s; check the"
                " sender's clock"
            )


@cache
def _time_fields(kind: type[LogRecord]) -> list[str]:
    return [field for field in kind.__struct_fields__ if field == "at" or field.endswith("_at")]
