"""Answers that all pages share: what follows from the index alone is made once for each state of the index."""

import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from hashlib import blake2b
from threading import Lock
from typing import Final, NamedTuple

_MAX_KEPT: Final = 32
_FRESH_SECONDS: Final = 10.0
"""A repair of the index is not announced."""


class CachedAnswer(NamedTuple):
    """An encoded answer."""

    body: bytes
    tag: str | None
    """Entity tag of the body; None: the answer is not kept."""


class _Entry(NamedTuple):
    state: object
    at: float
    answer: "Future[CachedAnswer]"


class AnswerCache:
    """The last answers, by question. Threads share it: of several that ask the same at once, one makes the answer."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = Lock()
        self._entries: OrderedDict[object, _Entry] = OrderedDict()

    def get(self, question: object, state: object, make: Callable[[], bytes]) -> CachedAnswer:
        """Return the answer to a question about a state, which the caller read before; whatever ``make`` raises, too.

        Args:
            question: what is asked.
            state: differs after each change of what the answer is made from.
            make: makes the answer from the present state.
        """
        with self._lock:
            entry, is_mine = self._entries.get(question), False
            if entry is None or entry.state != state or self._now() - entry.at > _FRESH_SECONDS:
                entry, is_mine = _Entry(state, self._now(), Future()), True
                self._entries[question] = entry
            self._entries.move_to_end(question)
            while len(self._entries) > _MAX_KEPT:
                self._entries.popitem(last=False)
        if is_mine:
            self._fill(question, entry, make)
        return entry.answer.result()

    def _fill(self, question: object, entry: _Entry, make: Callable[[], bytes]) -> None:
        try:
            body = make()
            entry.answer.set_result(CachedAnswer(body, blake2b(body, digest_size=8).hexdigest()))
        except BaseException as error:
            with self._lock:
                if self._entries.get(question) is entry:
                    del self._entries[question]
            entry.answer.set_exception(error)
            raise
