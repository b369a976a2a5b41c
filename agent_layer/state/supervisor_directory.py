"""Directory of a supervisor of sandboxes: its socket, a lock that shows whether it is in use, a list for people."""

from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import msgspec

from agent_layer.infra import (
    find_owned_directories,
    is_owned_directory_held,
    make_owned_directory,
    remove_stale_directories,
    replace_file,
)

_PREFIX: Final = "agent-layer-supervisor-"
_LIST: Final = "boxes"


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
    """Make a directory that only this user can enter, and remove what killed workers have left."""
    remove_stale_directories(_PREFIX)
    return make_owned_directory(_PREFIX)


def write_taken_sandboxes(directory: Path, rows: list[TakenSandbox]) -> None:
    """Replace the list of taken boxes."""
    with suppress(OSError):  # a full disk, or the supervisor ends
        replace_file(directory / _LIST, msgspec.json.encode(rows))


def read_taken_sandboxes() -> list[TakenSandbox]:
    """Return the boxes that all workers of this user have taken on this machine, oldest first."""
    rows: list[TakenSandbox] = []
    for directory in find_owned_directories(_PREFIX):
        with suppress(OSError, msgspec.DecodeError):
            if is_owned_directory_held(directory):
                rows += msgspec.json.decode((directory / _LIST).read_bytes(), type=list[TakenSandbox])
    return sorted(rows, key=lambda row: row.taken_at)
