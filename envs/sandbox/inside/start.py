"""Entry of the archive: ``python3 ARCHIVE zygote|server DESCRIPTOR CONFIG``.

DESCRIPTOR is that of a socket to the worker. CONFIG is a JSON object:

    zygote   {"outside_user": first of a range of users or null, "hidden": […], "left": […]}
    server   {"workdir": …, "variables": {…}, "limits": {…}, "watched_bytes": …, "left": […]}
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from envs.sandbox.inside import kernel
from envs.sandbox.inside.keeper import end_everything, keep, kill_descendants, list_descendants
from envs.sandbox.inside.lockdown import Limits
from envs.sandbox.inside.packets import describe_error, send_packet
from envs.sandbox.inside.server import Rules, Server
from envs.sandbox.inside.zygote import serve_zygote

RANGE = 65536
"""Users of a zygote that runs as root."""
_SERVE_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Run what the command line names."""
    role, descriptor, text = sys.argv[1:]
    sys.path.pop(0)  # the archive
    end = socket.socket(fileno=int(descriptor))
    for first, behind in ((3, end.fileno()), (end.fileno() + 1, os.sysconf("SC_OPEN_MAX"))):
        os.closerange(first, behind)
    config = cast("dict[str, object]", json.loads(text))
    left = cast("list[str]", config["left"])
    if role == "zygote":
        _run_zygote(end, config, left)
    else:
        keep(_reporting(end, lambda: _serve_alone(end, config)), lambda _: end.close(), left)
    os._exit(0)


def _run_zygote(end: socket.socket, config: dict[str, object], left: list[str]) -> None:
    outside = cast("int | None", config["outside_user"])
    handshake = None if outside is None else _Handshake(outside)

    def serve() -> None:
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        if handshake is None:
            _map_own_user()
        else:
            handshake.ask()
            os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, "parent death signal")  # changing users cleared it
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1, "dumpable")  # or it could not map the users of boxes
        serve_zygote(end, "/tmp", cast("list[str]", config["hidden"]))

    def prepare(child: int) -> None:
        end.close()
        if handshake is not None:
            handshake.answer(child)

    keep(_reporting(end, serve), prepare, left)


class _Handshake:
    """How a zygote has the users of its namespace mapped by its keeper, which has the right to."""

    def __init__(self, first_user: int) -> None:
        self._first_user = first_user
        self._asked, self._ask = os.pipe()
        self._mapped, self._confirm = os.pipe()

    def ask(self) -> None:
        """Wait until the users are mapped; in the zygote."""
        os.close(self._asked)
        os.close(self._confirm)
        os.write(self._ask, b"?")
        if not os.read(self._mapped, 1):
            raise PermissionError(1, "the keeper could not map the users of boxes")
        os.close(self._ask)
        os.close(self._mapped)

    def answer(self, child: int) -> None:
        """Map the users; in the keeper."""
        os.close(self._ask)
        os.close(self._mapped)
        if os.read(self._asked, 1):
            with suppress(OSError):
                for name in ("uid_map", "gid_map"):
                    with open(f"/proc/{child}/{name}", "w", encoding="ascii") as file:
                        file.write(f"0 {self._first_user} {RANGE}\n")
                os.write(self._confirm, b"!")
        os.close(self._asked)
        os.close(self._confirm)


def _map_own_user() -> None:
    """Map root of this namespace to the user who started it, as anyone may."""
    for name, text in (("setgroups", "deny"), ("uid_map", "0 {} 1"), ("gid_map", "0 {} 1")):
        outside = _OUTSIDE[name]
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text.format(outside))


_OUTSIDE = {"setgroups": 0, "uid_map": os.geteuid(), "gid_map": os.getegid()}
"""Read before the user namespace is entered, where they have no number."""


def _reporting(end: socket.socket, serve: Callable[[], None]) -> Callable[[], None]:
    """Return a function whose error reaches the worker."""

    def run() -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        try:
            serve()
        except OSError as error:
            send_packet(end, {"error": describe_error(error)})

    return run


def _serve_alone(end: socket.socket, config: dict[str, object]) -> None:
    """Serve a box that is a directory: its processes are this one's descendants."""
    for number in _SERVE_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1, "subreaper")
    rules = Rules(
        workdir=cast("str", config["workdir"]),
        variables=cast("dict[str, str]", config["variables"]),
        limits=Limits(**cast("dict[str, int]", config["limits"])),
        watched_bytes=cast("int | None", config["watched_bytes"]),
        give_up_rights=lambda: None,
        kill_others=kill_descendants,
        list_processes=lambda: list_descendants(os.getpid()),
    )
    try:
        Server(end, rules).serve([])
    finally:
        end_everything(cast("list[str]", config["left"]))  # as the keeper does, unless it was killed
