"""This file holds what is told of a rescoring at its end: how many were judged, and what it did to the rewards."""

from collections import Counter
from collections.abc import Iterator

from agent_layer.errors import AgentFailedError
from envs.rescoring import Judging, Verdict, VerdictKind

__all__ = ["Tally"]

_NUM_SHOWN = 10
"""Changed rewards that are listed one by one."""


class Tally:
    """Counts verdicts; what it keeps does not grow with their number."""

    def __init__(self) -> None:
        self._kinds = Counter[VerdictKind]()
        self._changed: list[str] = []
        """The first that changed, as they are shown."""
        self._num_changed = 0
        self._sums = {"before": 0.0, "after": 0.0}
        self._nums = {"before": 0, "after": 0}
        self._error: str | None = None

    def add(self, verdict: Verdict) -> None:
        """Count one."""
        self._kinds[verdict.kind] += 1
        self._error = self._error or verdict.error
        if verdict.kind != "judged":
            return
        for side, reward in (("before", verdict.before), ("after", verdict.after)):
            if reward is not None:
                self._sums[side] += reward
                self._nums[side] += 1
        if verdict.before != verdict.after:
            self._num_changed += 1
            if len(self._changed) < _NUM_SHOWN:
                self._changed.append(f"{verdict.trajectory_id}  {_shown(verdict.before)} → {_shown(verdict.after)}")

    def lines(self, judging: Judging, *, is_stopped: bool) -> Iterator[str]:
        """What a person reads at the end."""
        yield from self._changed
        if self._num_changed > len(self._changed):
            yield f"... and {self._num_changed - len(self._changed)} more"
        would = " (nothing was kept)" if judging.is_rehearsal else ""
        yield f"judged {self._kinds['judged']}, changed {self._num_changed}{would}"
        yield f"mean reward {self._mean('before')} → {self._mean('after')}"
        if known := self._kinds["known"]:
            yield f"{known} were judged by this version of the scorer before ({judging.verifier_hash})"
        if unended := self._kinds["open"]:
            yield f"{unended} have not ended in a way that is scored"
        if is_stopped:
            yield "stopped; the same command goes on from here"

    def raise_failures(self) -> None:
        """Let the command fail where the scorer did.

        Raises: AgentFailedError: it failed at least once.
        """
        if failed := self._kinds["failed"]:
            raise AgentFailedError(
                f"rescore: expected a judgement of every trajectory, but {failed} could not be judged and keep what"
                f" they had; the first failed with {self._error}; the same command tries them again"
            )

    def _mean(self, side: str) -> str:
        num = self._nums[side]
        return f"{self._sums[side] / num:.4g} (of {num})" if num else "null"


def _shown(reward: float | None) -> str:
    return "null" if reward is None else f"{reward:g}"
