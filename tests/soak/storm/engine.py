"""The storm's engine: ``python engine.py PORT BOOK``. It is never killed and notes its work.

A question holds a mark, ``q<owner>.<number>``, by which all books speak of the same thing; ``long`` beside it asks for
an answer that takes a while, so that something can happen in the middle.
"""

import os
import re
import sys
from collections.abc import Iterator

from aiohttp import web

from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.script import ScriptPrompt

_MARK = re.compile(r"\bq\w+\.\d+\b")
_WORD_SECONDS = 0.002


class Book:
    """Lines of one file; a note survives the death of its writer."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, deed: str, mark: str, text: str = "") -> None:
        os.write(self._file, f"{deed}\t{mark}\t{text}\n".encode())


def answer(book: Book, wanted: ScriptPrompt) -> Iterator[str]:
    found = _MARK.search(wanted.text)
    if found is None:  # the call that registers the engine has no mark
        yield "yes"
        return
    mark, num_words = found[0], 60 if "long" in wanted.text else 6
    if wanted.choice == 0:
        book.note("began", mark)
    words = [f"{mark}-{wanted.choice}-{number}" for number in range(num_words)]
    yield from words
    book.note("answered", mark, " ".join(words))


def main(port: str, path: str) -> None:
    book = Book(path)
    engine = ScriptedEngine(script=lambda prompt: answer(book, prompt), token_seconds=_WORD_SECONDS)
    web.run_app(engine.app(), host="127.0.0.1", port=int(port), access_log=None, print=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
