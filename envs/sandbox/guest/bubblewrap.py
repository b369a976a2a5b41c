"""Root directory and namespaces of a session, which bubblewrap makes and which the server of the box then enters.

Bubblewrap is the child of the box's first process. It starts a shell in what it has made, which does nothing but hold
the namespaces open until the first process has entered them; then both are killed.
"""

import fcntl
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from envs.sandbox.guest import kernel
from envs.sandbox.guest.lockdown import FILTER
from envs.sandbox.guest.skeleton import HOST_LINKS, IMAGE, WRITABLE, make_owned, make_workdir, make_writable, mount_proc

_PROC, _ROOT, _UPPER, _SCRATCH = (f"{WRITABLE}/{name}" for name in ("proc", "root", "upper", "scratch"))
_NAMESPACES = ("--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "box")
_HOLD = ("/bin/sh", "-c", "echo up; read end")
_UP = b"up\n"
_MAX_ERROR_LENGTH = 500
_INFO, _FILTER = 3, 4
"""Descriptors of bubblewrap."""
_BEYOND = 16
"""First descriptor that is none of those."""
_ENTERED = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWCGROUP


def enter_session(  # noqa: PLR0913  # all that a box has of its own
    program: str, workdir: str, disk_mb: int, files: int, *, user: int, has_image: bool, mounts: Sequence[str]
) -> None:
    """Make what is a box's own and move into it; runs in the first process of the box.

    Args:
        program: path of bubblewrap.
        workdir: made if the image has none.
        disk_mb: bound of everything that the box can write.
        files: bound of what it can create.
        user: of the box.
        has_image: the root directory is an overlay over the zygote's image; False: the host's programs, read-only.
        mounts: further folders of the zygote's root directory.
    """
    sources = make_writable(workdir, disk_mb, files, user=user)
    os.mkdir(_PROC)
    mount_proc(_PROC)
    if has_image:
        _mount_overlay(workdir, user)
        del sources[workdir]
        layout = ["--bind", _ROOT, "/"]
    else:
        layout = _host_layout()
    for place in mounts:
        parts = place.split("/")[1:-1]
        for number in range(len(parts)):  # or only root could enter those that bubblewrap makes
            layout += ["--dir", "/" + "/".join(parts[: number + 1])]
        layout += ["--ro-bind", place, place]
    layout += ["--dev-bind", "/dev", "/dev"]
    for place, source in sources.items():
        layout += ["--bind", source, place]
    layout += ["--ro-bind", _PROC, "/proc", "--remount-ro", "/dev"]
    if not has_image:
        layout += ["--dir", "/run", "--remount-ro", "/"]
    _enter([program, *_NAMESPACES, *layout, "--cap-drop", "ALL", "--new-session"])
    if has_image:
        sys.path.clear()  # what this process imports from now on must not be the image's
    os.chdir(workdir)


def _mount_overlay(workdir: str, user: int) -> None:
    for path in (_ROOT, _UPPER, _SCRATCH):
        make_owned(path, 0o755, user)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    options = f"lowerdir={IMAGE},upperdir={_UPPER},workdir={_SCRATCH},userxattr"
    kernel.mount("overlay", _ROOT, "overlay", flags, options)
    make_workdir(_ROOT, workdir, user)


def _host_layout() -> list[str]:
    layout = ["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]
    for name in HOST_LINKS:
        if os.path.islink(f"/{name}"):
            layout += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            layout += ["--ro-bind", f"/{name}", f"/{name}"]
    return layout


def _enter(command: list[str]) -> None:
    """Run bubblewrap, and enter the namespaces that it has made."""
    pipes = [os.pipe() for _ in range(3)]
    (held, hold), (heard, report_end), (known, answer_end) = pipes
    if os.fork() == 0:
        _become_bubblewrap(command, held, report_end, answer_end)
    for one in (held, report_end, answer_end):
        os.close(one)
    try:
        answer = _read(heard, _UP)
        if answer != _UP:
            raise OSError(0, f"bubblewrap: {answer.decode(errors='replace').strip() or 'it has ended'}")
        inner = json.loads(_read(known, b"}\n"))["child-pid"]
        pidfd = os.pidfd_open(inner)
        try:
            kernel.enter_namespaces(pidfd, _ENTERED)
        finally:
            os.close(pidfd)
    finally:
        for one in (hold, heard, known):
            os.close(one)
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # bubblewrap and its shell, which are all other processes of the box
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)


def _become_bubblewrap(command: list[str], held: int, report_end: int, answer_end: int) -> NoReturn:
    try:
        rules, filter_end = os.pipe()
        os.write(filter_end, FILTER)
        os.close(filter_end)
        beyond = [fcntl.fcntl(one, fcntl.F_DUPFD, _BEYOND) for one in (held, report_end, report_end, answer_end, rules)]
        for number, one in enumerate(beyond):
            os.dup2(one, number)
        os.closerange(len(beyond), os.sysconf("SC_OPEN_MAX"))
        options = ["--info-fd", str(_INFO), "--seccomp", str(_FILTER)]
        os.execve(command[0], [*command, *options, "--", *_HOLD], {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})
    except OSError as error:
        os.write(2, str(error).encode())
    finally:
        os._exit(127)


def _read(descriptor: int, until: bytes) -> bytes:
    """Return what a pipe delivers until a mark, its end, or a limit."""
    found = b""
    while (
        not found.endswith(until)
        and len(found) < _MAX_ERROR_LENGTH
        and (chunk := os.read(descriptor, _MAX_ERROR_LENGTH))
    ):
        found += chunk
    return found
