"""This file holds what one look of the doctor finds."""

from typing import Literal, NamedTuple

__all__ = ["Diagnosis"]


class Diagnosis(NamedTuple):
    """What one look found."""

    subject: str
    state: Literal["ok", "note", "bad"]
    """``note``: something is not there, or not as it could be; fine unless it is needed."""
    finding: str
