"""Jobs of a box: what the child of a request does, with the rights of the box's user.

Results leave through the child's standard output. A job on files that fails writes ``{"errno": …}`` to standard error
and exits with 1.
"""

import errno
import fcntl
import io
import json
import os
import signal
import stat
import sys
import tarfile
import termios
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple, cast

from envs.sandbox.guest.counts import SocketMemory
from envs.sandbox.guest.lockdown import Limits, limit_cpu, set_limits
from envs.sandbox.guest.warm_python import find_snippet, run_snippet

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_CHUNK = 1 << 16
_MAX_ENTRIES = 100_000
_TREE = "/proc/tree"
"""Member of an archive that lists everything that was there; no file of a box has this name."""
_COVERED = ("/proc", "/sys", "/dev")
"""What each box has of its own."""


class Rules(NamedTuple):
    """What holds for all children of a server."""

    workdir: str
    variables: dict[str, str]
    """Their whole environment."""
    limits: Limits
    watched_bytes: int | None
    """Memory of all processes together, beyond which they are killed; None: a cgroup limits it."""
    max_watches: int | None
    """Descriptors that all ``epoll`` together may watch, of the stock of the worker's user; None: it is another's."""
    give_up_rights: Callable[[], None]
    """What a child does before it runs anything."""
    kill_others: Callable[[], None]
    """Kill every process of the box but this one."""
    list_processes: Callable[[], Iterator[int]]
    sockets: SocketMemory | None = None
    """Sockets whose memory is watched too."""
    has_warm_python: bool = True
    """This interpreter is what commands of the box find as ``python3``."""


def become_user(rules: Rules) -> None:
    """Take on the limits and the rights of the box's user, for good."""
    set_limits(rules.limits)
    rules.give_up_rights()


def run_job(fields: dict[str, object], rules: Rules) -> int:
    """Do what a request asks, as the box's user; return the exit code."""
    limit_cpu(cast("int", fields["cpu_seconds"]))
    if fields["job"] == "exec":
        return _execute(fields, rules)
    os.chdir(rules.workdir)
    fields["has_root"] = not rules.has_warm_python  # its own, with the interpreter of an image
    try:
        _FILE_JOBS[cast("str", fields["job"])](fields)
    except OSError as error:
        os.write(2, json.dumps({"errno": error.errno or errno.EIO}).encode())
        return 1
    return 0


def _execute(fields: dict[str, object], rules: Rules) -> int:
    argv = cast("list[str]", fields["argv"])
    variables = {**rules.variables, **cast("dict[str, str]", fields["env"])}
    try:
        os.chdir(os.path.join(rules.workdir, cast("str", fields["cwd"])))
        if fields.get("pty"):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if rules.has_warm_python and (snippet := find_snippet(argv, variables)) is not None:
            return run_snippet(snippet, variables)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would what it becomes
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(argv[0], argv, variables)
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {os.strerror(error.errno or errno.EIO)}\n")
        return _NOT_FOUND if error.errno == errno.ENOENT else _NOT_EXECUTABLE


