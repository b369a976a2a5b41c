"""Directory of a supervisor of sandboxes: its socket, a lock that shows whether it is in use, a list for people."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import msgspec

from agent_layer.infra import is_locked, replace_file, share_lock

_PREFIX: Final = "agent-layer-supervisor-"
_LOCK: Final = "lock"
_LIST: Final = "boxes"
_MAX_PLACE_LENGTH: Final = 60
"""Letters; the whole path of a socket may have 107."""
_SHORT_PLACE: Final = "/tmp"  # directories in it are private


class TakenSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox that an attempt has taken, for people."""

    box: str
    kind: str
    owner: str
    task: str
    role: Literal["agent", "scorer"]
    taken_at: float
    """When the attempt got its first box; seconds since the epoch."""


def make_supervisor_directory() -> Path:
    """Make a directory that only this user can enter, whose path leaves room for the name of a socket."""
    place = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _MAX_PLACE_LENGTH else _SHORT_PLACE
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=place))


def hold_supervisor_directory(directory: Path) -> int:
    """Show that a directory is in use, for as long as any process has the descriptor that this returns."""
    return share_lock(directory / _LOCK)


def remove_stale_supervisor_directories() -> None:
    """Remove what workers have left that were killed together with their supervisors."""
    for directory in _find_directories():
        pid = directory.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path(f"/proc/{pid}").exists() and not is_locked(directory / _LOCK):
            shutil.rmtree(directory, ignore_errors=True)


def write_taken_sandboxes(directory: Path, rows: list[TakenSandbox]) -> None:
    """Replace the list of taken boxes."""
    with suppress(OSError):  # a full disk, or the supervisor ends
        replace_file(directory / _LIST, msgspec.json.encode(rows))


def read_taken_sandboxes() -> list[TakenSandbox]:
    """Return the boxes that all workers of this user have taken on this machine, oldest first."""
    rows: list[TakenSandbox] = []
    for directory in _find_directories():
        with suppress(OSError, msgspec.DecodeError):
            if is_locked(directory / _LOCK):
                rows += msgspec.json.decode((directory / _LIST).read_bytes(), type=list[TakenSandbox])
    return sorted(rows, key=lambda row: row.taken_at)


def _find_directories() -> Iterator[Path]:
    for place in {tempfile.gettempdir(), _SHORT_PLACE}:
        for directory in Path(place).glob(f"{_PREFIX}*"):
            with suppress(OSError):  # it ends
                if directory.stat().st_uid == os.getuid():
                    yield directory
