"""The gate of task sets: what must score 1 does, what must score 0 does, and everything is the same twice."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import Split, Task, content_hash, hash_input
from envs.sandbox import PoolOptions, open_pool
from envs.script import Script
from envs.tasksets.gate.script_judge import Judgement, ScriptJudge
from envs.tasksets.harbor import HarborTasks
from envs.tasksets.registry import open_taskset
from envs.tasksets.taskset import TaskSet

CheckName: TypeAlias = Literal[
    "same tasks twice",
    "splits are disjoint",
    "reference",
    "rewrites",
    "mutants",
    "empty",
    "cheats",
    "same verdict twice",
]
CHECKS: Final[tuple[CheckName, ...]] = (
    "same tasks twice",
    "splits are disjoint",
    "reference",
    "rewrites",
    "mutants",
    "empty",
    "cheats",
    "same verdict twice",
)
MIN_REWRITES: Final = 20
MIN_CHEATS: Final = 20
MIN_MUTANTS_CAUGHT: Final = 0.95
_SPLITS: Final[tuple[Split, ...]] = ("train", "eval")
_NUM_COMPARED: Final = 8
"""Tasks of each split and level that are compared for being the same twice, and for being in one split only."""
_CONCURRENCY: Final = max(2, os.cpu_count() or 2) + 1
_PRINT: Final = "from envs.tasksets.gate.gate import print_hashes; print_hashes(*sys.argv[2:])"
_CHILD_SECONDS: Final = 300.0
_REPEATED: Final = 6
"""Number of scripts of a kind for each one that is judged twice."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it must be."""

    check: CheckName
    task: str
    """Id; empty where it is not about one task."""
    script: str
    evidence: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate found."""

    taskset: str
    version: str
    seed: int
    levels: list[int]
    num_tasks: int
    counts: dict[str, tuple[int, int]]
    """Number that were as they must be, and number in all, by check."""
    failures: list[Failure]
    seconds: float
    at: float
    """Seconds since the epoch, UTC."""
    notes: list[str] = []
    """What was not looked at, and why."""

    @property
    def is_passed(self) -> bool:
        """Whether every check holds."""
        return not self.failures


class Progress(NamedTuple):
    """How far the gate is."""

    done: int
    total: int
    """Grows while tasks are drawn."""
    subject: str


class _Case(NamedTuple):
    """One script, and what it must score."""

    check: CheckName
    task: Task
    script: Script
    expected: float
    is_repeated: bool


class GateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is checked."""

    seed: int = 0
    levels: Sequence[int] | None = None
    """None: all."""
    count: int | None = None
    """Tasks of each level; None: 1, or all where each task has one reference."""


async def check_taskset(name: str, options: GateOptions, tell: Callable[[Progress], None]) -> Report:
    """Check a task set.

    Args:
        name: as ``open_taskset`` takes it.
        options: what is checked.
        tell: receives the progress.

    Raises:
        BadInputError: there is no such set, or no such level; or its scorer cannot be loaded.
        SandboxError: this machine makes no boxes.
    """
    began = time.monotonic()
    taskset = open_taskset(name)
    levels = list(taskset.levels if options.levels is None else options.levels)
    if unknown := [level for level in levels if level not in taskset.levels]:
        raise BadInputError(
            f"task set {taskset.name!r}: expected a level from {taskset.levels[0]} to {taskset.levels[-1]}, found"
            f" {unknown[0]}"
        )
    tell(Progress(0, 0, "draw tasks in two processes"))
    failures = await _compare_twice(name, taskset, levels, options.seed)
    failures += _compare_splits(taskset, levels, options.seed)
    tasks = [task for level in levels for task in _draw_tasks(taskset, level, options)]
    if has_one_reference(taskset) and not tasks:
        raise BadInputError(f"task set {taskset.name!r}: no task of it can run here; {_list_notes(taskset)[-1]}")
    judged = _VerdictCounts(has_one_reference=has_one_reference(taskset))
    async with open_pool(options=PoolOptions(ready_per_spec=2)) as pool:
        async for case, verdicts in _judge_all(ScriptJudge(pool), taskset, tasks, tell):
            judged.add(case, verdicts)
    failures += judged.failures()
    return Report(
        taskset=taskset.name,
        version=taskset.version,
        seed=options.seed,
        levels=levels,
        num_tasks=len(tasks),
        counts=judged.counts,
        failures=failures,
        seconds=time.monotonic() - began,
        at=time.time(),
        notes=_list_notes(taskset),
    )


