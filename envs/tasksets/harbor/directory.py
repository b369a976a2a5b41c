"""A Harbor task as a directory: what is in it, as one record with a digest, and its trees as archives for boxes."""

import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import content_hash
from agent_layer.schema.sandbox import Snapshot
from envs.tasksets.harbor.task_file import TaskFile, read_task_file

TASK_FILE: Final = "task.toml"
_UNREAD: Final = (".harborignore",)
"""Files of the format that mean nothing here."""
_TREES: Final = ("environment", "solution", "tests", "steps")
_MAX_TREE_BYTES: Final = 128 << 20
_MAX_TEXT_BYTES: Final = 4 << 20
_MAX_NAME_LENGTH: Final = 96
"""Longest id of a task."""


class HarborTask(msgspec.Struct, frozen=True, kw_only=True):
    """One directory, read."""

    directory: Path
    name: str
    """Path below the directory of all tasks, with dots."""
    file: TaskFile
    unknown: list[str]
    """Keys of ``task.toml`` that the schema does not know, files such as ``.harborignore``: without meaning here."""
    instruction: str
    digest: str
    """Hash of every file that decides what the task is and how it is graded."""


def find_task_directories(folder: Path) -> list[Path]:
    """Return the task directories in a folder, which may be one itself; in order of their paths."""
    if (folder / TASK_FILE).is_file():
        return [folder]
    found = list[Path]()
    for path in sorted(one.parent for one in folder.rglob(TASK_FILE) if one.is_file()):
        if not any(path.is_relative_to(one) for one in found):  # a task may have tasks among its files
            found.append(path)
    return found


def read_task_directory(directory: Path, top: Path) -> HarborTask:
    """Read one task.

    Args:
        directory: it.
        top: the folder of all tasks, for the name.

    Raises: BadInputError: a part is missing or has another form; the error names the file.
    """
    file, unknown = read_task_file(directory / TASK_FILE)
    instruction = "" if file.steps else _read_text(directory / "instruction.md", directory.resolve())
    if not file.steps and not instruction.strip():
        raise BadInputError(
            f"{directory / 'instruction.md'}: expected what the agent has to do, found nothing; write it"
        )
    parts = directory.relative_to(top).parts or (directory.resolve().name,)
    return HarborTask(
        directory=directory.resolve(),
        name=_make_name(".".join(parts)),
        file=file,
        unknown=[*unknown, *(name for name in _UNREAD if (directory / name).exists())],
        instruction=instruction,
        digest=_hash_directory(directory.resolve()),
    )


def pack_tree(
    tree: Path, target: str, top: Path, *, keeps: Callable[[str], bool] = lambda _: True, mode: int | None = None
) -> Snapshot:
    """Return a tree of a task as it appears in a box.

    Args:
        tree: a folder, or one file.
        target: absolute path in the box.
        top: the task's directory; no link may lead out of it.
        keeps: whether a path below the tree is taken.
        mode: permissions of all files; None: their own.

    Raises: BadInputError: a link leads out, or the tree is larger than 128 MB.
    """
    buffer, size = io.BytesIO(), 0
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in list_tree(tree, top):
            below = "" if path == tree else f"/{path.relative_to(tree).as_posix()}"
            if below and not keeps(below[1:]):
                continue
            member = archive.gettarinfo(path)
            member.name, member.mtime, member.uid, member.gid, member.uname, member.gname = (
                target + below,
                0,
                0,
                0,
                "",
                "",
            )
            is_run = member.mode & stat.S_IXUSR or path.suffix == ".sh" or member.isdir()
            member.mode = (0o755 if is_run else 0o644) & (0o777 if member.mode & stat.S_IWUSR else 0o555)
            member.mode = member.mode if mode is None or member.isdir() else mode
            if member.islnk():
                member.type, member.size = tarfile.REGTYPE, path.stat().st_size
            size += member.size
            if size > _MAX_TREE_BYTES:
                raise BadInputError(
                    f"{tree}: expected at most {_MAX_TREE_BYTES >> 20} MB, found more; put large files into the image"
                )
            with path.open("rb") if member.isreg() else io.BytesIO() as content:
                archive.addfile(member, content)
    return Snapshot(archive=buffer.getvalue())


def list_tree(tree: Path, top: Path) -> Iterator[Path]:
    """Yield a tree and everything below: files, folders and links that stay in the task.

    Raises: BadInputError: something is none of these.
    """
    mode = tree.lstat().st_mode
    if stat.S_ISLNK(mode):
        if not tree.resolve().is_relative_to(top) or tree.readlink().is_absolute():
            raise BadInputError(f"{tree}: is a link that leads out of the task; put a copy in its place")
    elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise BadInputError(f"{tree}: expected a file, a folder or a link; remove it")
    yield tree
    if stat.S_ISDIR(mode):
        for one in sorted(tree.iterdir()):
            yield from list_tree(one, top)


def _hash_directory(directory: Path) -> str:
    lines = list[str]()
    for path in (directory / TASK_FILE, directory / "instruction.md", *(directory / name for name in _TREES)):
        for one in list_tree(path, directory) if os.path.lexists(path) else ():
            name, mode = one.relative_to(directory).as_posix(), one.lstat().st_mode
            if stat.S_ISREG(mode):
                lines.append(f"{name} {bool(mode & stat.S_IXUSR)} {content_hash(one.read_bytes())}")
            elif stat.S_ISLNK(mode):
                lines.append(f"{name} -> {one.readlink()}")
    return content_hash("\n".join(lines).encode("utf-8", "surrogateescape"))


def _read_text(path: Path, top: Path) -> str:
    try:
        next(list_tree(path, top))
        content = path.read_bytes()
        if len(content) > _MAX_TEXT_BYTES:
            raise BadInputError(f"{path}: expected at most {_MAX_TEXT_BYTES >> 20} MB, found more; shorten it")
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: expected a readable text in UTF-8, found {error}; write one") from error


def _make_name(text: str) -> str:
    """Return a text as the id of a task; one that has to be changed ends with its hash, so that no two become one."""
    name = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in text)
    name = name.lstrip("._-")[:_MAX_NAME_LENGTH]
    return (
        name
        if name == text
        else f"{name[: _MAX_NAME_LENGTH - 9].strip('-') or 'task'}-{content_hash(text.encode('utf-8', 'replace'))[:8]}"
    )
