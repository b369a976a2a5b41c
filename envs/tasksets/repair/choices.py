"""Level 0: three lines of one function and three edits; one edit on one line repairs it."""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

import msgspec

from envs.tasksets.repair.programs.mutations import find_mutations

_NUM_LINES: Final = 3
_NUM_EDITS: Final = 3
_MAX_RIGHT: Final = 2
"""Answers of the nine that may repair it: a random one is right in 11 or 22 percent of all cases."""
_NUM_TRIES: Final = 12
_MAX_EDIT_LENGTH: Final = 60
_PIECES: Final = re.compile(r"\s+|\w+|[-+*/<>=!%]+|\W")
_ANSWER: Final = re.compile(
    r"(?<![a-z0-9])([1-9])[\s,.:;)\]*`'\"-]*(?:(?:and|edit|option)[\s:(*`'\"-]*){0,2}([a-z])(?![a-z0-9])"
)


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What level 0 offers."""

    lines: list[int]
    """[3] numbers in the file, from 0; the prompt counts them from 1."""
    edits: list[tuple[str, str]]
    """[3] text, and what replaces its first occurrence in the line; the prompt calls them a, b and c."""

    def answers(self) -> list[str]:
        """Return all answers, as a model would write them."""
        return [f"{line + 1} {'abc'[edit]}" for line in range(len(self.lines)) for edit in range(len(self.edits))]

    def apply(self, source: str, answer: str) -> str | None:
        """Return the edited source; None: the answer is none, more than one, or the edit does not fit the line."""
        found = set(_ANSWER.findall(answer.lower()))
        if len(found) != 1:
            return None
        number, letter = found.pop()
        line, edit = int(number) - 1, ord(letter) - ord("a")
        if line >= len(self.lines) or edit >= len(self.edits):
            return None
        lines = source.split("\n")
        old, new = self.edits[edit]
        if old not in lines[self.lines[line]]:
            return None
        lines[self.lines[line]] = lines[self.lines[line]].replace(old, new, 1)
        return "\n".join(lines)


def draw_choices(broken: str, fixed: str, rng: Random, is_right: Callable[[str], bool]) -> tuple[Choices, str] | None:
    """Return choices and the answer that leads back to the fixed source; None: they would be too easy, or unclear.

    Args:
        broken: a source with a bug.
        fixed: the source without it; one line differs.
        rng: decides.
        is_right: whether a source behaves as it should.
    """
    before, after = broken.split("\n"), fixed.split("\n")
    differing = [number for number, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
    bug_line = differing[0]
    right = _edit_between(before[bug_line], after[bug_line])
    others = _edits_near(broken, bug_line)
    if right is None or len(differing) > 1:
        return None
    for _ in range(_NUM_TRIES):
        near = sorted(set(others) - {bug_line})
        lines = sorted([bug_line, *rng.sample(near, min(_NUM_LINES - 1, len(near)))])
        edits = _draw_edits([edit for line in lines for edit in others.get(line, ())], right, rng)
        if len(lines) < _NUM_LINES or len(edits) < _NUM_EDITS:
            return None
        choices = Choices(lines=lines, edits=edits)
        answer = f"{lines.index(bug_line) + 1} {'abc'[edits.index(right)]}"
        if choices.apply(broken, answer) == fixed and _count_right(choices, broken, is_right) <= _MAX_RIGHT:
            return choices, answer
    return None


def show(source: str, choices: Choices) -> str:
    """Return the function with the lines numbered, and the edits."""
    first, last = _function_around(source, choices.lines[0])
    shown: list[str] = []
    for number, line in enumerate(source.split("\n")[first:last], first):
        mark = str(choices.lines.index(number) + 1) if number in choices.lines else " "
        shown.append(f"{mark} {line}")
    edits = [f"{letter}) {_describe(old, new)}" for letter, (old, new) in zip("abc", choices.edits, strict=True)]
    return "\n".join([*shown, "", *edits])


def _describe(old: str, new: str) -> str:
    return f"replace `{old.strip()}` by `{new.strip()}`" if new.strip() else f"remove `{old.strip()}`"


def _count_right(choices: Choices, broken: str, is_right: Callable[[str], bool]) -> int:
    edited = [choices.apply(broken, answer) for answer in choices.answers()]
    return sum(source is not None and is_right(source) for source in edited)


def _edit_between(before: str, after: str) -> tuple[str, str] | None:
    """Return the shortest run of words and signs that differs and is found first in the line."""
    old, new = _PIECES.findall(before), _PIECES.findall(after)
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    while True:
        pair = "".join(old[start : len(old) - end]), "".join(new[start : len(new) - end])
        if pair[0].strip() and before.replace(*pair, 1) == after:
            return pair if max(map(len, pair)) <= _MAX_EDIT_LENGTH else None
        if start == 0 and end == 0:
            return None
        start, end = max(0, start - 1), max(0, end - 1)


def _edits_near(source: str, line: int) -> dict[int, list[tuple[str, str]]]:
    """Return edits of the lines of the function around a line."""
    first, last = _function_around(source, line)
    found: dict[int, list[tuple[str, str]]] = {}
    lines = source.split("\n")
    for mutation in find_mutations(source):
        number = source.count("\n", 0, mutation.start)
        if first <= number < last and "\n" not in mutation.old:
            after = mutation.apply(source).split("\n")[number]
            if (edit := _edit_between(lines[number], after)) is not None:
                found.setdefault(number, []).append(edit)
    return found


def _draw_edits(edits: Sequence[tuple[str, str]], right: tuple[str, str], rng: Random) -> list[tuple[str, str]]:
    others = sorted(set(edits) - {right})
    drawn = [right, *rng.sample(others, min(_NUM_EDITS - 1, len(others)))]
    rng.shuffle(drawn)
    return drawn


def _function_around(source: str, line: int) -> tuple[int, int]:
    """Return first line, from 0, and the one behind the last of the innermost function around a line."""
    spans = [(start, end) for start, end in _functions(source) if start <= line < end]
    return min(spans, key=lambda span: span[1] - span[0])


def _functions(source: str) -> Iterator[tuple[int, int]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            yield node.lineno - 1, node.end_lineno or node.lineno
