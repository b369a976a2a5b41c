"""Search for leaks: whether what an agent sees holds what only its scorer should know.

A value that stands somewhere by chance, or because the question is about it, is no leak. Two rules tell them apart:

* **One rule reads the answers of many tasks.** The same place, encoding and words before it hold the value of at least
  half of the tasks, and much more often their own than that of other tasks (binomial tail below 0.001).
* **The value tells its task from all others.** It has much information, and stands in no other task. Plainly it counts
  only in less than half of the tasks: where nearly all of them have it, in different places, finding it is the task.
"""

import codecs
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from envs.tasksets.gate.leaks.contents import STRUCTURE, Secret, VisibleText, is_named_answer, normalise, read_number
from envs.tasksets.gate.leaks.decoding import HiddenText, describe_place, find_texts, strip_encoded

_NUM_OTHERS: Final = 3
"""Tasks whose values are looked for in each task, to know how often one is there by chance."""
_MIN_TASKS: Final = 3
_MIN_SHARE: Final = 0.5
_MAX_CHANCE: Final = 1e-3
_PLAIN_BITS: Final = 40.0
_ENCODED_BITS: Final = 20.0
_ID_BITS: Final = 12.0
_MIN_ALIKE: Final = 4
"""Inputs of one template, at least, where values are all that tells them apart."""
_MAX_PLACES: Final = 4
_MIN_UNBOUNDED: Final = 16
"""Characters of a text that is found inside of words, too."""
_WHOLE: Final = "="
"""Stands before a value that is all of a text."""
_START: Final = "^"
"""Stands before a value at the start of a text."""
_LIST: Final = ""
"""Stands before a value among others, which no rule tells apart."""
_TRANSFORMS: Final[dict[str, Callable[[str], str]]] = {
    "reversed": lambda text: text[::-1],
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "spaced": " ".join,
}
"""Encodings that tasks ask for."""
_ASKS: Final = re.compile(
    r"\b(?:decod|decipher|decrypt|cipher|revers|backward|mirror|unscrambl|base ?64|base ?32|hexa?|binary|ascii|rot"
    r"|spell|repeat|copy|echo|upper|lower|capital|convert|translat)"
)
"""Words of inputs that ask to decode what they hold, or to copy it."""
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
    search = _Search([one for one in tasks if one.secrets])
    return [*search.find_rules(), *search.find_single()]


