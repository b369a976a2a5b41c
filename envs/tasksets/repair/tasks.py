"""The problems: repositories with bugs, by seed and level. The id of a task names how it is drawn again."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from types import ModuleType
from typing import Final

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.infra import format_count
from agent_layer.schema import Limits, RewardSpec, Split, Task, TaskView
from agent_layer.schema.sandbox import SandboxSpec
from envs.tasksets import TaskKey, read_key
from envs.tasksets.repair.choices import Choices, draw_choices, show
from envs.tasksets.repair.programs.catalogue import TEMPLATES, Bug, draw_bug
from envs.tasksets.repair.programs.template import Call, Case, Template
from envs.tasksets.repair.programs.trial import Outcome, load_modules, run_case
from envs.tasksets.repair.repository import Names, choose_names, find_module, spread, write_tests

NAME: Final = "repair"
VERSION: Final = "1"
"""Raise it when tasks, their checks or the scorer change."""
LEVELS: Final = range(4)
SOLVED: Final = "solved"
PATCH_LINES: Final = "patch_lines"
_SCORER: Final = "envs.tasksets.repair:RepairScorer"
_NUM_PARTS: Final = (1, 1, 2, 3)
"""Templates of a repository, by level."""
_NUM_SHOWN_FAILURES: Final = 2
_NUM_SHOWN: Final = 4
_NUM_HIDDEN: Final = 24
_ROOM: Final = {0: Limits(turns=1, wall_seconds=60, score_seconds=60)}
_ROOMS: Final = Limits(turns=30, wall_seconds=600, score_seconds=60, sandbox_seconds=900, observation_tokens=2000)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One template of a repository."""

    template: Template
    names: Names
    bug: Bug | None
    fixed: Mapping[str, str]
    """Right source by file."""
    broken: Mapping[str, str]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One case with its right outcome."""

    module: str
    calls: Sequence[Call]
    outcome: Outcome


class RepairInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a task asks."""

    level: int
    prompt: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One task with all that is known of it."""

    task: Task
    parts: Sequence[Part]
    shown: Sequence[Check]
    """Those of the tests in the repository."""
    hidden: Sequence[Check]
    choices: Choices | None = None
    """Choices of level 0."""
    answer: str = ""
    """Right answer of level 0."""

    @property
    def fixed(self) -> dict[str, str]:
        """Right source by file."""
        return {file: source for part in self.parts for file, source in part.fixed.items()}

    @property
    def broken(self) -> dict[str, str]:
        """Source that the agent finds, by file."""
        return {file: source for part in self.parts for file, source in part.broken.items()}


def read_input(task: TaskView) -> RepairInput:
    """Return what a task asks.

    Raises: BadInputError: it is no task of this set.
    """
    try:
        return msgspec.convert(task.input, RepairInput)
    except msgspec.ValidationError as error:
        raise BadInputError(f"task {task.id!r}: is no task of set {NAME!r}, {error}; submit one of it") from error


def find_problem(task_id: str) -> Problem:
    """Return the problem of a task.

    Raises: BadInputError: no task of this set has the id.
    """
    key = read_key(task_id, NAME, LEVELS)
    return draw_problem(key.split, key.seed, key.level, key.number)


@lru_cache(maxsize=256)
def draw_problem(split: Split, seed: int, level: int, index: int) -> Problem:
    """Return a problem; equal arguments give equal bytes."""
    key = TaskKey(NAME, level, split, seed, index)
    rng = key.make_rng(VERSION)
    while True:
        parts = _draw_parts(split, level, rng)
        if (problem := _draw_checks(key.id, split, level, parts, rng)) is not None:
            return problem


def _draw_parts(split: Split, level: int, rng: Random) -> list[Part]:
    templates = rng.sample(TEMPLATES, _NUM_PARTS[level])
    num_bugs = 1 if level < 3 else rng.randrange(2, len(templates) + 1)
    parts = [
        _make_part(
            template,
            choose_names(template, rng),
            draw_bug(template, split, rng, is_short=level == 0) if number < num_bugs else None,
            is_split=level > 1,
        )
        for number, template in enumerate(templates)
    ]
    rng.shuffle(parts)
    return parts


def _make_part(template: Template, names: Names, bug: Bug | None, *, is_split: bool) -> Part:
    fixed = names.rename(template.source)
    broken = fixed if bug is None else names.rename(bug.mutation.apply(template.source))
    return Part(
        template=template,
        names=names,
        bug=bug,
        fixed=spread(fixed, template.name, is_split=is_split),
        broken=spread(broken, template.name, like=fixed, is_split=is_split),
    )


def _draw_checks(task_id: str, split: Split, level: int, parts: Sequence[Part], rng: Random) -> Problem | None:
    shown: list[Check] = []
    hidden: list[Check] = []
    for part in parts:
        more_shown, more_hidden = _make_checks(part, rng)
        shown += more_shown
        hidden += more_hidden
    if level > 0:
        task = _make_task(task_id, split, level, parts, shown, hidden)
        return Problem(task=task, parts=parts, shown=shown, hidden=hidden)
    ((file, broken),) = parts[0].broken.items()
    drawn = draw_choices(broken, parts[0].fixed[file], rng, lambda source: not failures({file: source}, hidden))
    if drawn is None:
        return None
    choices, answer = drawn
    task = _make_choice_task(task_id, split, parts[0], choices, shown, hidden)
    return Problem(task=task, parts=parts, shown=shown, hidden=hidden, choices=choices, answer=answer)


def _make_checks(part: Part, rng: Random) -> tuple[list[Check], list[Check]]:
    """Return the checks that the agent sees, those that fail first, and others."""
    template = part.template
    changed = list(part.bug.changed) if part.bug else []
    cases = [*changed, *template.edges, *(template.draw(rng) for _ in range(_NUM_SHOWN + _NUM_HIDDEN))]
    random_from = len(cases) - _NUM_SHOWN - _NUM_HIDDEN
    shown = [*changed[:_NUM_SHOWN_FAILURES], *cases[random_from : random_from + _NUM_SHOWN]]
    hidden = [*changed[_NUM_SHOWN_FAILURES:], *cases[len(changed) : random_from], *cases[random_from + _NUM_SHOWN :]]
    modules = load_modules(part.fixed)
    return [_check(part, case, modules) for case in _without_copies(shown, [])], [
        _check(part, case, modules) for case in _without_copies(hidden, shown)
    ]


def _without_copies(cases: Sequence[Case], others: Sequence[Case]) -> Iterator[Case]:
    seen = {msgspec.json.encode(case) for case in others}
    for case in cases:
        key = msgspec.json.encode(case)
        if key not in seen:
            seen.add(key)
            yield case


def _check(part: Part, case: Case, modules: Mapping[str, ModuleType]) -> Check:
    calls = part.names.rename_case(case)
    module = find_module(part.fixed, calls[0].name)
    return Check(module=module, calls=calls, outcome=run_case(modules, module, calls))


def failures(files: Mapping[str, str], checks: Sequence[Check]) -> list[Check]:
    """Return the checks that our own code fails, run in this process."""
    try:
        modules = load_modules(files)
    except Exception:  # noqa: BLE001  # a mutant may raise anything
        return list(checks)
    return [check for check in checks if run_case(modules, check.module, check.calls) != check.outcome]


def _make_choice_task(
    task_id: str, split: Split, part: Part, choices: Choices, shown: Sequence[Check], hidden: Sequence[Check]
) -> Task:
    ((file, broken),) = part.broken.items()
    wrong = sorted(failures(part.broken, shown), key=lambda check: len(check.calls))[:1]
    example = write_tests("Example", _modules(part), [(check.calls, check.outcome) for check in wrong])
    asserted = "\n".join(line.strip() for line in example.splitlines() if "    " in line and "def " not in line)
    prompt = (
        f"This code has a bug in one of the numbered lines:\n\n{show(broken, choices)}\n\n"
        f"This should hold:\n{asserted.replace('unittest.main()', '').strip()}\n\n"
        "Answer with the number of the line and the letter of the edit that repairs it, and nothing else."
    )
    return Task(
        id=task_id,
        run=NAME,
        split=split,
        task_type=NAME,
        input={"level": 0, "prompt": prompt},
        grading={"file": file, "source": broken, "choices": choices, "checks": _as_data(hidden)},
        scorer=_SCORER,
        rewards=_rewards(),
        limits=_ROOM[0],
        labels=_labels(0),
        calls_optional=split == "eval",
    )


def _make_task(
    task_id: str, split: Split, level: int, parts: Sequence[Part], shown: Sequence[Check], hidden: Sequence[Check]
) -> Task:
    sources = {file: source for part in parts for file, source in part.broken.items()}
    tests = {f"test_{part.template.name}.py": _write_tests(part, shown) for part in parts}
    num_bugs = sum(part.bug is not None for part in parts)
    prompt = (
        f"This repository has {format_count(len(sources), 'Python file')} and"
        f" {'a bug' if num_bugs == 1 else f'{num_bugs} bugs'}: {', '.join(sorted(sources))}. Run its tests with"
        " 'python3 -m unittest -q'. Repair the source, not the tests: other tests will judge it."
    )
    return Task(
        id=task_id,
        run=NAME,
        split=split,
        task_type=NAME,
        input={"level": level, "prompt": prompt},
        grading={"checks": _as_data(hidden)},
        scorer=_SCORER,
        rewards=_rewards(),
        limits=_ROOMS,
        labels=_labels(level),
        sandbox=SandboxSpec(),
        files={**sources, **tests},
        artifacts=sorted(sources),
        calls_optional=split == "eval",
    )


def _write_tests(part: Part, shown: Sequence[Check]) -> str:
    modules = {file.removesuffix(".py") for file in part.fixed}
    mine = [(check.calls, check.outcome) for check in shown if check.module in modules]
    return write_tests(f"{part.template.name.capitalize()}Test", _modules(part), mine)


def _modules(part: Part) -> dict[str, str]:
    """Return the module of each name that cases use."""
    names = [part.names.rename_case([case[0]])[0].name for case in part.template.edges]
    names += [check for check in part.names.chosen.values() if check not in names]
    found: dict[str, str] = {}
    for name in names:
        for file, source in part.fixed.items():
            if re.search(rf"^(?:def|class) {re.escape(name)}\b", source, re.MULTILINE):
                found[name] = file.removesuffix(".py")
    return found


def _as_data(checks: Sequence[Check]) -> list[object]:
    return [
        {
            "module": check.module,
            "calls": [[one.name, one.args] for one in check.calls],
            "expected": msgspec.json.decode(check.outcome),
        }
        for check in checks
    ]


def _rewards() -> dict[str, RewardSpec]:
    return {SOLVED: RewardSpec(), PATCH_LINES: RewardSpec(weight=0.0, required=False)}


def _labels(level: int) -> dict[str, str]:
    return {"taskset": NAME, "taskset_version": VERSION, "level": str(level)}
