"""Search for leaks: does what an agent sees hold what only its scorer should know?

A value that stands somewhere by chance, or because the question is about it, is no leak. Two rules tell them apart:

* **One rule reads the answers of many tasks.** The same place, encoding and words before it hold the value of at least
  half of the tasks, and much more often their own than that of other tasks (binomial tail below 0.001).
* **The value tells its task from all others.** It has much information, and stands in no other task. Plainly it counts
  only in less than half of the tasks: where nearly all of them have it, in different places, finding it is the task.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from envs.tasksets.gate.leaks.contents import STRUCTURE, Secret, VisibleText, is_named_answer, normalise, read_number
from envs.tasksets.gate.leaks.decoding import HiddenText, describe_place, find_texts

_NUM_OTHERS: Final = 3
"""Tasks whose values are looked for in each task, to know how often one is there by chance."""
_MIN_TASKS: Final = 3
_MIN_SHARE: Final = 0.5
_MAX_CHANCE: Final = 1e-3
_PLAIN_BITS: Final = 40.0
_ENCODED_BITS: Final = 20.0
_MAX_PLACES: Final = 4
_MIN_UNBOUNDED: Final = 16
"""Characters of a text that is found inside of words, too."""
_TRANSFORMS: Final = frozenset({"reversed", "rot13", "spaced"})
"""Encodings that tasks ask for."""
_NUMBER: Final = re.compile(r"(?<![\w.])-?(?:\d+(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")


class TaskContents(NamedTuple):
    """A task as a search takes it."""

    id: str
    visible: Sequence[VisibleText]
    secrets: Sequence[Secret]


class Leak(NamedTuple):
    """A way from what agents see to what scorers expect."""

    tasks: list[str]
    evidence: str
    is_question: bool
    """The value, encoded, is all that tells one question from another, so that to decode it may be the task."""


class _View(NamedTuple):
    """A visible text, or one inside of it."""

    place: str
    encoding: str
    before: str
    text: str
    numbers: dict[float, list[int]]


class _Rule(NamedTuple):
    """Where a value was found, in words that other tasks share."""

    place: str
    encoding: str
    before: str


class _Hit(NamedTuple):
    rule: _Rule
    view: _View
    form: str


def find_leaks(tasks: Sequence[TaskContents]) -> list[Leak]:
    """Return the ways from visible texts to secrets; each task is named by one of them at most."""
    tasks = [one for one in tasks if one.secrets]
    if not tasks:
        return []
    views = [_make_views(one.visible) for one in tasks]
    own: dict[_Rule, dict[int, _Hit]] = defaultdict(dict)
    by_chance: dict[_Rule, int] = defaultdict(int)
    telling: list[tuple[int, _Hit]] = []
    num_pairs = 0
    others = range(1, min(_NUM_OTHERS, len(tasks) - 1) + 1)
    for at, task in enumerate(tasks):
        for step in others:
            num_pairs += 1
            for rule in {hit.rule for one in tasks[(at + step) % len(tasks)].secrets for hit in _match(views[at], one)}:
                by_chance[rule] += 1
        for secret in task.secrets:
            hits = list(_match(views[at], secret))
            for hit in hits:
                own[hit.rule].setdefault(at, hit)
            if hits and not any(_holds(views[(at + step) % len(tasks)], secret) for step in others):
                telling += [(at, hit) for hit in hits if secret.bits >= _least_bits(hit)]
    num_alike = Counter(_group(rule) for rule, found in own.items() if len(found) > 1)

    def alike(rule: _Rule) -> float:
        """Return how often a value is at this one of places among which a task draws, such as options of a choice."""
        return 0.0 if num_alike[_group(rule)] < 2 else 1 / num_alike[_group(rule)]

    rules = [
        (len(found), rule, found)
        for rule, found in own.items()
        if len(tasks) >= _MIN_TASKS
        and len(found) >= _MIN_SHARE * len(tasks)
        and num_alike[_group(rule)]
        * _tail(len(tasks), len(found), max((by_chance[rule] + 0.5) / (num_pairs + 1), alike(rule)))
        < _MAX_CHANCE
    ]
    leaks, named = list[Leak](), set[int]()
    for _, rule, found in sorted(rules, key=lambda one: (-one[0], not one[1].place, one[1])):
        if not found.keys() <= named:
            named |= found.keys()
            leaks.append(_describe(tasks, found, _is_question(rule, found, views)))
    plain = {at for at, hit in telling if not hit.rule.encoding}
    is_search = len(tasks) >= _MIN_TASKS and len(plain) >= _MIN_SHARE * len(tasks)
    rest: dict[int, _Hit] = {}
    for at, hit in telling:
        if at not in named and (hit.rule.encoding or not is_search):
            rest.setdefault(at, hit)
    named_fields = {
        at: hit for found in own.values() for at, hit in found.items() if hit.rule.before == "=" and at not in named
    }
    for at, hit in named_fields.items():
        if is_named_answer(hit.view.place):
            rest.setdefault(at, hit)
    return leaks + [_describe(tasks, {at: hit}, is_question=False) for at, hit in sorted(rest.items())]


def _make_views(visible: Iterable[VisibleText]) -> list[_View]:
    views: list[_View] = []
    for one in visible:
        for found in [HiddenText("", "", one.text)] if one.place.endswith(STRUCTURE) else find_texts(one.text):
            text = normalise(found.text)
            numbers: dict[float, list[int]] = defaultdict(list)
            for match in _NUMBER.finditer(text):
                if (number := read_number(match[0])) is not None:
                    numbers[number].append(match.start())
            views.append(_View(one.place, found.encoding, found.before, text, dict(numbers)))
    return views


def _match(views: Iterable[_View], secret: Secret) -> Iterator[_Hit]:
    """Yield where views hold a secret; encoded only where the same text does not hold it plainly."""
    shortest, plain = min(secret.forms, key=len), set[str]()
    for view in views:
        if view.encoding and view.place in plain:
            continue
        if view.text in secret.forms or (secret.number is not None and read_number(view.text) == secret.number):
            found = [("=", shortest)]
        elif view.place.endswith(STRUCTURE):
            continue
        else:
            places = [(at, shortest) for at in view.numbers.get(secret.number, ())] if secret.number is not None else []
            places += [(at, form) for form in secret.forms for at in _find_words(view.text, form, secret.number)]
            found = [(describe_place(view.text, at), form) for at, form in places[:_MAX_PLACES]]
        if found and not view.encoding:
            plain.add(view.place)
        for before, form in found:
            yield _Hit(_Rule(view.place, view.encoding, f"{view.before}{before}"), view, form)
            if view.encoding:
                yield _Hit(_Rule("", view.encoding, ""), view, form)


def _find_words(text: str, form: str, number: float | None) -> Iterator[int]:
    if form in text and (number is None or read_number(form) is None):
        bounds = ("(?<!\\w)", "(?!\\w)") if len(form) < _MIN_UNBOUNDED and form[0].isalnum() else ("", "")
        yield from (match.start() for match in re.finditer(re.escape(form).join(bounds), text))


def _holds(views: Iterable[_View], secret: Secret) -> bool:
    return next(iter(_match(views, secret)), None) is not None


def _group(rule: _Rule) -> tuple[str, str]:
    return re.sub(r"\d+", "*", rule.place), rule.encoding


def _least_bits(hit: _Hit) -> float:
    return _ENCODED_BITS if hit.rule.encoding else _PLAIN_BITS


def _tail(number: int, least: int, chance: float) -> float:
    """Return the probability of at least ``least`` successes of ``number`` (binomial)."""
    return sum(
        math.comb(number, hits) * chance**hits * (1 - chance) ** (number - hits) for hits in range(least, number + 1)
    )


def _is_question(rule: _Rule, found: dict[int, _Hit], views: Sequence[list[_View]]) -> bool:
    """Whether nothing but the encoded value tells the inputs apart."""
    if rule.encoding not in _TRANSFORMS:
        return False
    rests: set[tuple[str, ...]] = set()
    for at, hit in found.items():
        mirrored = hit.form[::-1] if rule.encoding == "reversed" else ""
        texts = (view.text for view in views[at] if not view.encoding and view.place.startswith("input"))
        rests.add(tuple(text.replace(mirrored, "") if mirrored else "" for text in texts))
    return len(rests) == 1


def _describe(tasks: Sequence[TaskContents], found: dict[int, _Hit], is_question: bool) -> Leak:  # noqa: FBT001
    hit = next(iter(found.values()))
    how = f" as {hit.view.encoding}" if hit.view.encoding else ""
    evidence = f"{hit.view.place}{how} holds {hit.form[:60]!r}, in {len(found)} of {len(tasks)} tasks"
    return Leak([tasks[at].id for at in sorted(found)], evidence, is_question)