def _read(fields: dict[str, object]) -> None:
    left = cast("int", fields["max_bytes"])
    file = os.open(cast("str", fields["path"]), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(file).st_mode
    if stat.S_ISDIR(kind):
        raise OSError(errno.EISDIR, "a directory")
    if not stat.S_ISREG(kind):
        raise OSError(errno.EINVAL, "no regular file")
    while chunk := os.read(file, min(_CHUNK, left + 1)):
        if len(chunk) > left:
            raise OSError(errno.EFBIG, "larger than asked for")
        left -= len(chunk)
        _write_all(1, chunk)


def _write(fields: dict[str, object]) -> None:
    path = cast("str", fields["path"])
    if parent := os.path.dirname(path):
        os.makedirs(parent, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise OSError(errno.EINVAL, "no regular file")
    while chunk := os.read(0, _CHUNK):
        _write_all(file, chunk)
    os.fchmod(file, cast("int", fields["mode"]))


def _write_all(file: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(file, rest) :]


def _list(fields: dict[str, object]) -> None:
    found: list[tuple[str, str, int, int]] = []
    with os.scandir(cast("str", fields["path"])) as entries:
        for entry in entries:
            try:
                about = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed meanwhile
                continue
            name = os.fsencode(entry.name).decode(errors="replace")  # names may be any bytes, messages are text
            found.append((name, _name_kind(about.st_mode), about.st_size, stat.S_IMODE(about.st_mode)))
            if len(found) > _MAX_ENTRIES:
                raise OSError(errno.EFBIG, "too many entries")
    _write_all(1, json.dumps(sorted(found)).encode())


def _name_kind(mode: int) -> str:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    return kinds.get(stat.S_IFMT(mode), "other")


def _pack(fields: dict[str, object]) -> None:
    """Write files as a tar, the same bytes for the same files: sorted, without times and owners."""
    top = os.path.realpath(".")
    with os.fdopen(os.dup(1), "wb") as output, tarfile.open(fileobj=output, mode="w|") as archive:
        for path in cast("list[str]", fields["paths"]):
            whole = os.path.realpath(path)
            if whole == "/" and fields["has_root"] and "/" in (path, top):
                _add_changes(archive, cast("float", fields["began"]))
            elif path.startswith("/") and fields["has_root"]:
                _add(archive, whole)
            elif f"{whole}/".startswith(f"{top.rstrip('/')}/"):
                _add(archive, os.path.relpath(whole, top))
            else:
                raise OSError(errno.EXDEV, "not below the work directory")


def _add_changes(archive: tarfile.TarFile, began: float) -> None:
    """Add the tree, and each file that changed since then, by the time that no user can set; with its own time."""
    tree = list(_walk())
    body = zlib.compress(json.dumps(tree).encode())
    member = tarfile.TarInfo(_TREE)
    member.size = len(body)
    archive.addfile(member, io.BytesIO(body))
    for path, mode in tree:
        if mode is None and (about := os.lstat(path)).st_ctime >= began:
            _add(archive, path, about.st_mtime)


def _walk() -> Iterator[tuple[str, int | None]]:
    """Yield everything in the box, with the permissions of folders; folders come before what they contain."""
    folders = ["/"]
    while folders:
        folder = folders.pop()
        names = list[str]()
        with suppress(PermissionError):  # of the image's other users
            if not os.access(folder, os.R_OK | os.X_OK):
                os.chmod(folder, stat.S_IRWXU)
            names = os.listdir(folder)
        for name in sorted(names):
            mode = os.lstat(path := os.path.join(folder, name)).st_mode
            if stat.S_ISDIR(mode) and path not in _COVERED:
                folders.append(path)
                yield path, stat.S_IMODE(mode)
            elif path not in _COVERED:
                yield path, None


def _add(archive: tarfile.TarFile, path: str, mtime: float = 0) -> None:
    member: tarfile.TarInfo | None = archive.gettarinfo(path, path)
    if not (member and (member.isreg() or member.isdir() or member.issym() or member.islnk())):
        return  # a socket, pipe or device
    if path.startswith("/"):
        member.name, member.linkname = path, f"/{member.linkname}" if member.islnk() else member.linkname
    member.mtime, member.uid, member.gid, member.uname, member.gname = mtime, 0, 0, "", ""
    if member.isreg():
        if not member.mode & stat.S_IRUSR:
            os.chmod(path, member.mode | stat.S_IRUSR)
        with open(path, "rb") as content:
            archive.addfile(member, content)
        return
    archive.addfile(member)
    if member.isdir():
        for name in sorted(os.listdir(path)):
            _add(archive, os.path.normpath(os.path.join(path, name)))


def _unpack(_: dict[str, object]) -> None:
    with os.fdopen(os.dup(0), "rb") as source, tarfile.open(fileobj=source, mode="r|") as archive:
        archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)  # the box is what contains it
        for member in archive:
            if member.name == _TREE and (content := archive.extractfile(member)) is not None:
                _match_tree(dict(json.loads(zlib.decompress(content.read()))))
                continue
            member.uid, member.gid = os.getuid(), os.getgid()
            if not member.isdir():
                with suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(member.name)  # or a link there would decide which file is written
            archive.extract(member, ".", numeric_owner=True)


def _match_tree(tree: dict[str, int | None]) -> None:
    """Remove what a tree does not have, and make its folders."""
    for path, mode in reversed([*_walk()]):
        if path not in tree or (tree[path] is None) != (mode is None):
            with suppress(OSError):  # of the image's other users, or a place of a mount
                os.unlink(path) if mode is None else os.rmdir(path)
    for path, mode in tree.items():
        if mode is not None:
            with suppress(OSError):
                os.makedirs(path, exist_ok=True)
                os.chmod(path, mode)


_FILE_JOBS: Final[dict[str, Callable[[dict[str, object]], None]]] = {
    "read": _read,
    "write": _write,
    "list": _list,
    "pack": _pack,
    "unpack": _unpack,
}
