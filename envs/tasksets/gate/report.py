"""Findings on a task set, and the report that they are kept in."""

from collections.abc import Iterable, Set as Collection
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from agent_layer.dispatcher import TasksetVerdict
from agent_layer.schema import JsonObject

Severity: TypeAlias = Literal["fails", "warns"]


class Code(NamedTuple):
    """A kind of finding."""

    severity: Severity
    subject: Literal["tasks", "set"]
    """``tasks``: leaving out those that it names mends the set."""
    sentence: str


_TASKS: Final = "tasks"
_SET: Final = "set"
CODES: Final[dict[str, Code]] = {
    "unstable-tasks": Code("fails", _SET, "Equal arguments give other tasks in another process, or at another time."),
    "same-id": Code("fails", _TASKS, "Different tasks have one id."),
    "split-overlap": Code("fails", _TASKS, "A task of split eval is in split train, too."),
    "near-overlap": Code("fails", _TASKS, "A task of split eval is nearly one of split train, with the same answer."),
    "duplicates": Code("fails", _TASKS, "Tasks of one split ask the same."),
    "near-duplicates": Code("warns", _TASKS, "Tasks of one split ask nearly the same, with the same answer."),
    "leak": Code("fails", _TASKS, "The agent sees what only the scorer should know."),
    "reference": Code("fails", _TASKS, "The reference does not score 1."),
    "rewrites": Code("fails", _TASKS, "Another right solution scores below 1."),
    "mutants": Code("fails", _TASKS, "Wrong solutions score above 0."),
    "says-yes": Code(
        "fails", _TASKS, "The scorer rewards what it cannot judge: crashes, skipped tests, time-outs, anything."
    ),
    "empty": Code("fails", _TASKS, "An empty answer scores above 0."),
    "untouched": Code("fails", _TASKS, "An attempt that does nothing scores above 0."),
    "echo": Code("fails", _TASKS, "The prompt, given back, scores above 0."),
    "garbage": Code("fails", _TASKS, "An answer without sense scores above 0."),
    "hedge": Code("fails", _TASKS, "All answers at once score as the right one does."),
    "cheats": Code("fails", _TASKS, "A forgery scores above 0."),
    "unstable-verdict": Code("fails", _TASKS, "The same answer scores differently."),
    "constant-answer": Code("fails", _SET, "One answer solves many tasks."),
    "few-scripts": Code("fails", _SET, "The set brings too few right solutions, wrong ones or forgeries of its own."),
    "unscored": Code("warns", _TASKS, "The scorer fails on an answer, so a policy can choose no reward instead of 0."),
    "slow-scoring": Code("warns", _TASKS, "Scoring one answer takes long."),
    "always-solved": Code("warns", _TASKS, "The model solves the task each time, so it teaches nothing."),
    "never-solved": Code("warns", _TASKS, "The model never solves the task."),
}
"""Every kind of finding, in the order of a report."""


_OF_ALL: Final = frozenset({"same-id", "split-overlap", "near-overlap", "duplicates", "near-duplicates"})
"""Kinds that all tasks are looked at for, not those alone that are scored."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it must be."""

    code: str
    severity: Severity
    sentence: str
    tasks: list[str] = []
    """Ids; empty: it is about the set."""
    script: str = ""
    """What was scored, where that is how it was found."""
    evidence: str


class Report(TasksetVerdict, frozen=True, kw_only=True):
    """What a check or an audit found."""

    kind: Literal["check", "audit"] = "check"
    seed: int = 0
    levels: list[int] = []
    num_compared: int = 0
    """Tasks whose inputs were compared with each other."""
    num_tasks: int = 0
    """Tasks that were scored."""
    counts: dict[str, tuple[int, int]] = {}
    """Number of answers that scored as they must, and number in all, by what was scored."""
    findings: list[Finding] = []
    figures: JsonObject = {}
    """Cost of scoring in seconds, the share that the best single answer solves, and what a model solved."""
    notes: list[str] = []
    """What was not looked at, and why."""
    seconds: float = 0.0

    @property
    def failures(self) -> list[Finding]:
        """Findings that fail the set."""
        return [one for one in self.findings if one.severity == "fails"]


def make_finding(
    code: str, evidence: str, *, tasks: Iterable[str] = (), script: str = "", severity: Severity | None = None
) -> Finding:
    """Return a finding of this kind; its severity is that of the kind where none is given."""
    known = CODES[code]
    return Finding(
        code=code,
        severity=severity or known.severity,
        sentence=known.sentence,
        tasks=list(tasks),
        script=script,
        evidence=evidence,
    )


def list_left_out(findings: Iterable[Finding]) -> list[str]:
    """Return the ids of tasks without which the set has none of the findings that fail it."""
    return sorted(
        {
            task
            for one in findings
            if one.severity == "fails" and CODES[one.code].subject == _TASKS
            for task in one.tasks
        }
    )


def is_mendable(findings: Iterable[Finding], compared: Collection[str], scored: Collection[str]) -> bool:
    """Whether leaving out the named tasks mends a set: something is left, and the rest was looked at, too.

    Args:
        findings: on the set.
        compared: ids of all its tasks; empty: it has no end.
        scored: ids of the tasks that were scored.
    """
    failed = [one for one in findings if one.severity == "fails"]
    is_covered = scored == compared or all(one.code in _OF_ALL for one in failed)
    of_tasks = all(CODES[one.code].subject == _TASKS and one.tasks for one in failed)
    return of_tasks and is_covered and not compared <= set(list_left_out(failed))
