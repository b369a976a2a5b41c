"""Observer of the running crowd: queue, heartbeats and memory, once a second."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).parents[2]))  # what all tests share

from book import Book
from machine import Tree
from place import Place
from waiting import wait_until

from agent_layer.dispatcher import Dispatcher

__all__ = ["Watch"]

_SAMPLE_SECONDS = 1.0
_SMOOTH = 5
"""Samples whose median is taken: memory jumps when it is handed back."""


@dataclass
class Watch:
    """Samples, oldest first."""

    place: Place
    dispatcher: Dispatcher
    samples: list[tuple[float, dict[str, Tree]]] = field(default_factory=list[tuple[float, dict[str, Tree]]])
    """(seconds since the epoch, processes by part)."""
    max_silence: float = 0.0
    """Of any worker, in seconds."""
    emptied_at: float | None = None
    """When the queue was first seen empty; None: it never was."""

    def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Look on until the condition holds."""

        def holds() -> bool:
            if condition():
                return True
            self._look()
            time.sleep(_SAMPLE_SECONDS)
            return False

        wait_until(holds, seconds, what, lambda: str(self.dispatcher.stats()))

    def for_seconds(self, seconds: float) -> None:
        """Observe for ``seconds``, or until the queue is empty."""
        end = time.monotonic() + seconds

        def is_over() -> bool:
            return self.emptied_at is not None or time.monotonic() > end  # wait: how long it looks on

        self.until(is_over, seconds + 60, "looking on")

    def parts(self, book: Book, since: float, until: float) -> Iterator[tuple[str, float]]:
        """Of each part its memory, by how much that grew in the second half, and its CPU time for each rollout.

        Args:
            book: source of the rollouts' end times.
            since: seconds since the epoch; all slots were taken.
            until: what was left was cancelled.
        """
        seen = [sample for sample in self.samples if since <= sample[0] <= until]
        first, middle, last = seen[0], seen[len(seen) // 2 :][:_SMOOTH], seen[-_SMOOTH:]
        yield "rollouts ended in the second half", book.num_ended(middle[0][0], last[0][0])
        for part, now in last[-1][1].items():
            before, after = (median(trees[part].rss_mb for _, trees in samples) for samples in (middle, last))
            yield f"MB {part}", after
            yield f"MB {part}, more in the second half", after - before
            cpu_seconds = now.cpu_seconds - first[1][part].cpu_seconds
            yield f"ms CPU {part}, for each rollout that ended", 1000 * cpu_seconds / book.num_ended(since, until)

    def _look(self) -> None:
        self.samples.append((time.time(), self.place.trees()))
        workers = self.dispatcher.workers()
        self.max_silence = max([self.max_silence, *(worker.silent_seconds for worker in workers)])
        if self.emptied_at is None and self.dispatcher.stats().num_queued == 0:
            self.emptied_at = time.time()
