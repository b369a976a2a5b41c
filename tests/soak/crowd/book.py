"""Reader of the crowd's book: when each agent ran, by the agents' own notes."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

__all__ = ["Book", "Span", "busy_share", "read_book"]


class Span(NamedTuple):
    """One agent's life, in seconds since the epoch; ``ended`` is infinite while it runs."""

    began: float
    ended: float


class Book(NamedTuple):
    """Agent runs by attempt, and the attempts whose agents ran more than once."""

    spans: dict[str, Span]
    doubled: list[str]

    @property
    def running(self) -> list[str]:
        """Attempts whose agents have not ended."""
        return [trajectory_id for trajectory_id, span in self.spans.items() if span.ended == float("inf")]

    def num_ended(self, since: float, until: float) -> int:
        """Agents that ended between two moments; at least 1, so that it can be divided by."""
        return max(1, sum(since < span.ended < until for span in self.spans.values()))


def read_book(path: Path) -> Book:
    """Read the agents' notes."""
    began: dict[str, float] = {}
    ended: dict[str, float] = {}
    num_begun: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        deed, trajectory_id, at = line.split()
        num_begun[trajectory_id] += deed == "began"
        (began if deed == "began" else ended).setdefault(trajectory_id, float(at))
    spans = {name: Span(at, ended.get(name, float("inf"))) for name, at in began.items()}
    return Book(spans, [name for name, number in num_begun.items() if number > 1])


def busy_share(book: Book, slots: int, since: float, until: float) -> float:
    """Which share of the slots' time between two moments agents ran in."""
    overlaps = (min(span.ended, until) - max(span.began, since) for span in book.spans.values())
    return sum(max(0.0, overlap) for overlap in overlaps) / (slots * (until - since))
