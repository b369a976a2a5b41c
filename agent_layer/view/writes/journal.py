"""Journal of writes: who changed what, when, from which address, what was there before and after.

One object for each write, ``{namespace}/writes/{time}-{id}.json``, where a later time sorts first. It is stored before
the change, without ``after``, and again when it is done: a process that dies in between leaves a record of what it was
about to do. It holds no comment. The newest ``MAX_KEPT`` are kept.

The page lends its rights to people whom only the header names. Commands have those of their caller, who could do the
same without them, so they are not in the journal: an entry that its author may leave out proves nothing.
"""

from itertools import islice
from typing import Final

import msgspec

from agent_layer.infra import Keys, ObjectStore
from agent_layer.schema import JsonObject
from agent_layer.view.answers.lists import Answer
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.source import ReadContext

MAX_LISTED: Final = 200
MAX_KEPT: Final = 10_000
_LAST_MICROSECOND: Final = 10**17 - 1


class WriteLine(Answer, frozen=True, kw_only=True):
    """One write."""

    id: str
    at: float
    by: str
    """Name that the writer gave; only that it was an operator is checked."""
    address: str | None
    action: str
    subject: str
    """Trajectory, run, worker or rollouts that it is about."""
    before: JsonObject
    after: JsonObject | None = None
    """None: it was refused, failed, or is still going on."""
    error: str | None = None
    """Why it was refused or failed."""


class WriteList(Answer, frozen=True, kw_only=True):
    """The newest writes, newest first."""

    items: list[WriteLine]


class Journal:
    """The journal of a namespace, to write to. One thread at a time."""

    def __init__(self, keys: Keys, objects: ObjectStore, max_kept: int = MAX_KEPT) -> None:
        self._prefix = _prefix(keys)
        self._objects = objects
        self._max_kept = max_kept
        self._until_pruned = 1

    def record(self, line: WriteLine) -> None:
        """Store a write, in place of an earlier state of the same one. Raises: UnreachableError."""
        key = f"{self._prefix}{_LAST_MICROSECOND - int(line.at * 1e6):017d}-{line.id}.json"
        self._objects.put(key, msgspec.json.encode(line))

    def prune(self) -> None:
        """Now and then, delete the writes beyond the newest that are kept. Raises: UnreachableError."""
        self._until_pruned -= 1
        if self._until_pruned <= 0:
            self._until_pruned = max(1, self._max_kept // 100)
            for key in list(islice(self._objects.list(self._prefix), self._max_kept, None)):
                self._objects.delete(key)


def list_writes(source: ReadContext, params: RequestParams) -> WriteList:
    """Return the newest writes; the addresses of the writers only to an operator."""
    objects, num = source.store.objects, params.number("limit", 50, 1, MAX_LISTED)
    newest = islice(objects.list(_prefix(source.store.keys)), num)
    lines = [msgspec.json.decode(objects.get(key), type=WriteLine) for key in newest]
    if not params.is_operator:
        lines = [msgspec.structs.replace(line, address=None) for line in lines]
    return WriteList(items=lines)


def _prefix(keys: Keys) -> str:
    return f"{keys.namespace}/writes/"
