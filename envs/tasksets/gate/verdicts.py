"""What scripts must score, and what is wrong with the verdicts on them."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from agent_layer.schema import JsonObject, Task
from envs.script import Script
from envs.tasksets.gate.report import Finding, make_finding
from envs.tasksets.gate.script_judge import Judgement

_LEAST: Final = {"rewrites": 20, "cheats": 20, "mutants": 1}
"""Scripts that differ which a set brings for each task."""
_MIN_MUTANTS_CAUGHT: Final = 0.95
_SLOW_SECONDS: Final = 60.0
_TOLERANCE: Final = 1e-9


class Case(NamedTuple):
    """One script, and what it must score."""

    code: str
    task: Task
    script: Script
    expected: float
    times: int
    most: float = 0.0
    """Largest reward that will do where 0 is expected."""


def is_right(case: Case, found: Judgement) -> bool:
    """Return whether a script scored as it must."""
    most = max(case.expected, case.most)
    least = case.expected or -math.inf  # a penalty is none
    return found.reward is not None and least - _TOLERANCE < found.reward < most + _TOLERANCE


class Verdicts:
    """Verdicts on scripts, by what they are."""

    def __init__(self, *, has_one_reference: bool) -> None:
        self._least = {"cheats": 1} if has_one_reference else _LEAST
        self.counts: dict[str, tuple[int, int]] = {}
        self.repeatable: list[tuple[Case, Judgement]] = []
        """References and answers that do nothing, with their verdicts, for other processes."""
        self._found: dict[tuple[str, str], list[tuple[Case, Judgement]]] = defaultdict(list)
        """Scripts that are not as they must be, by code and task."""
        self._unstable: dict[str, Finding] = {}
        self._works: dict[tuple[str, str], set[bytes]] = defaultdict(set)
        """By task and code, what its scripts leave behind: two that differ in their name only are one."""
        self._seconds: list[tuple[float, str]] = []

    def add(self, case: Case, verdicts: Sequence[Judgement]) -> None:
        """Count the verdicts on one script."""
        first, code = verdicts[0], case.code
        right, total = self.counts.get(code, (0, 0))
        self.counts[code] = (right + is_right(case, first), total + 1)
        self._seconds += [(one.seconds, case.task.id) for one in verdicts]
        work = msgspec.json.encode(msgspec.structs.replace(case.script, name=""), enc_hook=repr)
        self._works[case.task.id, code].add(work)
        if code in ("reference", "untouched", "empty"):
            self.repeatable.append((case, first))
        for other in verdicts[1:]:
            if (other.reward, other.status) != (first.reward, first.status):
                text = f"first {describe(first)}, then {describe(other)}"
                found = make_finding("unstable-verdict", text, tasks=[case.task.id], script=case.script.name)
                self._unstable.setdefault(case.task.id, found)
                return
        if not is_right(case, first):
            is_own = code in ("reference", "rewrites", "mutants", "cheats")
            self._found[code if is_own or first.reward is not None else "unscored", case.task.id].append((case, first))

    def findings(self, *, is_audit: bool) -> list[Finding]:
        """Return what is wrong; of the mutants a few may be right by chance."""
        right, total = self.counts.get("mutants", (0, 0))
        has_mutants = total and right / total < _MIN_MUTANTS_CAUGHT
        found = list(self._unstable.values())
        for code, task, cases in self._merge():
            if code != "mutants" or has_mutants:
                case, first = cases[0]
                more = f"; and {len(cases) - 1} more" if len(cases) > 1 else ""
                text = f"expected {case.expected:g}, found {describe(first)}{more}"
                is_empty = code == "unscored" and any(one.code in ("empty", "untouched") for one, _ in cases)
                severity = "fails" if is_empty else None
                found.append(make_finding(code, text, tasks=[task], script=case.script.name, severity=severity))
        slow = [(seconds, task) for seconds, task in self._seconds if seconds > _SLOW_SECONDS]
        found += [make_finding("slow-scoring", f"{max(slow)[0]:.0f} s", tasks=[max(slow)[1]])] if slow else []
        return [*found, *self._count_scripts(is_audit=is_audit)]

    def _merge(self) -> Iterator[tuple[str, str, list[tuple[Case, Judgement]]]]:
        """Yield what is wrong by code and task, without what follows from another finding."""
        for task in dict.fromkeys(task for _, task in self._found):
            codes = {code: cases for (code, one), cases in self._found.items() if one == task}
            if "garbage" in codes and "empty" in codes:
                codes["says-yes"] = [*codes.get("says-yes", ()), *codes["empty"], *codes["garbage"]]
            implied = {"empty", "garbage", "echo", "cheats"} if "says-yes" in codes else set[str]()
            implied |= {"echo"} if "garbage" in codes else set()
            implied |= {"rewrites", "unscored"} if "reference" in codes else set()
            implied |= {"hedge"} if codes.keys() & {"says-yes", "empty", "garbage", "echo"} else set()
            yield from ((code, task, cases) for code, cases in codes.items() if code not in implied)

    def pays(self, task: Task) -> bool:
        """Whether an answer without sense pays."""
        return any((code, task.id) in self._found for code in ("garbage", "empty", "says-yes"))

    def figures(self) -> JsonObject:
        """Return the cost of scoring one answer."""
        seconds = [one for one, _ in self._seconds]
        if not seconds:
            return {}
        return {
            "scorings": len(seconds),
            "seconds_p50": round(statistics.median(seconds), 4),
            "seconds_max": round(max(seconds), 4),
        }

    def _count_scripts(self, *, is_audit: bool) -> Iterable[Finding]:
        """Yield what a set brings too few of; one that brings none, such as a foreign set, relies on ours."""
        if is_audit or not any(code in self._least for _, code in self._works):
            return
        for task in dict.fromkeys(task for task, _ in self._works):
            plain = self._works.get((task, "reference"), set()) | self._works.get((task, "untouched"), set())
            for code, expected in self._least.items():
                found = len(self._works.get((task, code), set()) - plain)
                if found < expected:
                    text = f"{code}: expected at least {expected} that differ, found {found}; write more"
                    yield make_finding("few-scripts", text, tasks=[task])


def describe(one: Judgement) -> str:
    """Return a verdict in words."""
    reward = "no judgement" if one.reward is None else f"{one.reward:g}"
    return f"{reward} ({one.status}{', ' + one.evidence if one.evidence else ''})"