def has_one_reference(taskset: TaskSet) -> bool:
    """Whether each task was written by hand, with one right solution and no wrong ones."""
    return bool(getattr(taskset, "has_one_reference", False))


def _list_notes(taskset: TaskSet) -> list[str]:
    if not has_one_reference(taskset):
        return []
    unseen = (
        "not tried: other right solutions, which the tests may refuse, and wrong ones, which they may take; a task has"
        " one reference, so read its tests"
    )
    return [unseen, *(taskset.list_notes() if isinstance(taskset, HarborTasks) else ())]


def _draw_tasks(taskset: TaskSet, level: int, options: GateOptions) -> list[Task]:
    """Return tasks of both splits in turn."""
    if options.count is None and has_one_reference(taskset):
        return [one for split in _SPLITS for one in taskset.tasks(split=split, seed=options.seed, level=level)]
    count = 1 if options.count is None else options.count
    half = count // 2
    train = taskset.tasks(split="train", seed=options.seed, level=level, count=count - half)
    return [*train, *taskset.tasks(split="eval", seed=options.seed, level=level, count=half)]


async def _compare_twice(  # kept: a named check
    name: str, taskset: TaskSet, levels: Sequence[int], seed: int
) -> list[Failure]:
    """Compare the tasks with those of another process, whose hashes have another seed."""
    here = [hash_tasks(taskset, level, seed) for level in levels]
    there = await _hash_elsewhere(name, levels, seed)
    return [
        Failure(
            check="same tasks twice",
            task="",
            script="",
            evidence=f"level {level}, seed {seed}: another process draws other tasks; draw from seeds only,"
            " and iterate over no set",
        )
        for level, one, other in zip(levels, here, there, strict=True)
        if one != other
    ]


def hash_tasks(taskset: TaskSet, level: int, seed: int) -> str:
    """Return a hash of the first tasks of a level."""
    drawn = [
        msgspec.json.encode(task)
        for split in _SPLITS
        for task in taskset.tasks(split=split, seed=seed, level=level, count=_NUM_COMPARED)
    ]
    return content_hash(b"\n".join(drawn))


async def _hash_elsewhere(name: str, levels: Sequence[int], seed: int) -> list[str]:
    code = "import json, sys; sys.path[:0] = json.loads(sys.argv[1]); " + _PRINT
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-R",
        "-c",
        code,
        json.dumps([path for path in sys.path if path]),
        name,
        str(seed),
        *map(str, levels),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_CHILD_SECONDS):
            output, _ = await child.communicate()
    except BaseException:
        child.kill()
        await child.wait()
        raise
    lines = output.decode().split()
    return lines if len(lines) == len(levels) else ["the other process failed"] * len(levels)


def print_hashes(name: str, seed: str, *levels: str) -> None:
    """Print the hash of each level's tasks; the gate runs it in another process."""
    taskset = open_taskset(name)
    for level in levels:
        sys.stdout.write(f"{hash_tasks(taskset, int(level), int(seed))}\n")


def _compare_splits(taskset: TaskSet, levels: Sequence[int], seed: int) -> list[Failure]:  # kept: a named check
    """Compare inputs of tasks of both splits, also of different seeds."""
    trained = {
        hash_input(task): task.id
        for level in levels
        for one in (seed, seed + 1)
        for task in taskset.tasks(split="train", seed=one, level=level, count=_NUM_COMPARED)
    }
    return [
        Failure(
            check="splits are disjoint",
            task=task.id,
            script="",
            evidence=f"is also in split train, as {trained[hash_input(task)]}",
        )
        for level in levels
        for task in taskset.tasks(split="eval", seed=seed, level=level, count=_NUM_COMPARED)
        if hash_input(task) in trained
    ]


