"""Root directories of boxes, written on this machine: archives are extracted into them, and nothing leaves them.

What an archive contains is not trusted: names and links are resolved inside the root, only files, folders and links are
made, and none keeps the right to change its user.
"""

import json
import os
import posixpath
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, cast

from agent_layer.errors import BadInputError

_TREE: Final = "/proc/tree"
"""Member that lists what there was when changes were packed; ``envs.sandbox.guest.jobs`` writes it."""
_OWN: Final = ("proc", "sys", "dev")
"""Folders that each box has of its own."""
_MAX_LINKS: Final = 64
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


class RootWriter:
    """Writes below one directory.

    Args:
        root: it; nothing else writes there.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def extract(self, archive: tarfile.TarFile) -> None:
        """Extract a layer of an image, or the changes of a box.

        Raises: BadInputError: a name or a link leads nowhere.
        """
        for member in archive:
            name = posixpath.normpath("/" + member.name.lstrip("/"))
            if name == _TREE and (content := archive.extractfile(member)) is not None:
                self._match(cast("dict[str, int | None]", dict(json.loads(zlib.decompress(content.read())))))
            elif name != "/" and name.split("/")[1] not in _OWN:
                self._extract(archive, member, name)

    def make_folder(self, path: str) -> Path:
        """Return a folder, made where it is missing."""
        place = self.find(path)
        if place.exists() and not place.is_dir():
            place.unlink()
        place.mkdir(parents=True, exist_ok=True)
        return place

    def find(self, path: str) -> Path:
        """Return where a path of the box is; links are followed inside the root.

        Raises: BadInputError: its links form a circle.
        """
        place, parts, links = self._root, [part for part in path.split("/") if part not in ("", ".")], 0
        while parts:
            part = parts.pop(0)
            if part == "..":
                place = place.parent if place != self._root else place
                continue
            if (place / part).is_symlink():
                links += 1
                if links > _MAX_LINKS:
                    raise BadInputError(f"image: the links of {path} form a circle; correct the image")
                target = str((place / part).readlink())
                place = self._root if target.startswith("/") else place
                parts = [one for one in target.split("/") if one not in ("", ".")] + parts
            else:
                place /= part
        return place

    def _extract(self, archive: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> None:  # noqa: C901  # one case each
        folder, base = posixpath.split(name)
        parent = self.make_folder(folder)
        place, mode = parent / base, member.mode & 0o777 | stat.S_IRUSR | stat.S_IWUSR
        if base == _OPAQUE:
            for one in parent.iterdir():
                _remove(one)
        elif base.startswith(_WHITEOUT):
            _remove(parent / base.removeprefix(_WHITEOUT))
        elif member.isdir():
            self.make_folder(name).chmod(mode | stat.S_IXUSR)  # /bin of a layer may be a link in the layer below
        elif member.issym():
            _remove(place)
            place.symlink_to(member.linkname)
        elif member.islnk():
            source = self.find(posixpath.normpath("/" + member.linkname.lstrip("/")))
            if source != place and source.is_file():
                _remove(place)
                os.link(source, place)
        elif member.isreg() and (content := archive.extractfile(member)) is not None:
            _write(place, content, mode, member.mtime)

    def _match(self, tree: dict[str, int | None]) -> None:  # kept: as the boxes' own
        """Remove what a tree does not have, and make its folders."""
        for path, is_folder in reversed([*self._walk(self._root, "")]):
            if path not in tree or (tree[path] is None) == is_folder:
                _remove(self._root / path[1:])
        for path, mode in tree.items():
            if mode is not None:
                self.make_folder(path).chmod(mode & 0o777 | stat.S_IRWXU)

    def _walk(self, folder: Path, path: str) -> Iterator[tuple[str, bool]]:
        for one in sorted(folder.iterdir()):
            below, is_folder = f"{path}/{one.name}", one.is_dir() and not one.is_symlink()
            if below[1:] not in _OWN:
                yield below, is_folder
                if is_folder:
                    yield from self._walk(one, below)


def _write(place: Path, content: IO[bytes], mode: int, mtime: float) -> None:
    _remove(place)  # or a link there would decide which file is written
    with place.open("xb") as file:
        shutil.copyfileobj(content, file)
    place.chmod(mode)
    os.utime(place, (mtime, mtime))


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        with suppress(FileNotFoundError):
            place.unlink()
