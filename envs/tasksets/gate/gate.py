"""The gate of task sets: what must score 1 does, what must score 0 does, all is the same twice, and nothing leaks.

    draw ──> the same in other processes? ──> duplicates? ──> leaks? ──> score answers of a sample ──> report
                                                                          │
      always        reference, own scripts of the set, untouched, empty   ┤
      in an audit   prompt, garbage, failing code, forgeries, constants,  ┘
                    other hashes and another time, what a box holds

A check is the part of an audit that is cheap enough to run before each training; both make the same report.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import islice
from random import Random
from typing import Final, Literal, NamedTuple

import msgspec

from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.schema import JsonObject, Split, Task
from envs.sandbox import PoolOptions, SandboxPool, open_pool
from envs.script import Script
from envs.tasksets.gate.constants import find_constants
from envs.tasksets.gate.duplicates import DrawnTask, find_duplicates
from envs.tasksets.gate.elsewhere import PLACES, Elsewhere, JudgedScript, Place, hash_tasks, repeat_elsewhere
from envs.tasksets.gate.leaks.box import read_box
from envs.tasksets.gate.leaks.contents import list_secrets, list_visible
from envs.tasksets.gate.leaks.search import TaskContents, find_leaks
from envs.tasksets.gate.probes import hedge_answer, list_always, list_probes
from envs.tasksets.gate.report import CODES, Finding, Report, is_mendable, list_left_out, make_finding
from envs.tasksets.gate.script_judge import Judgement, ScriptJudge, can_judge
from envs.tasksets.gate.verdicts import Case, Verdicts, describe, is_right
from envs.tasksets.sources import identify_taskset, list_untried, open_source
from envs.tasksets.taskset import TaskSet

_SPLITS: Final[tuple[Split, ...]] = ("train", "eval")
_CONCURRENCY: Final = max(2, os.cpu_count() or 2) + 1
_REPEATED: Final = 6
"""Number of scripts of a kind for each one that is judged twice."""
_NUM_TIMES: Final = 3
"""Verdicts on an answer whose verdict is compared, or is not as it must be."""
_NUM_SEARCHED: Final = 200
"""Tasks of a level in which an audit looks for leaks; a check looks into the tasks that it compares."""
_NUM_BOXES: Final = 8
"""Tasks of a level whose boxes are looked into."""
_NUM_ELSEWHERE: Final = 24
"""Answers that are judged in other processes."""
_NUM_ANSWERED: Final = 64
"""Tasks of a level on which single answers are tried, where no box is needed."""
_NUM_FORGED: Final = 1
"""Tasks of a level on which failing code and the common forgeries are tried: about 70 answers."""
_MAX_PART: Final = 0.999
"""Reward of a wrong solution at most, where a set gives parts."""
_NUM_HEDGED: Final = 12
"""Other tasks with whose answers the right one is mixed."""


class Progress(NamedTuple):
    """How far the gate is."""

    done: int
    total: int
    """Grows while tasks are drawn."""
    subject: str


class GateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is checked."""

    kind: Literal["check", "audit"] = "check"
    seed: int = 0
    """Seed of tasks and sample."""
    levels: Sequence[int] | None = None
    """None: all."""
    count: int | None = None
    """Tasks of each level that are scored; None: 1, or all where each task has one reference."""
    compared: int = 32
    """Tasks of each level and split that are compared with each other; of files all are."""
    places: Sequence[Place] | None = None
    """Other processes in which tasks are drawn and answers judged; None: one in a check, all in an audit."""


