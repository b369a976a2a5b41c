"""Search for words inside trajectories, over an index that is brought up to date when a search asks for it.

Segments are read once, the newest first. Filters and what may be shown are decided by the store's own index, at the
moment of the search; the file only knows which text belongs to which trajectory.
"""

import os
import re
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from agent_layer.errors import BadInputError, CorruptRecordError, NotFoundError, UnreachableError
from agent_layer.infra import MemoryObjects, ObjectStore, try_lock
from agent_layer.schema import ContentRef, Trajectory, decode_known, id_timestamp, trajectory_owner
from agent_layer.store.index.filters import Filters
from agent_layer.store.index.index import Index
from agent_layer.store.index.membership import select_matching
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.reading.reader import stream_trajectories
from agent_layer.store.segments.format import is_segment_name, read_chunk, read_footer, segment_key
from agent_layer.store.segments.tombstones import decode_names
from agent_layer.store.text.database import FoundText, TextDatabase
from agent_layer.store.text.texts import Text, Where, find_texts
from agent_layer.times import format_time

MAX_FOUND: Final = 500
"""Trajectories of one page."""
_MAX_CHARACTERS, _MAX_WORDS = 1_000, 32
_MAX_PER_TRAJECTORY: Final = 3
"""Texts of one trajectory on a page."""
_FIRST_PAGE, _MAX_PAGE_SIZE = 64, 512
_MAX_LOOKED_AT: Final = 20_000
"""Texts that one search compares with its filters; then it ends with a cursor."""
_EVICTED_SHARE: Final = 0.25
_MAX_GONE: Final = 50_000
"""Names of segments that are kept after they were merged: what they became need not be read again."""
_MAX_WAIT_SECONDS: Final = 600.0
"""Seconds to wait for another process that brings the same file up to date."""
_POLL_SECONDS: Final = 0.1
_JUDGES: Final = ":judge"
"""Ending of the runs of judges, whose prompts may quote what only scorers see."""
_WORDS: Final = re.compile(r'"([^"]*)"|(\S+)')
_MISSING: Final = (NotFoundError, CorruptRecordError)


class TextMatch(msgspec.Struct, frozen=True, kw_only=True):
    """One text in which all words occur."""

    row: TrajectoryRow
    step: int | None
    """Index of the step that said it, or whose prompt showed it first; None: the task, or not known."""
    where: Where
    snippet: str
    """The words with some around them."""
    marks: list[tuple[int, int]]
    """[begin, end) of each match in the snippet."""


class TextCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the store a search looked into."""

    num_segments: int
    num_waiting: int
    """Segments that are not read yet."""
    num_unreadable: int
    left_out_before: float | None = None
    """Texts stored before that time are left out for want of room, in seconds since the epoch; None: none are."""
    num_cut: int = 0
    """Texts with more characters than the index takes of one."""
    num_large: int = 0
    """Contents left out because they are objects of their own, such as images and very long messages."""

    def describe(self) -> list[str]:
        """Return one sentence for each thing that was left out."""
        before = format_time(self.left_out_before or 0.0)
        counts = (
            (self.num_waiting, f"{self.num_waiting} of {self.num_segments} segments are not in the text index yet"),
            (self.num_unreadable, f"{self.num_unreadable} segments cannot be read; see 'agent-layer store check'"),
            (self.left_out_before, f"texts stored before {before} are left out; raise AGENT_LAYER_TEXT_INDEX_BYTES"),
            (self.num_large, f"{self.num_large} contents in blobs (images, very long messages) are left out"),
            (self.num_cut, f"{self.num_cut} texts are searched to their 65,536th character"),
        )
        return [sentence for is_so, sentence in counts if is_so]


class TextPage(msgspec.Struct, frozen=True, kw_only=True):
    """Matches, those of the newest segments first; at most three of one trajectory."""

    items: list[TextMatch]
    cursor: str | None = None
    """Pass it to get the next page; None on the last page. A trajectory may be on two pages, with other texts."""
    coverage: TextCoverage


class TextIndex:
    """The text index of one namespace on this machine. Threads and processes may share it."""

    def __init__(self, index: Index, objects: ObjectStore, path: Path, max_bytes: int) -> None:
        """Use the file at a path, which is made when it is needed.

        Args:
            index: of the namespace.
            objects: store of its segments.
            path: of the file.
            max_bytes: size above which the oldest texts go.
        """
        self._index, self._redis, self._keys = index, index.redis, index.keys
        self._objects = objects
        self._path = path
        self._max_bytes = max_bytes

    def update(
        self, *, seconds: float | None = None, progress: Callable[[int, int], None] | None = None
    ) -> TextCoverage:
        """Read the segments that the index does not have yet, and forget what was deleted.

        Args:
            seconds: after this time, the rest is left to the next call; None: no limit.
            progress: called with (segments done, segments to do).

        Raises: UnreachableError: Redis, the objects or the file cannot be used.
        """
        until = None if seconds is None else time.monotonic() + seconds
        with self._opened() as database:
            if (lock := self._acquire_lock(until)) is not None:
                try:
                    self._catch_up(database, until, progress)
                finally:
                    os.close(lock)
            return self._coverage(database)

    def search(self, text: str, *, limit: int = 32, cursor: str | None = None, filters: Filters) -> TextPage:
        """Find the newest texts in which all words occur, of trajectories that pass the filters.

        Raises: BadInputError: there is no word to search for, or limit, cursor or a filter is not valid.
        """
        expression, before = match_expression(text), _read_cursor(cursor)
        if not 1 <= limit <= MAX_FOUND:
            raise BadInputError(f"limit {limit}: expected a number from 1 to {MAX_FOUND}; choose another")
        with self._opened() as database:
            found, rows, before = self._find(database, expression, before, limit, filters)
            coverage = self._coverage(database)
        return TextPage(
            items=[
                TextMatch(
                    row=rows[one.trajectory_id],
                    step=step,
                    where=one.where,
                    snippet=one.snippet,
                    marks=one.marks,
                )
                for one, step in zip(found, self._steps(found, rows), strict=True)
            ],
            cursor=None if before is None else str(before),
            coverage=coverage,
        )

    def forget_deleted(self) -> None:
        """Remove every word of deleted trajectories from the file, where there is one and no other process does."""
        if self._path.exists() and (lock := self._acquire_lock(time.monotonic())) is not None:
            try:
                with self._opened() as database:
                    database.forget(decode_names(self._redis.hkeys(self._keys.dead)))
            finally:
                os.close(lock)

    @contextmanager
    def _opened(self) -> Generator[TextDatabase]:
        try:
            database = self._open()
            try:
                yield database
            finally:
                database.close()
        except sqlite3.OperationalError as error:
            raise UnreachableError(f"text index {self._path}: {error}; free some space, or delete the file") from error
        except sqlite3.DatabaseError as error:
            self._discard()
            raise UnreachableError(
                f"text index {self._path}: it was damaged ({error}) and is deleted; ask again, which builds another"
            ) from error

    def _open(self) -> TextDatabase:
        try:
            database = TextDatabase(self._path)
            if database.is_current():
                return database
            database.close()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
        self._discard()
        return TextDatabase(self._path)

    def _discard(self) -> None:
        for ending in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)

    def _acquire_lock(self, until: float | None) -> int | None:
        """Return the descriptor of the lock; None: another process held it until the end of the wait."""
        last = time.monotonic() + _MAX_WAIT_SECONDS if until is None else until
        path = self._path.with_name(f"{self._path.name}.lock")
        while (lock := try_lock(path)) is None and time.monotonic() < last:
            time.sleep(_POLL_SECONDS)
        return lock

    def _segments(self) -> set[str]:
        names = decode_names(self._redis.hkeys(self._keys.segments))
        return {name for name in names if is_segment_name(self._keys, name)}

    def _catch_up(
        self, database: TextDatabase, until: float | None, progress: Callable[[int, int], None] | None
    ) -> None:
        names, known = self._segments(), database.segments()
        fresh = sorted(names.difference(known), reverse=True)
        for num_done, name in enumerate(fresh, start=1):
            if until is not None and time.monotonic() >= until:
                break
            self._enter(database, name, known)
            if database.num_bytes() > self._max_bytes and (before := database.evict(_EVICTED_SHARE)) is not None:
                database.note("left_out_before", repr(before))
            if progress:
                progress(num_done, len(fresh))
        if gone := sorted(known.keys() - names)[:-_MAX_GONE]:
            database.unmark(gone)
        if fresh or known.keys() != names:
            database.forget(decode_names(self._redis.hkeys(self._keys.dead)))

    def _enter(self, database: TextDatabase, name: str, known: Mapping[str, bool]) -> None:
        """Read one segment, unless it is older than what there is room for, or was merged from known ones."""
        stored_at = id_timestamp(name)
        texts: dict[str, list[Text]] = {}
        num_large, is_read = 0, stored_at >= float(database.noted("left_out_before") or 0.0)
        try:
            if is_read:
                texts, num_large = self._read(name, known)
        except NotFoundError:  # merged meanwhile; the next call sees what it became
            return
        except CorruptRecordError:
            is_read = False
        with database.transaction():
            database.add(stored_at, texts)
            database.count("num_large", num_large)
            database.mark(name, is_read=is_read)

    def _read(self, name: str, known: Mapping[str, bool]) -> tuple[dict[str, list[Text]], int]:
        """Return the texts in a segment by trajectory, and how many contents are blobs."""
        key = segment_key(self._keys, name)
        footer = read_footer(self._objects, key).footer
        if footer.replaces and all(known.get(one) for one in footer.replaces):
            return {}, 0
        rows = self._index.rows([one.trajectory_id for one in footer.trajectories])
        wanted = {
            trajectory_owner(row.trajectory_id): row.trajectory_id
            for row in rows
            if not (row.run or "").endswith(_JUDGES)
        }
        held = MemoryObjects({key: self._objects.get(key)})
        texts: dict[str, list[Text]] = {}
        num_large = 0
        for chunk in footer.chunks:
            if chunk.owner in wanted:
                records = [decode_known(one) for one in read_chunk(held, key, chunk)]
                texts[wanted[chunk.owner]] = list(find_texts(records))
                num_large += sum(isinstance(one, ContentRef) for one in records)
        return texts, num_large

    def _coverage(self, database: TextDatabase) -> TextCoverage:
        names, known = self._segments(), database.segments()
        before = database.noted("left_out_before")
        left_out_before = None if before is None else float(before)
        unread = [name for name in names if known.get(name) is False]
        return TextCoverage(
            num_segments=len(names),
            num_waiting=len(names.difference(known)),
            num_unreadable=sum(id_timestamp(name) >= (left_out_before or 0.0) for name in unread),
            left_out_before=left_out_before,
            num_cut=database.counted("num_cut"),
            num_large=database.counted("num_large"),
        )

    def _find(
        self, database: TextDatabase, expression: str, before: int | None, limit: int, filters: Filters
    ) -> tuple[list[FoundText], dict[str, TrajectoryRow], int | None]:
        """Return matches, the rows of their trajectories, and where the next page begins."""
        found, chosen = list[FoundText](), dict[str, TrajectoryRow]()
        counts: dict[str, int] = {}
        num_looked_at, size, has_missing = 0, _FIRST_PAGE, False
        while num_looked_at < _MAX_LOOKED_AT:
            page = database.find(expression, before, size)
            rows = {row.trajectory_id: row for row in self._index.rows({one.trajectory_id for one in page})}
            has_missing = has_missing or any(one.trajectory_id not in rows for one in page)
            passing = select_matching(self._index, list(rows), filters) if filters and rows else rows.keys()
            for one in page:
                name = one.trajectory_id
                if name in passing:
                    if name not in chosen and len(chosen) >= limit:
                        return found, chosen, before
                    chosen[name] = rows[name]
                    counts[name] = counts.get(name, 0) + 1
                    found += [one] if counts[name] <= _MAX_PER_TRAJECTORY else []
                before = one.number
            if len(page) < size:
                before = None
                break
            num_looked_at, size = num_looked_at + len(page), min(2 * size, _MAX_PAGE_SIZE)
        if has_missing:
            self.forget_deleted()
        return found, chosen, before

    def _steps(self, found: Sequence[FoundText], rows: Mapping[str, TrajectoryRow]) -> Iterable[int | None]:
        """Return the index of the step of each match."""
        read = stream_trajectories(
            self._index, self._objects, rows.values(), contents=False, on_corrupt=lambda _error: None
        )
        wholes = {row.trajectory_id: whole for row, whole in read}
        return [_find_step(one, wholes.get(one.trajectory_id)) for one in found]


def match_expression(text: str) -> str:
    """Return the FTS5 expression for words, phrases in double quotes and beginnings of words with a star.

    Raises: BadInputError: there is no word, or there are too many.
    """
    terms = [phrase or word for phrase, word in _WORDS.findall(text)]
    words = [term for term in terms if any(map(str.isalnum, term))]
    if not words or len(words) > _MAX_WORDS or len(text) > _MAX_CHARACTERS:
        shown = f"{text[:40]}…" if len(text) > _MAX_CHARACTERS else text
        raise BadInputError(
            f"text {shown!r}: expected 1 to {_MAX_WORDS} words of letters or digits in at most {_MAX_CHARACTERS:,}"
            ' characters; write some, "with quotes" for a phrase, or a beginning with *'
        )
    return " AND ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    is_beginning = word.endswith("*") and word[:-1]
    kept = word[:-1] if is_beginning else word
    plain = kept.replace('"', " ").replace("\0", " ")
    return f'"{plain}"{"*" if is_beginning else ""}'


def _find_step(one: FoundText, whole: Trajectory | None) -> int | None:
    for step in whole.steps if whole else ():
        is_it = one.key in (step.state.messages or ()) if one.where == "message" else one.key == step.call_id
        if is_it and one.where != "task":
            return step.index
    return None


def _read_cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if cursor.isascii() and cursor.isdecimal() and len(cursor) <= len(str(1 << 62)):
        return int(cursor)
    raise BadInputError(f"cursor {cursor[:40]!r}: expected one of an earlier page, found another; leave it out")
