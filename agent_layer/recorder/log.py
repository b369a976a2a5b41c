"""Recorder: appends records to a local log, from which a shipper takes them to the store.

An appended record survives the death of this process, because it is in the page cache when ``append`` returns, and a
power loss after ``log_sync_seconds``. A full disk or quota is an error, never a silent drop. What the system refuses to
the recorder's own thread, which rolls, syncs and keeps a shipper, is tried again until it succeeds.
"""

import atexit
import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agent_layer.errors import BackPressureError, BadInputError
from agent_layer.infra import Backoff, make_private, share_lock
from agent_layer.recorder.forks import register_forkable
from agent_layer.recorder.frames import frame
from agent_layer.recorder.logfile import LogFile, is_set_aside, is_settled
from agent_layer.recorder.quota import Quota
from agent_layer.recorder.redaction import load_redaction, redact_record
from agent_layer.recorder.scrubbing import KeyScrubber
from agent_layer.recorder.shipping import ensure_shipper, read_refusal, read_shipper_error
from agent_layer.schema import LogRecord, encode, new_id

if TYPE_CHECKING:
    from agent_layer.settings import Settings

_POLL_SECONDS = 0.01
_SHIPPER_CHECK_SECONDS = 1.0
"""Interval at which a writer checks that a shipper runs."""
_BACKOFF = Backoff(0.02, 1.0)
_CLOSING_TRIES = 6
"""Tries of a recorder that closes; what is not synced then, the shipper syncs before it deletes a log."""
_MAX_UNSYNCED = 64
"""Completed files that stay open because their sync fails; each holds a descriptor."""

log = logging.getLogger(__name__)


class FlushReport(msgspec.Struct, frozen=True, kw_only=True):
    """Fate of the records that this process appended."""

    pending: int
    """Records that are not indexed yet."""
    lost: int
    """Records that ``append`` refused with an error, because disk or quota stayed full."""
    recorded: int
    """Records that ``append`` accepted."""
    error: str | None = None
    """Why records are pending: no shipper can start, or what refused them last; None: none are, or it is not known."""


class PreparedRecords(msgspec.Struct, frozen=True):
    """Records on their way into a log."""

    records: Sequence[LogRecord]
    """Records before redaction."""
    frames: bytes
    """Frames as the log will hold them; empty where a log holds none."""


