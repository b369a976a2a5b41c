"""Solutions of tasks: right ones written in many ways, and wrong ones that look right."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Final

import msgspec

from envs.tasksets import Script, write_replies
from envs.tasksets.repair.programs.mutations import find_mutations
from envs.tasksets.repair.programs.rewrites import PLAIN, list_rewrites, rewrite
from envs.tasksets.repair.programs.trial import RUNAWAY, load_modules, run_case
from envs.tasksets.repair.repository import find_module, spread
from envs.tasksets.repair.tasks import Check, Part, Problem, failures

_NUM_REWRITES: Final = 24
_NUM_MUTANTS: Final = 20
_NUM_FRESH: Final = 150
_NUM_NEAR: Final = 40
"""Wrong solutions among which the nearest miss is looked for."""
_SPELLINGS: Final = (
    "{0} {1}",
    "{0}{1}",
    " {0} {1}\n",
    "{0} {2}",
    "{0}, {1}",
    "{0}. {1}",
    "{0}) {1})",
    "({0} {1})",
    "**{0} {1}**",
    "`{0} {1}`",
    "{0}: {1}",
    "{0}-{1}",
    "Line {0}, edit {1}",
    "line {0} and edit {1}",
    "The answer is {0} {1}.",
    "Answer: {0} {1}",
    "{0} {1}, because {0} {1} repairs it",
    "[{0} {1}]",
    '"{0} {1}"',
    "{0}\n{1}",
    "{0}  {1}!",
    "LINE {0} EDIT {2}",
)


def write_reference(problem: Problem) -> Script:
    """Return the script that takes the bugs back."""
    if problem.choices is not None:
        return _answer("reference", problem.answer)
    script = _leave("reference", problem, problem.fixed)
    edits = [
        ("edit_file", {"path": file, **_edit(problem.broken[file], text or "")}) for file, text in script.files.items()
    ]
    return msgspec.structs.replace(script, replies=write_replies([*edits, ("run_tests", {})], "The tests pass."))


def write_independent(problem: Problem) -> Script:
    """Return the script that writes the faulty modules new."""
    if problem.choices is not None:
        return _answer("independent", f"line {problem.answer[0]}, edit {problem.answer[-1]}")
    files = problem.broken
    for part in _faulty(problem):
        files |= _independent_files(part)
    return _leave("independent", problem, files)


def write_rewrites(problem: Problem) -> list[Script]:
    """Return right solutions, each written in another way."""
    if problem.choices is not None:
        number, letter = problem.answer.split()
        texts = [spelling.format(number, letter, letter.upper()) for spelling in _SPELLINGS]
        return [_answer(f"spelled {text!r}", text) for text in texts]
    fresh = fresh_checks(problem)
    scripts = [write_independent(problem)]
    for name, files in _rewritten(problem):
        if not failures(files, fresh):
            scripts.append(_leave(name, problem, files))
        if len(scripts) == _NUM_REWRITES:
            break
    return scripts


def write_mutants(problem: Problem) -> list[Script]:
    """Return solutions that behave differently on fresh calls, which the scorer does not know."""
    fresh = fresh_checks(problem)
    if problem.choices is not None:
        return [
            _answer(f"answer {answer}", answer)
            for answer, files in _answered(problem)
            if files is None or failures(files, fresh)
        ]
    scripts: list[Script] = []
    for name, files in _mutated(problem):
        if _is_wrong(files, fresh):
            scripts.append(_leave(name, problem, files))
        if len(scripts) == _NUM_MUTANTS:
            break
    return scripts


def write_near_miss(problem: Problem) -> Script:
    """Return the wrong solution that passes most of the visible tests."""
    if problem.choices is not None:
        wrong = [answer for answer in problem.choices.answers() if answer != problem.answer]
        scripts = [script for script in write_mutants(problem) if script.result in wrong]
        return msgspec.structs.replace(scripts[0], name="near miss")
    best, least = problem.broken, len(problem.shown) + 1
    for _, files in islice(_mutated(problem), _NUM_NEAR):
        num_failed = len(failures(files, problem.shown))
        if num_failed < least and failures(files, problem.hidden):
            best, least = files, num_failed
        if least == 0:
            break
    return _leave("near miss", problem, best)


def fresh_checks(problem: Problem) -> list[Check]:
    """Return checks with calls that no task contains, for judging in this process."""
    rng = Random(f"fresh calls for {problem.task.id}")
    checks: list[Check] = []
    for part in _faulty(problem):
        modules = load_modules(part.fixed)
        for _ in range(_NUM_FRESH):
            calls = part.names.rename_case(part.template.draw(rng))
            module = find_module(part.fixed, calls[0].name)
            checks.append(Check(module=module, calls=calls, outcome=run_case(modules, module, calls)))
    return checks


def _faulty(problem: Problem) -> list[Part]:
    return [part for part in problem.parts if part.bug is not None]


def _is_wrong(files: Mapping[str, str], checks: Sequence[Check]) -> bool:
    """Whether code behaves differently, and ends."""
    try:
        modules = load_modules(files)
    except Exception:  # noqa: BLE001  # a mutant may raise anything
        return False
    is_wrong = False
    for check in checks:
        outcome = run_case(modules, check.module, check.calls)
        if outcome == RUNAWAY:
            return False
        is_wrong = is_wrong or outcome != check.outcome
    return is_wrong


def _independent_files(part: Part) -> dict[str, str]:
    source = part.names.rename(part.template.independent)
    if len(part.fixed) == 1:
        return {f"{part.template.name}.py": source}
    names = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    public = ", ".join(name for name in names if not name.startswith("_"))
    stem = part.template.name
    return {
        f"{stem}_base.py": source,
        f"{stem}.py": f"from {stem}_base import {public}\n\n__all__ = {public.split(', ')}\n",
    }


def _rewritten(problem: Problem) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield files by name of the rewrite, which is applied to every file of the faulty modules."""
    targets = {file: source for part in _faulty(problem) for file, source in part.fixed.items()}
    unchanged = {file: rewrite(source, PLAIN) for file, source in targets.items()}
    for name in list_rewrites():
        rewritten = {file: rewrite(source, name) for file, source in targets.items()}
        if name == PLAIN or rewritten != unchanged:
            yield name, problem.fixed | rewritten


