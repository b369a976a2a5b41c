"""Patterns of paths, such as ``out/**`` or ``*.log``, over folders that are listed one at a time."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Final

from agent_layer.schema.sandbox import Entry

ListFolder = Callable[[str], Awaitable[Sequence[Entry]]]
"""Returns what a folder contains; raises ``OSError``. The path is relative, ``.`` for the top."""
_MAX_FOLDERS: Final = 10_000
"""Listed for one set of patterns; what lies beyond is not found."""
_MAX_DEPTH: Final = 64
"""Folders below each other; what lies deeper is not found."""
_MARKS: Final = ("*", "?", "[")


async def expand_patterns(list_folder: ListFolder, patterns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the paths that patterns stand for, and the patterns that stand for none.

    A name is a path of a file or folder; ``*``, ``?`` and ``[…]`` stand for letters of one name, ``**`` for any number
    of folders. No link is followed or found: it would bring files that were not declared. An absolute path begins at
    the root of the box, a relative one at its work directory.
    """
    search = _Search(list_folder)
    paths, missing = set[str](), list[str]()
    for pattern in patterns:
        top = "/" if pattern.startswith("/") else "."
        found = await search.find(top, [part for part in pattern.split("/") if part not in ("", ".")])
        paths |= found
        if not found:
            missing.append(pattern)
    return sorted(paths), missing


class _Search:
    """Lists each folder once."""

    def __init__(self, list_folder: ListFolder) -> None:
        self._list_folder = list_folder
        self._known: dict[str, dict[str, str]] = {}
        """Type by name, by folder."""

    async def find(self, folder: str, parts: Sequence[str]) -> set[str]:
        """Return the paths below a folder that the parts of a pattern stand for."""
        if not parts:
            return {folder}
        first, rest = parts[0], parts[1:]
        found = await self.find(folder, rest) if first == "**" and rest else set[str]()
        for name, kind in (await self._list(folder)).items():
            path = name if folder == "." else f"{folder.rstrip('/')}/{name}"
            if first == "**" and kind == "file":
                found |= set() if rest else {path}
            elif first == "**":
                found |= await self.find(path, parts)
            elif _matches(name, first) and (kind == "directory" or not rest):
                found |= await self.find(path, rest)
        return found

    async def _list(self, folder: str) -> dict[str, str]:
        if folder not in self._known:
            self._known[folder] = {}
            if len(self._known) <= _MAX_FOLDERS and folder.count("/") < _MAX_DEPTH:
                with suppress(OSError):
                    entries = await self._list_folder(folder)
                    self._known[folder] = {one.name: one.type for one in entries if one.type in ("file", "directory")}
        return self._known[folder]


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or (any(mark in pattern for mark in _MARKS) and fnmatchcase(name, pattern))
