"""Keeper: starts what serves boxes, and removes what is left of them when the worker or that server has ended.

It is the parent of the zygote, or of the server of a single box, and keeps the worker's rights, which those give up.
Its standard input is its lifeline: the kernel closes it when the worker dies. ``kill -9`` of the worker so leaves
nothing.

Reaper: the same for containers of a daemon, which itself removes a container whose server has ended. The reaper is for
what was in the making.
"""

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from urllib.parse import quote

from envs.sandbox.guest import kernel
from envs.sandbox.guest.packets import receive_packet

_MAX_END_SECONDS = 5.0
_EXITING = 0x4
"""Flag of a process that ends (``PF_EXITING`` in the kernel's sched.h)."""
_POLL_SECONDS = 0.005
_CALL_SECONDS = 30.0
_QUIET_SECONDS = 2.0
"""A daemon may still finish what a worker had asked for when it died."""
_LIST_SECONDS = 0.1


def keep(
    serve: Callable[[], None], prepare: Callable[[int], None], left: list[str], inherited: Sequence[str] = ()
) -> None:
    """Run a function in a child until it returns or the lifeline is cut; then end everything.

    Args:
        serve: what the child does.
        prepare: what to do for the child meanwhile, by its process id.
        left: directories, of cgroups or of files, that are to be gone afterwards.
        inherited: the same, if the worker has died, which otherwise removes them itself.
    """
    worker = os.getppid()
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1, "subreaper")
    if (child := os.fork()) == 0:
        code = 1
        try:
            serve()
            code = 0
        finally:
            os._exit(code)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the worker decides when to end
        signal.signal(number, signal.SIG_IGN)
    prepare(child)
    ended, poll = os.pidfd_open(child), select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(0, select.POLLIN)
    poll.poll()
    end_everything(left)
    if os.getppid() != worker or is_ending(worker):
        for directory in inherited:
            _remove(directory)


def is_ending(pid: int) -> bool:
    """Whether a process has ended or is about to: the kernel closes its files first, and frees its children later."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return bool(int(stat.read().rpartition(")")[2].split()[6]) & _EXITING)
    except (OSError, ValueError):
        return True


def end_everything(left: list[str]) -> None:
    """Kill and reap all processes below this one, then remove directories."""
    _kill_family()
    for directory in left:
        _remove(directory)


def kill_descendants() -> None:
    """Kill all processes below this one, without waiting for their ends."""
    for pid in list_descendants(os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _kill_family() -> None:
    """Kill and reap all descendants."""
    deadline = time.monotonic() + _MAX_END_SECONDS
    while time.monotonic() < deadline:
        kill_descendants()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_POLL_SECONDS)


def list_ancestors() -> Iterator[int]:
    """Yield the parent of this process, and all above it that it can see."""
    pid = os.getppid()
    with suppress(OSError, ValueError):
        while pid > 0:
            yield pid
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
                pid = int(stat.read().rpartition(")")[2].split()[1])


def list_descendants(pid: int) -> Iterator[int]:
    """Yield all processes below one, parents first."""
    with suppress(OSError, ValueError):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            found = [int(one) for one in children.read().split()]
        for child in found:
            yield child
            yield from list_descendants(child)


def _remove(directory: str) -> None:
    if not directory.startswith("/sys/fs/cgroup/"):
        _remove_tree(directory)
        return
    deadline = time.monotonic() + _MAX_END_SECONDS
    for folder, _, _ in os.walk(directory, topdown=False):
        while os.path.isdir(folder) and time.monotonic() < deadline:
            try:
                os.rmdir(folder)
            except OSError:  # its last process is still ending
                time.sleep(_POLL_SECONDS)


def serve_reaper(end: socket.socket, daemon: str, label: str, left: list[str]) -> None:
    """Wait for the worker's end; unless it says that it has removed everything itself, do that.

    Args:
        end: connection to the worker.
        daemon: path of the daemon's socket.
        label: that all containers of the worker have.
        left: directories to remove.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if receive_packet(end) is None:
        with suppress(OSError, ValueError):
            filters, deadline = quote(json.dumps({"label": [label]})), time.monotonic() + _QUIET_SECONDS
            while time.monotonic() < deadline:
                for row in json.loads(_ask(daemon, "GET", f"/containers/json?all=1&filters={filters}")):
                    _ask(daemon, "DELETE", f"/containers/{row['Id']}?force=1&v=1")
                time.sleep(_LIST_SECONDS)
    for directory in left:
        _remove_tree(directory)


def _remove_tree(directory: str) -> None:
    """Remove a directory of any depth: ``shutil`` recurses, and takes a descriptor for each level."""
    import subprocess  # noqa: PLC0415  # few kinds have directories, and each keeper would pay

    subprocess.run(["rm", "-rf", "--", directory], check=False)


def _ask(daemon: str, method: str, path: str) -> bytes:
    """Return what the daemon answers. Raises: OSError."""
    from http.client import HTTPConnection, HTTPException  # noqa: PLC0415  # only containers need it, and it is slow

    connection = HTTPConnection("docker")
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(_CALL_SECONDS)
        connection.sock.connect(daemon)
        connection.request(method, path)
        return connection.getresponse().read()
    except HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()