class Recorder:
    """Appends to one log directory. Thread-safe; a forked child starts with a fresh state.

    Args:
        ship: called at intervals, never in a thread that appends; ensures that a shipper runs.
        waits: whether ``append`` waits while the quota is used up. An event loop must not wait: it checks ``has_room``
            before it starts work, and work that has started may exceed the quota.

    Raises: BadInputError: the log directory cannot be created, or the configured redaction does not exist.
    """

    def __init__(self, settings: "Settings", ship: Callable[[], None] = lambda: None, *, waits: bool = True) -> None:
        self._settings = settings
        self._waits = waits
        self._directory: Path = settings.log_dir.absolute()
        try:
            make_private(self._directory)
        except OSError as error:
            raise BadInputError(
                f"log directory {self._directory}: expected to be made or there, found {error.strerror!r};"
                " choose another --dir"
            ) from error
        self._ship = ship
        self._quota = Quota(self._directory, settings.log_quota_bytes)
        self._redact = load_redaction(settings.redact)
        self._scrubber = KeyScrubber(settings.secrets)
        self._begin()
        register_forkable(self)

    def append(self, *records: LogRecord) -> str:
        """Write records, all of them or none; return the name of their log.

        Raises:
            BackPressureError: disk or quota stayed full for ``log_wait_seconds``.
            RedactionError: the function that the setting ``redact`` names failed.
        """
        return self.append_prepared(self.prepare(*records))

    def prepare(self, *records: LogRecord) -> PreparedRecords:
        """Redact, encode and mask records, so that ``append_prepared`` only writes: the part that takes long.

        Raises: RedactionError: the function that the setting ``redact`` names failed.
        """
        return PreparedRecords(records, self._frames(encode(record) for record in self._kept(records)))

    def append_prepared(self, prepared: PreparedRecords) -> str:
        """Write prepared records; see ``append``.

        Raises: BackPressureError: disk or quota stayed full for ``log_wait_seconds``.
        """
        return self._append(prepared.frames, len(prepared.records))

    def append_encoded(self, contents: Sequence[bytes]) -> str:
        """Write records that another recorder has encoded; see ``append``.

        Raises: BackPressureError: disk or quota stayed full for ``log_wait_seconds``.
        """
        return self._append(self._frames(contents), len(contents))

    def attend(self) -> None:
        """Count as a writer before the first record, so that records left by earlier writers are shipped.

        Raises: BackPressureError: the system refuses what a writer needs, such as a file descriptor.
        """
        with self._changed:
            try:
                self._become_writer()
            except OSError as error:
                raise self._refusal(error) from error

    def has_room(self) -> bool:
        """Whether ``append`` would not have to wait for the shipper now."""
        return self._quota.has_room()

    def mark(self) -> list[str]:
        """Return the names of this process's unsettled logs, oldest first."""
        with self._changed:
            return [file.name for file in self._pending_files()]

    def is_settled(self, log_name: str) -> bool:
        """Whether all records of a log are indexed."""
        return is_settled(self._directory, log_name)

    def is_set_aside(self, log_name: str) -> bool:
        """Whether the shipper could not read a log and set it aside for an operator."""
        return is_set_aside(self._directory, log_name)

    def flush(self, timeout: float | None = None) -> FlushReport:
        """Wait until every record of this process so far is indexed, at most ``timeout`` (default: flush_seconds).

        Where no shipper can start, for example without a Redis server, this does not wait; the report has the reason.
        """
        began_at, error = time.time(), None
        deadline = time.monotonic() + (self._settings.flush_seconds if timeout is None else timeout)
        with self._changed:
            self._complete_file()
            waited_for = self._pending_files()
        while any(not self.is_settled(file.name) for file in waited_for) and time.monotonic() < deadline:
            if error := read_shipper_error(self._directory, since=began_at):
                break
            self._try_to_ship()
            time.sleep(_POLL_SECONDS)
        with self._changed:
            pending = sum(file.num_records for file in waited_for if not self.is_settled(file.name))
            if pending and error is None:
                error = read_refusal(self._directory)
            return FlushReport(pending=pending, lost=self._num_lost, recorded=self._num_recorded, error=error)

    def close(self) -> None:
        """Complete the log, sync it to disk, and stop counting as a writer. A later ``append`` starts again."""
        with self._changed:
            self._complete_file()
            tender = self._tender
            self._is_closing, self._num_failures, self._retry_at = tender is not None, 0, 0.0
            self._changed.notify()
        if tender is not None:
            tender.join()

    def before_fork(self) -> None:
        """See Forkable."""
        self._changed.acquire()

    def after_fork_in_parent(self) -> None:
        """See Forkable."""
        self._changed.release()

    def after_fork_in_child(self) -> None:
        """Close the parent's files: an open copy in the child would keep their flock after the parent's end."""
        for file in [*self._completed, *([self._file] if self._file else [])]:
            file.close()
        if self._writers_lock is not None:
            os.close(self._writers_lock)
        self._begin()

    def _kept(self, records: Sequence[LogRecord]) -> Sequence[LogRecord]:
        """Return the records, redacted if so configured."""
        redact = self._redact
        return records if redact is None else [redact_record(record, redact) for record in records]

    def _frames(self, contents: Iterable[bytes]) -> bytes:
        return b"".join([frame(self._scrubber.scrub(content)) for content in contents])

    def _append(self, frames: bytes, num_records: int) -> str:
        try:
            if self._waits:
                self._quota.await_room(self._settings.log_wait_seconds)
            with self._changed:
                return self._write(frames, num_records)
        except BackPressureError:
            with self._changed:
                self._num_lost += num_records
            raise

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._file: LogFile | None = None
        self._completed: list[LogFile] = []
        """Handed to the shipper, but not synced yet."""
        self._unsettled: deque[LogFile] = deque()
        """Oldest first; the last one may still be open."""
        self._writers_lock: int | None = None
        self._tender: threading.Thread | None = None
        self._dirty_at: float | None = None
        self._checked_at = float("-inf")
        """When a shipper was last seen to."""
        self._num_failures, self._retry_at = 0, 0.0
        """Of the recorder's thread, in a row; and when it tries again."""
        self._is_closing = False
        self._num_recorded = self._num_lost = 0

    def _write(self, frames: bytes, num_records: int) -> str:
        try:
            file = self._file or self._open_file()
        except OSError as error:
            raise self._refusal(error) from error
        file.write(frames, num_records)
        self._num_recorded += num_records
        self._quota.add(len(frames))
        if self._dirty_at is None:
            self._dirty_at = time.monotonic()
            self._changed.notify()
        if file.size_bytes >= self._settings.log_roll_bytes:
            self._complete_file()
        return file.name

    def _refusal(self, error: OSError) -> BackPressureError:
        remedy = (
            "raise its limit (ulimit -n, ulimit -u)"
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN)
            else "make room on the disk or move AGENT_LAYER_DIR"
        )
        return BackPressureError(
            f"log directory {self._directory}: expected to begin a log, found {error.strerror!r}; {remedy}"
        )

    def _open_file(self) -> LogFile:
        self._become_writer()
        self._file = LogFile(self._directory, f"{new_id()}-{self._settings.host}-{os.getpid()}")
        self._unsettled.append(self._file)
        return self._file

    def _become_writer(self) -> None:
        if self._writers_lock is None:
            self._writers_lock = share_lock(self._directory / "writers.lock")
        if self._tender is None:
            tender = threading.Thread(target=self._tend, name="agent-layer recorder", daemon=True)
            try:
                tender.start()
            except RuntimeError as error:
                raise OSError(errno.EAGAIN, str(error)) from error
            self._tender = tender

    def _complete_file(self) -> None:
        """Complete the current file; one whose end cannot be mended now stays, and is tried again."""
        if self._file is not None:
            try:
                self._file.complete()
            except OSError as error:
                self._put_off(error)
                return
            self._completed.append(self._file)
            self._file = None
            self._changed.notify()

    def _pending_files(self) -> list[LogFile]:
        while self._unsettled and self.is_settled(self._unsettled[0].name):
            self._unsettled.popleft()
        return [file for file in self._unsettled if not self.is_settled(file.name)]

    def _tend(self) -> None:
        """Roll and sync in time, and keep a shipper, in a thread of its own, until the recorder is closed."""
        while True:
            with self._changed:
                while (seconds := self._seconds_to_due()) > 0:
                    self._changed.wait(seconds)
                tried = self._num_failures
                if self._file is not None and (
                    self._is_closing or self._file.age_seconds >= self._settings.log_roll_seconds
                ):
                    self._complete_file()
                completed, self._completed = self._completed, []
                current, dirty_at, self._dirty_at = self._file, self._dirty_at, None
            unsynced = [file for file in completed if not self._sync_completed(file)]
            is_synced = current is None or self._try_to_sync(current)
            self._try_to_ship()
            with self._changed:
                self._completed[:0] = unsynced
                for file in self._completed[:-_MAX_UNSYNCED]:
                    file.close()
                self._completed = self._completed[-_MAX_UNSYNCED:]
                if not is_synced:
                    self._dirty_at = dirty_at
                if self._num_failures == tried:
                    self._num_failures, self._retry_at = 0, 0.0
                if self._has_ended():
                    return

    def _sync_completed(self, file: LogFile) -> bool:
        """Sync and close a completed file; return whether it is done with."""
        if not self.is_settled(file.name) and not self._try_to_sync(file):
            return False
        file.close()
        return True

    def _try_to_sync(self, file: LogFile) -> bool:
        try:
            file.sync()
        except OSError as error:
            with self._changed:
                self._put_off(error)
            return False
        return True

    def _try_to_ship(self) -> None:
        """Ensure that a shipper runs; where none can start, the next check tries again."""
        try:
            self._ship()
        except OSError as error:
            log.warning("no shipper could start directory=%s error=%s", self._directory, error)
        self._checked_at = time.monotonic()

    def _put_off(self, error: OSError) -> None:
        if self._num_failures == 0:
            log.warning("log to be completed and synced later directory=%s error=%s", self._directory, error)
        self._num_failures += 1
        self._retry_at = time.monotonic() + _BACKOFF.delay_seconds(self._num_failures)

    def _seconds_to_due(self) -> float:
        """Return the time until the next sync, roll, retry or check of the shipper."""
        now = time.monotonic()
        if self._retry_at > now:
            return self._retry_at - now
        if self._is_closing or self._completed:
            return 0.0
        due = [self._checked_at + _SHIPPER_CHECK_SECONDS]
        if self._dirty_at is not None:
            due.append(self._dirty_at + self._settings.log_sync_seconds / 2)
        if self._file is not None:
            due.append(now + self._settings.log_roll_seconds - self._file.age_seconds)
        return min(due) - now

    def _has_ended(self) -> bool:
        """Whether the recorder is closed and nothing was appended since; if so, stop counting as a writer."""
        if self._is_closing and self._num_failures >= _CLOSING_TRIES:
            for file in [*self._completed, *([self._file] if self._file else [])]:
                file.close()
            self._completed, self._file = [], None
        if not self._is_closing or self._file is not None or self._completed:
            return False
        if self._writers_lock is not None:
            os.close(self._writers_lock)
        self._writers_lock = self._tender = None
        self._is_closing = False
        return True


_recorders: dict[Path, Recorder] = {}


def open_recorder(settings: "Settings", *, waits: bool = True, ships: bool = True) -> Recorder:
    """Return this process's recorder for the settings' log directory; its records are shipped.

    Args:
        settings: directory and quota of the logs.
        waits: see Recorder; the first to open the recorder of a directory decides.
        ships: False: another process starts the shipper, because this one may not know its destination. The first call
            decides here, too.
    """
    directory = settings.log_dir.absolute()
    if directory not in _recorders:
        ship = partial(ensure_shipper, settings) if ships else _leave_shipping
        _recorders.setdefault(directory, Recorder(settings, ship, waits=waits))
    return _recorders[directory]


def _leave_shipping() -> None:
    """Do nothing: another process ships."""


@atexit.register
def _close_all() -> None:
    for recorder in _recorders.values():
        recorder.close()