def _mutated(problem: Problem) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield files with one mutation of the right source, in random order."""
    rng = Random(f"mutants of {problem.task.id}")
    places = [
        (part, mutation)
        for part in _faulty(problem)
        for mutation in find_mutations(part.template.source)
        if part.bug is None or mutation != part.bug.mutation
    ]
    rng.shuffle(places)
    for part, mutation in places:
        source = part.names.rename(mutation.apply(part.template.source))
        like = part.names.rename(part.template.source)
        files = spread(source, part.template.name, like=like, is_split=len(part.fixed) > 1)
        yield f"{mutation.name} in {part.template.name}", problem.fixed | files


def _answered(problem: Problem) -> Iterator[tuple[str, dict[str, str] | None]]:
    """Yield every answer of level 0 with what it leads to; None: the edit does not fit."""
    ((file, broken),) = problem.broken.items()
    if problem.choices is not None:
        for answer in problem.choices.answers():
            source = problem.choices.apply(broken, answer)
            yield answer, None if source is None else {file: source}


def _leave(name: str, problem: Problem, files: Mapping[str, str]) -> Script:
    changed = {file: source for file, source in files.items() if source != problem.broken.get(file)}
    return Script(name=name, files=dict(changed))


def _edit(before: str, after: str) -> dict[str, str]:
    """Return the smallest run of lines that differs and is unique."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    while True:
        piece = "".join(old[start : len(old) - end])
        if piece and before.count(piece) == 1:
            return {"old": piece, "new": "".join(new[start : len(new) - end])}
        start, end = max(0, start - 1), max(0, end - 1)


def _answer(name: str, text: str) -> Script:
    return Script(name=name, replies=[{"role": "assistant", "content": text}], result=text)