class _Search:
    """Where the secrets of tasks were found: in what is visible of them, and of others."""

    def __init__(self, tasks: Sequence[TaskContents]) -> None:
        self._tasks = tasks
        self._views = [_make_views(one.visible) for one in tasks]
        self._own: dict[_Rule, dict[int, _Hit]] = defaultdict(dict)
        """By rule, the tasks whose secret it reads."""
        self._by_chance: Counter[_Rule] = Counter()
        """Tasks in which a rule reads the secret of another."""
        self._telling: list[tuple[int, _Hit]] = []
        """Tasks with secrets that stand in no other."""
        self._named = set[int]()
        """Tasks that a leak names."""
        self._steps = range(1, min(_NUM_OTHERS, len(tasks) - 1) + 1)
        for at in range(len(tasks)):
            self._look(at)

    def find_rules(self) -> Iterator[Leak]:
        """Yield the rules that read the secrets of many tasks."""
        self._num_alike = Counter(_group(rule) for rule, found in self._own.items() if len(found) > 1)
        rules = [(rule, found) for rule, found in self._own.items() if self._is_telling(rule, len(found))]
        for rule, found in sorted(rules, key=lambda one: (-len(one[1]), not one[0].place, one[0])):
            if not found.keys() <= self._named:
                yield self._describe(found, is_question=self._is_question(rule, found))

    def find_single(self) -> Iterator[Leak]:
        """Yield tasks that tell their own secrets alone."""
        plain = {at for at, hit in self._telling if not hit.rule.encoding}
        is_to_find = len(self._tasks) >= _MIN_TASKS and len(plain) >= _MIN_SHARE * len(self._tasks)
        fields = (
            (at, hit)
            for found in self._own.values()
            for at, hit in found.items()
            if hit.rule.before == _WHOLE and is_named_answer(hit.view.place)
        )
        for at, hit in [*((at, hit) for at, hit in self._telling if hit.rule.encoding or not is_to_find), *fields]:
            if at not in self._named:
                yield self._describe({at: hit}, is_question=False)

    def _look(self, at: int) -> None:
        others = [(at + step) % len(self._tasks) for step in self._steps]
        for other in others:
            secrets = self._tasks[other].secrets
            self._by_chance.update({hit.rule for one in secrets for hit in _match(self._views[at], one)})
        for secret in self._tasks[at].secrets:
            hits = list(_match(self._views[at], secret))
            for hit in hits:
                self._own[hit.rule].setdefault(at, hit)
            rich = [hit for hit in hits if secret.bits >= (_ENCODED_BITS if hit.rule.encoding else _PLAIN_BITS)]
            if rich and not any(next(_match(self._views[other], secret), None) for other in others):
                self._telling += [(at, hit) for hit in rich]

    def _is_telling(self, rule: _Rule, number: int) -> bool:
        """Whether a rule reads too many secrets for chance.

        Chance is how often it reads the secret of another task; and where the secret stands at one of several places of
        a kind, such as options of a choice, how often it would be at this one.
        """
        total = len(self._tasks)
        if total < _MIN_TASKS or number < _MIN_SHARE * total or rule.before == _LIST:
            return False
        chance = (self._by_chance[rule] + 0.5) / (total * len(self._steps) + 1)
        num_alike = 1 if rule.place == "id" else self._num_alike[_group(rule)]
        chance = chance if num_alike < 2 else max(chance, 1 / num_alike)
        return num_alike * _tail(total, number, chance) < _MAX_CHANCE

    def _is_question(self, rule: _Rule, found: dict[int, _Hit]) -> bool:
        """Whether the input asks to decode or to copy, and nothing but the value in it tells the inputs apart."""
        rests: set[tuple[str, ...]] = set()
        for at, hit in found.items():
            encoded = _TRANSFORMS.get(rule.encoding, str)(hit.form)
            texts = [view.text for view in self._views[at] if not view.encoding and view.place.startswith("input")]
            if not hit.view.place.startswith("input") or is_named_answer(hit.view.place):
                return False
            rests.add(tuple(strip_encoded(text.replace(encoded, ""), rule.encoding) for text in texts))
        return len(rests) * _MIN_ALIKE <= len(found) and any(map(_ASKS.search, next(iter(rests))))

    def _describe(self, found: dict[int, _Hit], *, is_question: bool) -> Leak:
        self._named |= found.keys()
        hit = next(iter(found.values()))
        how = f" as {hit.view.encoding}" if hit.view.encoding else ""
        evidence = f"{hit.view.place}{how} holds {hit.form[:60]!r}, in {len(found)} of {len(self._tasks)} tasks"
        return Leak([self._tasks[at].id for at in sorted(found)], evidence, is_question)


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
        if (view.encoding and view.place in plain) or (view.place == "id" and secret.bits < _ID_BITS):
            continue  # ids count, and so do the answers of simple tasks
        if view.text in secret.forms or (secret.number is not None and read_number(view.text) == secret.number):
            found = [(_WHOLE, shortest)]
        elif view.place.endswith(STRUCTURE):
            continue
        else:
            places = [(at, shortest) for at in view.numbers.get(secret.number, ())] if secret.number is not None else []
            places += [(at, form) for form in secret.forms for at in _find_words(view.text, form, secret.number)]
            found = [(describe_place(view.text, at) if at else _START, form) for at, form in places[:_MAX_PLACES]]
        if found and not view.encoding:
            plain.add(view.place)
        for before, form in found:
            yield _Hit(_Rule(view.place, view.encoding, f"{view.before}{before}"), view, form)
            if view.encoding:
                yield _Hit(_Rule("", view.encoding, "*"), view, form)


def _find_words(text: str, form: str, number: float | None) -> Iterator[int]:
    if form in text and (number is None or read_number(form) is None):
        bounds = ("(?<!\\w)", "(?!\\w)") if len(form) < _MIN_UNBOUNDED and form[0].isalnum() else ("", "")
        yield from (match.start() for match in re.finditer(re.escape(form).join(bounds), text))


def _group(rule: _Rule) -> tuple[str, str]:
    return re.sub(r"\d+", "*", rule.place), rule.encoding


def _tail(number: int, least: int, chance: float) -> float:
    """Return the probability of at least ``least`` successes of ``number`` (binomial)."""
    return sum(
        math.comb(number, hits) * chance**hits * (1 - chance) ** (number - hits) for hits in range(least, number + 1)
    )
