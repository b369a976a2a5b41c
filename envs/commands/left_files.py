"""Files that a command left in its working directory, packed as the sandboxes pack theirs."""

import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from agent_layer.errors import BadInputError
from agent_layer.schema.sandbox import Entry
from envs.sandbox import CollectedFiles, expand_patterns

STATE: Final = ".agent-layer"
"""Folder that no template has: the records of this project's runs, which grow while attempts begin."""


def check_patterns(patterns: Iterable[str]) -> list[str]:
    """Return the patterns of artifacts if they stay below the working directory.

    Raises: BadInputError: one does not.
    """
    checked = list(patterns)
    for pattern in checked:
        if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
            raise BadInputError(
                f"command: expected an artifact below the working directory, found {pattern!r}; write a path or a"
                " pattern such as 'out/**', without '..'"
            )
    return checked


async def collect_files(
    top: Path, patterns: Sequence[str], max_bytes: int, added: Mapping[str, Path] | None = None
) -> CollectedFiles:
    """Pack what the patterns name; links are neither followed nor taken for what they lead to.

    Args:
        top: the working directory, in which nothing runs any more.
        patterns: paths or patterns below it.
        max_bytes: of all files together.
        added: further files by the name under which they are packed.
    """

    async def list_folder(folder: str) -> list[Entry]:
        return _list_folder(top, folder)

    found, missing = await expand_patterns(list_folder, patterns)
    places = {name: top / name for path in found for name in _walk(top, path)} | {**(added or {})}
    buffer, size = io.BytesIO(), 0
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, path in sorted(places.items()):
            try:
                size += path.lstat().st_size
                if size > max_bytes:
                    return CollectedFiles(archive=bytes(tarfile.RECORDSIZE), too_large=True)
                _add(archive, path, name)
            except OSError:  # its owner may not read it
                missing.append(name)
    return CollectedFiles(archive=buffer.getvalue(), missing=missing)


def pack_tree(top: Path) -> bytes:
    """Return everything below a template as an archive.

    Raises: OSError: it cannot be read.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in sorted(_walk(top, ".", leaves_out=STATE)):
            if name != ".":
                _add(archive, top / name, name)
    return buffer.getvalue()


def _walk(top: Path, path: str, leaves_out: str | None = None) -> Iterator[str]:
    """Yield a path and everything below it, but for folders of one name; links are not followed."""
    waiting = [path]
    while waiting:
        yield (name := waiting.pop())
        with suppress(OSError):  # its owner may not enter it, or the path is too long
            if stat.S_ISDIR((top / name).lstat().st_mode):
                inside = (one for one in (top / name).iterdir() if one.name != leaves_out)
                waiting += [str(one.relative_to(top)) for one in inside]


def _list_folder(top: Path, folder: str) -> list[Entry]:
    entries = list[Entry]()
    with os.scandir(top / folder) as found:
        for one in found:
            about = one.stat(follow_symlinks=False)
            kind = "link" if one.is_symlink() else "directory" if one.is_dir() else "file" if one.is_file() else "other"
            entries.append(Entry(name=one.name, type=kind, size_bytes=about.st_size, mode=about.st_mode & 0o7777))
    return sorted(entries, key=lambda entry: entry.name)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Add one file, folder or link, the same bytes for the same files: without times and owners."""
    member: tarfile.TarInfo | None = archive.gettarinfo(path, name)
    if not (member and (member.isreg() or member.isdir() or member.issym() or member.islnk())):
        return  # a socket, pipe or device
    member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
    if not member.isreg():
        archive.addfile(member)
        return
    with open(path, "rb", opener=_open_no_link) as content:
        archive.addfile(member, content)


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)
