"""The book outside Redis: what each worker claimed and reported, and the answers it received.

A line is in the page cache before the worker continues, so it survives the worker's death.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, cast

from clocks import true_time

__all__ = ["Deed", "Kind", "Pen", "Row", "read_deeds"]

Kind: TypeAlias = Literal[
    "took", "keeps", "says", "yes", "no", "again-yes", "again-no", "foreign-yes", "foreign-no", "ends"
]
"""``keeps`` stands before a checkpoint is noted and ``says`` before the report leaves, ``yes`` or ``no`` after the
answer; ``again`` answers the same report said once more, ``foreign`` one with the token of another lease; ``ends``: a
heartbeat heard that the lease is no more. The sentence of ``took`` is the checkpoint from which the attempt goes on."""

Row: TypeAlias = tuple[str, int, str, str, str]
"""rollout_id, attempt, token, ending, sentence."""


class Deed(NamedTuple):
    """One line."""

    at: float
    """True seconds since the epoch."""
    worker: str
    kind: Kind
    rollout_id: str
    attempt: int
    token: str
    ending: str
    sentence: str

    @property
    def holding(self) -> tuple[int, str]:
        """Which try at the rollout it was, and in whose hands."""
        return self.attempt, self.token


class Pen:
    """Writes one worker's lines."""

    def __init__(self, directory: Path, worker: str) -> None:
        self._worker = worker
        self._file = os.open(directory / f"{worker}.book", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, kind: Kind, rows: Sequence[Row]) -> None:
        """Write rows, all of them or none."""
        at = true_time()
        lines = ["\t".join(map(str, (at, self._worker, kind, *row))) + "\n" for row in rows]
        if lines:
            os.write(self._file, "".join(lines).encode())


def read_deeds(directory: Path) -> list[Deed]:
    """All books together, in order of time."""
    deeds: list[Deed] = []
    for path in directory.glob("*.book"):
        for line in path.read_text().splitlines():
            at, worker, kind, rollout_id, attempt, token, ending, sentence = line.split("\t")
            deeds.append(Deed(float(at), worker, cast("Kind", kind), rollout_id, int(attempt), token, ending, sentence))
    return sorted(deeds)
