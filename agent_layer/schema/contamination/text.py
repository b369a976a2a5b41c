"""The text of a task, so normalised that a change of form does not hide it."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final, cast

from agent_layer.schema.task import Task

_INVISIBLE: Final = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_MARKS: Final = re.compile(r"\*\*|```\w*|(?<!\w)__|__(?!\w)|(?m:^[^\S\n]*+(?:#+|[-*+]|>)\s+)")
"""Emphasis, headings, bullets, quotations and fences of Markdown."""
_END: Final = re.compile("(?:(?<![\\d!?])|(?<=\\d[!?]))[!?]++(?=\\.*(?:[\\s\"'\u2019\u201d)]|$))")
"""End of a question; behind a number, ``!`` asks for a factorial."""
_TOKEN: Final = re.compile(r"\d+(?:[.,]\d+)+|\w+|[^\w\s]")
_PUNCTUATION: Final = frozenset(".,;:\"'`\u00b4\u2018\u2019\u201c\u201d\u00ab\u00bb")


def normalise_text(text: str) -> str:
    """Return the words, numbers and signs of a text, with one space between two.

    Unicode's compatibility forms (NFKC), case, white space, punctuation of sentences and marks of Markdown do not
    count. Signs do: ``a < b`` and ``a > b`` ask for different things.
    """
    plain = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).casefold()
    tokens = _TOKEN.findall(_END.sub(" ", _MARKS.sub(" ", plain)))
    return " ".join(token for token in tokens if token not in _PUNCTUATION)


def read_task_text(task: Task) -> str:
    """Return the normalised text of what an agent sees: input and files. Empty: there is none.

    Names and order of fields, names of files, and the roles of chat messages do not count.
    """
    return _join([task.input, dict(task.files)])


def _join(value: object) -> str:
    """Return the text of any JSON value. The stack is a list: values may be nested deeper than Python's calls."""
    opened: list[tuple[Iterator[object], list[str], bool]] = [(iter([value]), [], False)]
    while True:
        children, texts, is_sorted = opened[-1]
        for child in children:
            if isinstance(child, list | dict):
                opened.append(
                    (_list_children(cast("list[object] | dict[str, object]", child)), [], isinstance(child, dict))
                )
                break
            texts.append(_write_scalar(child))
        else:
            opened.pop()
            text = " ".join(filter(None, sorted(texts) if is_sorted else texts))
            if not opened:
                return text
            opened[-1][1].append(text)


def _list_children(value: list[object] | dict[str, object]) -> Iterator[object]:
    """Yield the values that count."""
    if isinstance(value, list):
        yield from value
        return
    form = {name for name, content in (("role", "content"), ("type", "text")) if content in value}
    yield from (one for name, one in value.items() if name not in form)


def _write_scalar(value: object) -> str:
    if value is None:
        return ""
    return normalise_text(str(int(value) if isinstance(value, float) and value.is_integer() else value))
