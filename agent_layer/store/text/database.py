"""The file of a text index: SQLite with FTS5. It can be deleted at any time, and is then built again.

A text's number grows with the time of its segment, so that the newest texts are found first, and the oldest go first
when the file is full.
"""

import sqlite3
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple, cast, get_args

from agent_layer.errors import BadInputError, UnreachableError
from agent_layer.infra import make_private
from agent_layer.schema import trajectory_owner
from agent_layer.store.segments.tombstones import owner_hash
from agent_layer.store.text.texts import MAX_CHARACTERS, Text, Where

_VERSION: Final = "1"
"""Raised when the tables or the choice of texts change; a file of another version is built again."""
_SCHEMA: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE segments (name TEXT PRIMARY KEY, is_read INTEGER) WITHOUT ROWID;
CREATE TABLE trajectories (number INTEGER PRIMARY KEY, id TEXT UNIQUE, owner_hash TEXT UNIQUE);
CREATE TABLE places (number INTEGER PRIMARY KEY, trajectory INTEGER, digest BLOB, kind INTEGER, key TEXT);
CREATE UNIQUE INDEX places_once ON places (trajectory, digest);
CREATE VIRTUAL TABLE texts USING fts5(text, tokenize = "unicode61 remove_diacritics 2");
"""
_WHERE: Final = get_args(Where)
_PER_MILLISECOND: Final = 1 << 20
_BEGIN, _END = "\x02", "\x03"
_MARKS: Final = str.maketrans({_BEGIN: " ", _END: " ", "\0": " "})
_SNIPPET_WORDS: Final = 24
_BUSY_SECONDS: Final = 30.0
_SECURE_DELETE: Final = (3, 42)
"""First SQLite whose FTS5 forgets the words of a deleted text at once."""


class FoundText(NamedTuple):
    """A text that matches."""

    number: int
    trajectory_id: str
    where: Where
    key: str
    snippet: str
    marks: list[tuple[int, int]]
    """[begin, end) of each match in the snippet."""


class TextDatabase:
    """One connection. Readers see what was committed before they began, and never wait for the writer."""

    def __init__(self, path: Path) -> None:
        """Open the file, and make it where it is missing.

        Raises: UnreachableError: it cannot be opened. BadInputError: this Python has no FTS5.
        """
        try:
            make_private(path.parent)
            path.touch(mode=0o600)
            self._sql = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            self._prepare()
        except (OSError, sqlite3.OperationalError) as error:
            if "fts5" in str(error):
                raise BadInputError(
                    "search in texts: expected a Python whose SQLite has FTS5, found none; use another Python"
                ) from error
            raise UnreachableError(f"text index {path}: cannot be opened ({error}); set AGENT_LAYER_DIR") from error

    def _prepare(self) -> None:
        self._sql.execute("PRAGMA journal_mode = WAL")
        self._sql.execute("PRAGMA synchronous = NORMAL")
        self._sql.execute("PRAGMA secure_delete = ON")
        with self.transaction():
            if not self._sql.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    self._sql.execute(statement)
                self.note("version", _VERSION)
        if sqlite3.sqlite_version_info >= _SECURE_DELETE:
            self._sql.execute("INSERT INTO texts (texts, rank) VALUES ('secure-delete', 1)")

    def close(self) -> None:
        """Close the connection."""
        self._sql.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Commit what the block changes, or nothing of it."""
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._sql.execute("ROLLBACK")
            raise
        self._sql.execute("COMMIT")

    def is_current(self) -> bool:
        """Whether this version made the file."""
        return self.noted("version") == _VERSION

    def noted(self, name: str) -> str | None:
        """Return a noted value."""
        found = self._sql.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if found is None else cast("str", found[0])

    def note(self, name: str, value: str) -> None:
        """Note a value."""
        self._sql.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def count(self, name: str, num: int) -> None:
        """Add to a noted number."""
        if num:
            self.note(name, str(self.counted(name) + num))

    def counted(self, name: str) -> int:
        """Return a noted number."""
        return int(self.noted(name) or 0)

    def segments(self) -> dict[str, bool]:
        """Return the segments that were looked at, and whether each was read."""
        return {name: bool(is_read) for name, is_read in self._sql.execute("SELECT name, is_read FROM segments")}

    def mark(self, name: str, *, is_read: bool) -> None:
        """Mark a segment as looked at."""
        self._sql.execute("INSERT OR REPLACE INTO segments VALUES (?, ?)", (name, int(is_read)))

    def unmark(self, names: Iterable[str]) -> None:
        """Forget segments that are not stored any more; their texts stay."""
        self._sql.executemany("DELETE FROM segments WHERE name = ?", ((name,) for name in names))

    def add(self, stored_at: float, texts: Mapping[str, Iterable[Text]]) -> None:
        """Add the texts of trajectories, each once. Call it in a transaction.

        Args:
            stored_at: when their segment was made, in seconds since the epoch.
            texts: by trajectory.
        """
        first = int(stored_at * 1_000) * _PER_MILLISECOND
        last = first + _PER_MILLISECOND - 1
        [known] = self._sql.execute("SELECT max(number) FROM places WHERE number BETWEEN ? AND ?", (first, last))
        number = first if known[0] is None else int(known[0]) + 1
        num_cut = 0
        for trajectory_id, ours in texts.items():
            trajectory = self._trajectory(trajectory_id)
            for where, key, text in ours:
                digest = blake2b(text.encode(), digest_size=12).digest()
                place = (number, trajectory, digest, _WHERE.index(where), key)
                if self._sql.execute("INSERT OR IGNORE INTO places VALUES (?, ?, ?, ?, ?)", place).rowcount:
                    kept = text[:MAX_CHARACTERS].translate(_MARKS)
                    self._sql.execute("INSERT INTO texts (rowid, text) VALUES (?, ?)", (number, kept))
                    number, num_cut = min(number + 1, last), num_cut + (len(text) > MAX_CHARACTERS)
        self.count("num_cut", num_cut)

    def _trajectory(self, trajectory_id: str) -> int:
        own = (trajectory_id, owner_hash(trajectory_owner(trajectory_id)))
        self._sql.execute("INSERT OR IGNORE INTO trajectories (id, owner_hash) VALUES (?, ?)", own)
        [found] = self._sql.execute("SELECT number FROM trajectories WHERE id = ?", own[:1])
        return cast("int", found[0])

    def find(self, expression: str, before: int | None, limit: int) -> list[FoundText]:
        """Return the newest texts that match an FTS5 expression, below a number."""
        query = (
            "SELECT texts.rowid, trajectories.id, places.kind, places.key, snippet(texts, 0, ?, ?, '…', ?) FROM texts"
            " JOIN places ON places.number = texts.rowid JOIN trajectories ON trajectories.number = places.trajectory"
            " WHERE texts MATCH ? AND texts.rowid < ? ORDER BY texts.rowid DESC LIMIT ?"
        )
        given = (_BEGIN, _END, _SNIPPET_WORDS, expression, (1 << 63) - 1 if before is None else before, limit)
        with closing(self._sql.execute(query, given)) as rows:
            return [_found(*row) for row in rows]

    def hashes(self) -> set[str]:
        """Return the hashes of all trajectories, as tombstones name them."""
        return {name for (name,) in self._sql.execute("SELECT owner_hash FROM trajectories")}

    def forget(self, hashes: Iterable[str]) -> int:
        """Remove trajectories, and every word of theirs; return their number."""
        with self.transaction():
            marked = [
                number
                for name in hashes
                for (number,) in self._sql.execute("SELECT number FROM trajectories WHERE owner_hash = ?", (name,))
            ]
            for number in marked:
                self._drop("trajectory = ?", number)
                self._sql.execute("DELETE FROM trajectories WHERE number = ?", (number,))
        if marked:
            self._forget_words(must=sqlite3.sqlite_version_info < _SECURE_DELETE)
        return len(marked)

    def evict(self, share: float) -> float | None:
        """Remove a share of the texts, the oldest; return the time before which none is left, None: there was none."""
        [(num,)] = self._sql.execute("SELECT count(*) FROM places")
        if not num:
            return None
        at = max(1, int(num * share)) - 1
        [(last,)] = self._sql.execute("SELECT number FROM places ORDER BY number LIMIT 1 OFFSET ?", (at,))
        with self.transaction():
            self._drop("number <= ?", last)
        self._forget_words(must=True)
        return (int(last) // _PER_MILLISECOND + 1) / 1_000

    def _drop(self, condition: str, value: int) -> None:
        self._sql.execute(f"DELETE FROM texts WHERE rowid IN (SELECT number FROM places WHERE {condition})", (value,))
        self._sql.execute(f"DELETE FROM places WHERE {condition}", (value,))

    def _forget_words(self, *, must: bool) -> None:
        """Rewrite the words, so that those of deleted texts are gone; then leave no copy beside the file."""
        if must:
            self._sql.execute("INSERT INTO texts (texts) VALUES ('optimize')")
        self._sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def num_bytes(self) -> int:
        """Return the size of what is in use."""
        [(size,)] = self._sql.execute("PRAGMA page_size")
        [(num,)] = self._sql.execute("PRAGMA page_count")
        [(num_free,)] = self._sql.execute("PRAGMA freelist_count")
        return int(size) * (int(num) - int(num_free))


def _found(number: int, trajectory_id: str, kind: int, key: str, marked: str) -> FoundText:
    snippet, marks = "", list[tuple[int, int]]()
    for at, piece in enumerate(marked.split(_BEGIN)):
        match, end, rest = piece.partition(_END)
        if at and end:
            marks.append((len(snippet), len(snippet) + len(match)))
        snippet += match + rest
    return FoundText(number, trajectory_id, _WHERE[kind], key, snippet, marks)