class Examination:
    """One check or audit. Interrupt ``run`` at any time: ``report`` has what was found so far.

    Args:
        name: as ``open_source`` takes it.
        options: what is checked.
        tell: receives the progress.

    Raises: BadInputError: there is no such set, or no such level.
    """

    def __init__(self, name: str, options: GateOptions, tell: Callable[[Progress], None]) -> None:
        self._began, self._name, self._options, self._tell = time.monotonic(), name, options, tell
        self.taskset = open_source(name)
        levels = self.taskset.levels
        self.levels = list(levels if options.levels is None else options.levels)
        if unknown := [level for level in self.levels if level not in levels]:
            raise BadInputError(
                f"task set {self.taskset.name!r}: expected a level from {levels[0]} to {levels[-1]}, found {unknown[0]}"
            )
        self._is_audit = options.kind == "audit"
        self._drawn: list[DrawnTask] = []
        self._findings: list[Finding] = []
        self._notes: list[str] = []
        self._figures: JsonObject = {}
        self.has_one_reference: bool = getattr(self.taskset, "has_one_reference", False)
        """Whether each task was written by hand, with one right solution and no wrong ones."""
        self._judged = Verdicts(has_one_reference=self.has_one_reference)
        self.sample: dict[int, list[Task]] = {}
        """Tasks of each level that are scored, once they are drawn."""
        self._scored: dict[str, Task] = {}
        self._forged = set[str]()
        """Ids of tasks on which failing code and forgeries are tried."""
        self.is_done = False
        """Whether it was not interrupted."""

    async def run(self) -> None:
        """Look at everything.

        Raises:
            BadInputError: a scorer cannot be loaded, or a task of a set has none.
            SandboxError: this machine makes no boxes.
        """
        by_level = {level: self._draw(level) for level in self.levels}
        self._notes += list_untried(self.taskset) if self.has_one_reference else ()
        if not any(by_level.values()):
            raise BadInputError(
                "; ".join([f"task set {self.taskset.name!r}: expected tasks, found none", *self._notes])
            )
        self._drawn = [one for some in by_level.values() for one in some]
        self._tell(Progress(0, 0, f"compare {len(self._drawn)} tasks"))
        self._findings += await asyncio.to_thread(find_duplicates, self._drawn)
        number = self._options.count
        if number is None:
            number = len(self._drawn) if self.has_one_reference else 1
        self.sample = {level: self._choose(level, some, number) for level, some in by_level.items()}
        async with open_pool(options=PoolOptions(ready_per_spec=2)) as pool:
            for level, some in by_level.items():
                self._tell(Progress(0, 0, f"look for leaks at level {level}"))
                self._findings += await self._search(pool, some)
            judge = ScriptJudge(pool)
            tasks = [task for some in self.sample.values() for task in some if self._can_judge(task)]
            self._forged = {task.id for some in self.sample.values() for task in some[:_NUM_FORGED]}
            async for case, verdicts in _judge_all(judge, tasks, self._make_cases, self._tell):
                self._judged.add(case, verdicts)
                self._scored[case.task.id] = case.task
            if self._is_audit:
                for level, some in self.sample.items():
                    if not any(self._judged.pays(task) for task in some):
                        await self._try_constants(judge, level, some, by_level[level])
        await self._compare_elsewhere()
        self.is_done = True

    def add(self, findings: Iterable[Finding], figures: JsonObject) -> None:
        """Add what others found, such as a model's attempts."""
        self._findings += findings
        self._figures |= figures

    def find_tasks(self, ids: Iterable[str]) -> list[Task]:
        """Return the drawn tasks with these ids."""
        drawn = {one.task.id: one.task for one in reversed(self._drawn)}
        return [drawn[name] for name in ids if name in drawn]

    def report(self) -> Report:
        """Return what was found so far."""
        findings = [*self._findings, *self._judged.findings(is_audit=self._is_audit)]
        findings.sort(key=lambda one: [*CODES].index(one.code))
        failed = list(dict.fromkeys(one.code for one in findings if one.severity == "fails"))
        notes = self._notes if self.is_done else [*self._notes, "it was interrupted: this is what it had found"]
        return Report(
            taskset=self.taskset.name,
            version=identify_taskset(self.taskset),
            verdict="failed" if failed or not self.is_done else "passed",
            codes=failed if self.is_done else [*failed, "interrupted"],
            leave_out=list_left_out(findings),
            is_mendable=self.is_done and is_mendable(findings, self._list_all(), self._scored.keys()),
            at=time.time(),
            kind=self._options.kind,
            seed=self._options.seed,
            levels=self.levels,
            num_compared=len(self._drawn),
            num_tasks=len(self._scored),
            counts=self._judged.counts,
            findings=findings,
            figures=self._figures | self._judged.figures(),
            notes=list(dict.fromkeys(notes)),
            seconds=time.monotonic() - self._began,
        )

    def _list_all(self) -> set[str]:
        """Return the ids of all tasks of the set; empty: it has more than were drawn."""
        drawn = [one for one in self._drawn if not one.is_extra]
        return set() if any(one.is_endless for one in drawn) else {one.task.id for one in drawn}

    def _draw(self, level: int) -> list[DrawnTask]:
        """Return tasks of both splits, and some of another seed of train, which must not be in eval either."""
        number = None if getattr(self.taskset, "is_finite", False) else self._options.compared
        parts: tuple[tuple[Split, int], ...] = (("train", 0), ("eval", 0), ("train", 1))
        found: list[DrawnTask] = []
        for split, step in parts if number is not None else parts[:2]:
            self._tell(Progress(0, 0, f"draw tasks of level {level}, split {split}"))
            with _blame(self.taskset, f"tasks of level {level}, split {split}"):
                tasks = self.taskset.tasks(split=split, seed=self._options.seed + step, level=level, count=number)
                drawn = list(islice(tasks, number))
            is_endless = number is not None and len(drawn) == number
            found += (DrawnTask(task, split, level, is_endless, is_extra=step > 0) for task in drawn)
        return found

    def _choose(self, level: int, drawn: Sequence[DrawnTask], number: int) -> list[Task]:
        """Return the tasks that are scored: in a check the first, in an audit any; of both splits."""
        by_split = {split: [one.task for one in drawn if one.split == split and not one.is_extra] for split in _SPLITS}
        if self._is_audit:
            rng = Random(f"{self._options.seed} {level}")  # a sample, not a secret
            by_split = {split: rng.sample(tasks, min(number, len(tasks))) for split, tasks in by_split.items()}
        half = min(number // 2, len(by_split["eval"]))
        chosen = [*by_split["train"][: number - half], *by_split["eval"][:half]]
        return chosen or by_split["eval"][:number]

    def _can_judge(self, task: Task) -> bool:
        """Whether a task can be scored here; in a check the judge refuses what cannot."""
        if not self._is_audit or can_judge(task):
            return True
        self._notes.append(f"scorer {task.scorer!r} is the agent's or the worker's own: nothing was scored")
        return False

    def _solve(self, task: Task) -> Script | None:
        with _blame(self.taskset, f"solve of task {task.id!r}"):
            found = self.taskset.solve(task)
        return None if found.name == "none" else found

    async def _search(self, pool: SandboxPool, drawn: Sequence[DrawnTask]) -> list[Finding]:
        tasks = [one.task for one in drawn if not one.is_extra]
        if len(tasks) > _NUM_SEARCHED:
            tasks = Random(self._options.seed).sample(tasks, _NUM_SEARCHED)
        contents = [
            TaskContents(task.id, list_visible(task), list_secrets(task, await asyncio.to_thread(self._solve, task)))
            for task in tasks
        ]
        leaks = await asyncio.to_thread(find_leaks, contents)
        if self._is_audit:
            boxed = [task for task in tasks if task.sandbox is not None][:_NUM_BOXES]
            inside = [
                TaskContents(task.id, await read_box(pool, task), list_secrets(task, self._solve(task)))
                for task in boxed
            ]
            leaks += await asyncio.to_thread(find_leaks, inside)
        for leak in leaks:
            if leak.is_question:
                self._notes.append(f"to decode the question is to answer it: {leak.evidence}")
        return [make_finding("leak", leak.evidence, tasks=leak.tasks) for leak in leaks if not leak.is_question]

    def _make_cases(self, task: Task) -> list[Case]:
        reference = self._solve(task)
        cases = [Case(probe.code, task, probe.script, 0.0, _NUM_TIMES) for probe in list_always(task)]
        if reference is None or not getattr(self.taskset, "has_reference", True):
            self._notes.append("the set has no reference: that a right answer scores 1 was not tried")
        else:
            cases.append(Case("reference", task, reference, 1.0, _NUM_TIMES))
        most = _MAX_PART if getattr(self.taskset, "partial", False) else 0.0
        with _blame(self.taskset, f"rewrites, mutants or cheats of task {task.id!r}"):
            scripts: dict[str, tuple[Sequence[Script], float, float]] = {
                "rewrites": (self.taskset.rewrites(task), 1.0, 0.0),
                "mutants": (self.taskset.mutants(task), 0.0, most),
                "cheats": (self.taskset.cheats(task), 0.0, 0.0),
            }
        for code, (some, expected, most) in scripts.items():
            for number, script in enumerate(some):
                cases.append(Case(code, task, script, expected, 2 if number % _REPEATED == 0 else 1, most))
        if self._is_audit:
            cases += [
                Case(probe.code, task, probe.script, 0.0, 1)
                for probe in list_probes(task, reference, is_forged=task.id in self._forged)
            ]
            if reference is not None and (hedge := hedge_answer(reference, self._list_others(task))) is not None:
                cases.append(Case("hedge", task, hedge, 0.0, 1, _MAX_PART))
        return cases

    def _list_others(self, task: Task) -> list[Script]:
        """Return the references of some other tasks."""
        others = [one.task for one in self._drawn if not one.is_extra and one.task.id != task.id]
        some = Random(f"{self._options.seed} {task.id}").sample(others, min(_NUM_HEDGED, len(others)))
        return [one for one in map(self._solve, some) if one is not None]

    async def _try_constants(
        self, judge: ScriptJudge, level: int, sample: Sequence[Task], drawn: Sequence[DrawnTask]
    ) -> None:
        """Try single answers on the sample; on more tasks where that takes no boxes."""
        has_boxes = any(one.artifacts for one in sample)
        tasks = [one for one in (sample if has_boxes else self._choose(level, drawn, _NUM_ANSWERED)) if can_judge(one)]
        solved = [(task, one) for task in tasks if (one := self._solve(task)) is not None]
        self._tell(Progress(0, 0, f"try single answers at level {level}"))
        finding, share = await find_constants(judge, solved, level)
        self._findings += [finding] if finding else []
        if share is not None:
            self._figures[f"constant_share_level_{level}"] = share

    async def _compare_elsewhere(self) -> None:
        """Draw the tasks in other processes, and judge some answers there."""
        here = [await asyncio.to_thread(hash_tasks, self.taskset, one, self._options.seed) for one in self.levels]
        scripts = self._judged.repeatable[:_NUM_ELSEWHERE] if self._is_audit else []
        judged = [JudgedScript(case.task, case.script) for case, _ in scripts]
        places = self._options.places
        for place in (PLACES if self._is_audit else PLACES[:1]) if places is None else places:
            self._tell(Progress(0, 0, f"draw and score in {place.name}"))
            there = await repeat_elsewhere(place, self._name, self.levels, self._options.seed, judged)
            if isinstance(there, str):
                self._findings.append(make_finding("unstable-tasks", f"{place.name} failed: {there}"))
                continue
            self._findings += self._compare(place.name, here, there, scripts)

    def _compare(
        self, place: str, here: Sequence[str], there: Elsewhere, scripts: Sequence[tuple[Case, Judgement]]
    ) -> Iterable[Finding]:
        for level, one, other in zip(self.levels, here, there.hashes, strict=True):
            if one != other:
                text = f"level {level}, seed {self._options.seed}: {place} draws other tasks; draw from seeds only, and"
                yield make_finding("unstable-tasks", f"{text} iterate over no set")
        for (case, first), other in zip(scripts, there.judgements, strict=True):
            if (first.reward, first.status) != (other.reward, other.status):
                text = f"{describe(first)}, in {place} {describe(other)}"
                yield make_finding("unstable-verdict", text, tasks=[case.task.id], script=case.script.name)


@contextmanager
def _blame(taskset: TaskSet, what: str) -> Generator[None]:
    try:
        yield
    except AgentLayerError:
        raise
    except Exception as error:  # a set's own code may raise anything
        raise BadInputError(f"task set {taskset.name!r}: {what} failed with {error!r}; mend the set") from error


async def _judge_all(
    judge: ScriptJudge,
    tasks: Sequence[Task],
    make_cases: Callable[[Task], list[Case]],
    tell: Callable[[Progress], None],
) -> AsyncIterator[tuple[Case, list[Judgement]]]:
    """Judge the scripts of all tasks, some at the same time."""
    done = total = 0
    for task in tasks:
        tell(Progress(done, total, f"draw scripts of {task.id}"))
        cases = await asyncio.to_thread(make_cases, task)
        total += len(cases)
        waiting = list(reversed(cases))
        running: set[asyncio.Task[tuple[Case, list[Judgement]]]] = set()
        try:
            while waiting or running:
                while waiting and len(running) < _CONCURRENCY:
                    running.add(asyncio.create_task(_judge(judge, waiting.pop())))
                ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for one in ended:
                    done += 1
                    tell(Progress(done, total, task.id))
                    yield one.result()
        finally:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def _judge(judge: ScriptJudge, case: Case) -> tuple[Case, list[Judgement]]:
    """Judge a script as often as its case says; one that is not as it must be, more often."""
    verdicts = [await judge.judge(case.task, case.script)]
    times = case.times if is_right(case, verdicts[0]) else _NUM_TIMES
    while len(verdicts) < times:
        verdicts.append(await judge.judge(case.task, case.script))
    return case, verdicts