async def _judge_all(
    judge: ScriptJudge, taskset: TaskSet, tasks: Sequence[Task], tell: Callable[[Progress], None]
) -> AsyncIterator[tuple[_Case, list[Judgement]]]:
    """Judge the scripts of all tasks, some at the same time."""
    done = total = 0
    for task in tasks:
        tell(Progress(done, total, f"draw scripts of {task.id}"))
        cases = await asyncio.to_thread(_make_cases, taskset, task)
        total += len(cases)
        waiting = list(reversed(cases))
        running: set[asyncio.Task[tuple[_Case, list[Judgement]]]] = set()
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


async def _judge(judge: ScriptJudge, case: _Case) -> tuple[_Case, list[Judgement]]:
    verdicts = [await judge.judge(case.task, case.script)]
    if case.is_repeated:
        verdicts.append(await judge.judge(case.task, case.script))
    return case, verdicts


def _make_cases(taskset: TaskSet, task: Task) -> list[_Case]:
    cases = [
        _Case("reference", task, taskset.solve(task), 1.0, is_repeated=True),
        _Case("empty", task, Script(name="empty"), 0.0, is_repeated=True),
    ]
    scripts: dict[CheckName, tuple[Sequence[Script], float]] = {
        "rewrites": (taskset.rewrites(task), 1.0),
        "mutants": (taskset.mutants(task), 0.0),
        "cheats": (taskset.cheats(task), 0.0),
    }
    for check, (some, expected) in scripts.items():
        for number, script in enumerate(some):
            cases.append(_Case(check, task, script, expected, is_repeated=number % _REPEATED == 0))
    return cases


class _VerdictCounts:
    """Counts verdicts by check and task."""

    def __init__(self, *, has_one_reference: bool) -> None:
        self._least: dict[CheckName, int] = {"rewrites": MIN_REWRITES, "cheats": MIN_CHEATS, "mutants": 1}
        if has_one_reference:
            self._least = {"cheats": 1}
        self.counts: dict[str, tuple[int, int]] = {}
        self._wrong: dict[CheckName, list[Failure]] = {}
        self._unequal: list[Failure] = []
        self._works: dict[tuple[str, CheckName], set[bytes]] = {}
        """By task and check, what its scripts leave behind: two that differ in their name only are one."""

    def add(self, case: _Case, verdicts: Sequence[Judgement]) -> None:
        """Count the verdicts on one script."""
        first = verdicts[0]
        is_right = first.reward is not None and abs(first.reward - case.expected) < 1e-9
        right, total = self.counts.get(case.check, (0, 0))
        self.counts[case.check] = (right + is_right, total + 1)
        work = msgspec.json.encode(msgspec.structs.replace(case.script, name=""), enc_hook=repr)
        self._works.setdefault((case.task.id, case.check), set()).add(work)
        if not is_right:
            text = f"expected {case.expected:g}, found {_describe(first)}"
            self._wrong.setdefault(case.check, []).append(_fail(case, case.check, text))
        for other in verdicts[1:]:
            if (other.reward, other.status) != (first.reward, first.status):
                text = f"first {_describe(first)}, then {_describe(other)}"
                self._unequal.append(_fail(case, "same verdict twice", text))

    def failures(self) -> list[Failure]:
        """Return what is wrong; of the mutants a few may be right by chance."""
        right, total = self.counts.get("mutants", (0, 0))
        if total and right / total >= MIN_MUTANTS_CAUGHT:
            self._wrong.pop("mutants", None)
        found = [failure for failures in self._wrong.values() for failure in failures]
        return [*found, *self._unequal, *self._too_few()]

    def _too_few(self) -> Iterable[Failure]:
        for task in dict.fromkeys(task for task, _ in self._works):
            plain = self._works.get((task, "reference"), set()) | self._works.get((task, "empty"), set())
            for check, expected in self._least.items():
                found = len(self._works.get((task, check), set()) - plain)
                if found < expected:
                    text = f"expected at least {expected} that differ, found {found}; write more"
                    yield Failure(check=check, task=task, script="", evidence=text)


def _fail(case: _Case, check: CheckName, evidence: str) -> Failure:
    return Failure(check=check, task=case.task.id, script=case.script.name, evidence=evidence)


def _describe(one: Judgement) -> str:
    reward = "no judgement" if one.reward is None else f"{one.reward:g}"
    return f"{reward} ({one.status}{', ' + one.evidence if one.evidence else ''})"
