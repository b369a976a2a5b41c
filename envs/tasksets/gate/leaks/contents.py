"""What an agent of a task sees, and what only its scorer and its reference know, as lists of texts."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, cast

import msgspec

from agent_layer.schema import Task
from envs.script import Script

_EXPECTED: Final = re.compile(
    r"(?:^|_)(?:answers?|expect\w*|solutions?|targets?|truth|gold\w*|correct|outputs?|results?|references?|tests?"
    r"|hidden|checks?|labels?|key|secret|wanted|graded?|grading|rubric)(?:_|$)",
    re.IGNORECASE,
)
"""Names of fields of a grading that hold what is right; others may repeat what the agent gets."""
_OPEN: Final = re.compile(
    r"(?:^|_)(?:inputs?|args?|arguments?|calls?|module|function|source|question|prompt|files?|path|name|kind|type|id|seed"
    r"|level|weight|tolerance|stdin|command|seconds|timeout|options|choices|check)(?:_|$)",
    re.IGNORECASE,
)
"""Names of fields below those that the agent may get, too."""
_NAMED: Final = re.compile(r"(?:^|_)(?:answers?|expected|solutions?|truth|gold|correct|secret|grading)$", re.IGNORECASE)
STRUCTURE: Final = "#json"
"""Last part of the place of a structure, which is JSON in one form."""
_MAX_VALUES: Final = 3
"""Values that a list has at most where each of them tells something."""
_MAX_SECRETS: Final = 300
_MAX_VISIBLE_LENGTH: Final = 1 << 20
_ONES: Final = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
_TENS: Final = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


class VisibleText(NamedTuple):
    """A text that an agent sees."""

    place: str
    text: str


class Secret(NamedTuple):
    """Something that only the scorer or the reference knows."""

    source: str
    """Its place in the grading, positions in lists as ``*``; or ``reference``."""
    forms: frozenset[str]
    """Texts that say it, in lower case, one space between words."""
    number: float | None
    bits: float
    """Estimate of its information: short and common values have little."""


def list_visible(task: Task, more: Iterable[VisibleText] = ()) -> list[VisibleText]:
    """Return what the agent sees: input, files, the environment of its box, labels, ids; structures as JSON, too."""
    fields = {
        "input": task.input,
        "files": {re.sub(r"\d+", "#", name): text for name, text in task.files.items()},
        "environment": task.sandbox.env if task.sandbox else {},
        "labels": task.labels,
        "id": task.id,
        "type": task.task_type,
    }
    found = [VisibleText(place, text) for place, text in _walk(msgspec.to_builtins(fields, enc_hook=repr), "")]
    found += [VisibleText("files#name", name) for name in task.files]
    for one in more:
        found += [one, *(VisibleText(f"{one.place}.{place}", text) for place, text in _walk(_parse(one.text), ""))]
    total, kept = 0, list[VisibleText]()
    for one in found:
        total += len(one.text)
        if total > _MAX_VISIBLE_LENGTH:
            break
        kept.append(one)
    return kept


def list_secrets(task: Task, reference: Script | None) -> list[Secret]:
    """Return what the agent must find out by itself.

    Where the reference is a text, a short value of the grading counts only if it is this text: others, such as the
    target of a puzzle, are part of the question.
    """
    answers, files = ([], []) if reference is None else (_list_answers(reference), _list_files(task, reference))
    secrets = [_make_secret("reference", text) for text in [*answers, *files]]
    known = {(form, one.number) for one in secrets for form in one.forms}
    for place, text in _walk_grading(msgspec.to_builtins(task.grading, enc_hook=repr)):
        secret = _make_secret(place, text)
        if not answers or secret.bits > 60 or any((form, secret.number) in known for form in secret.forms):
            secrets.append(secret)
    unique = {(one.forms, one.number): one for one in secrets if any(one.forms)}
    return list(unique.values())[:_MAX_SECRETS]


def read_number(text: str) -> float | None:
    """Return the number that a text is; None: it is none."""
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def is_named_answer(place: str) -> bool:
    """Whether the field of a place is named as an answer is."""
    names = [name for name in place.split(".") if not (name.isdigit() or name.startswith("#"))]
    return bool(names) and _NAMED.search(names[-1].partition("#")[0]) is not None


def normalise(text: str) -> str:
    """Return a text in lower case with one space between words."""
    return " ".join(text.split()).casefold()


def spell_number(number: int) -> str:
    """Return a whole number below a million in English words."""
    if number < 0:
        return f"minus {spell_number(-number)}"
    if number < 20:
        return _ONES[number]
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            head, rest = divmod(number, size)
            return f"{spell_number(head)} {name}{' ' + spell_number(rest) if rest else ''}"
    tens, ones = divmod(number, 10)
    return f"{_TENS[tens]}{'-' + _ONES[ones] if ones else ''}"


def _make_secret(source: str, text: str) -> Secret:
    number, plain = read_number(text), normalise(text)
    forms = {plain}
    if number is not None and number.is_integer() and abs(number) < 1e6 and abs(number) > 12:
        spelt = spell_number(int(number))
        forms |= {spelt, spelt.replace("-", " ")}
    return Secret(source, frozenset(forms), number, 2.5 * min(len(plain), 4 * len(set(plain))))


def _list_answers(reference: Script) -> list[str]:
    """Return the texts that a reference answers."""
    if reference.files and reference.result is None:
        return []
    if reference.result is not None:
        return [text for _, text in _walk(msgspec.to_builtins(reference.result, enc_hook=repr), "")]
    content = reference.replies[-1].get("content") if reference.replies else None
    return [content] if isinstance(content, str) and content.strip() else []


def _list_files(task: Task, reference: Script) -> list[str]:
    changed = ((name, text) for name, text in reference.files.items() if text is not None)
    return [text for name, text in changed if text != task.files.get(name) and len(text.strip()) > 1]


def _walk_grading(grading: object) -> Iterator[tuple[str, str]]:
    """Yield what a grading expects: scalars and structures under a name that says so, or where it is nothing else."""
    values: dict[str, list[str]] = defaultdict(list)
    for place, text in _walk(grading, ""):
        values[re.sub(r"(?<![^.])\d+(?![^.])", "*", place)].append(text)
    for place, texts in values.items():
        is_structure = place.endswith(STRUCTURE)
        names = [name for name in place.split(".") if name not in ("*", STRUCTURE, "#inside", "")]
        inner = re.findall(r'"(\w+)":', texts[0]) if is_structure else []
        is_expected = any(map(_EXPECTED.search, [*names, *inner])) and not (names and _OPEN.search(names[-1]))
        if not (is_expected or not (names or inner)):
            continue
        yield from ((place, text) for text in texts if len(texts) <= _MAX_VALUES or len(text) > 16)
        if len(texts) >= _MAX_VALUES and not is_structure:
            yield place, _canonical(texts)


def _walk(value: object, place: str) -> Iterator[tuple[str, str]]:
    """Yield place and text of each value inside, structures as JSON, and JSON in texts as structures."""
    waiting: list[tuple[str, object]] = [(place, value)]
    while waiting:
        here, one = waiting.pop()
        if isinstance(one, dict | list):
            fields = cast("dict[str, object] | list[object]", one)
            pairs = fields.items() if isinstance(fields, dict) else enumerate(fields)
            inner = [(f"{here}.{name}".lstrip("."), child) for name, child in pairs]
            waiting += reversed(inner)
            scalars = [_write(child) for _, child in inner if not isinstance(child, dict | list)]
            if len(inner) > 1:
                yield f"{here}.{STRUCTURE}".lstrip("."), _canonical(fields)
            if isinstance(fields, list) and len(scalars) == len(inner) >= _MAX_VALUES:
                yield f"{here}.{STRUCTURE}".lstrip("."), _canonical(scalars)
        elif one is not None:
            yield here, _write(one)
            if isinstance(one, str) and (parsed := _parse(one)) is not None:
                waiting.append((f"{here}.#inside", parsed))


def _parse(text: str) -> object:
    stripped = text.strip()
    if stripped[:1] not in "{[" or not stripped:
        return None
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError):
        return None


def _canonical(value: object) -> str:
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""


def _write(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
