"""Entry of the archive: ``python3 ARCHIVE ROLE DESCRIPTOR`` or ``python3 ARCHIVE container SOCKET``.

DESCRIPTOR is that of a socket to the worker, SOCKET its path or descriptor. The first packet says the rest, which no
command line shows: a snippet that the zygote's child runs has that of the zygote.

    zygote   {"outside_user": first of a range of users or null, "hidden": […], "image": path or null, "mounts": […], …}
    server   {"workdir": …, "variables": {…}, "limits": {…}, "watched_bytes": …, "left": […]}
    oci      {"outside_user": …, "image": …, "runtime": command, "name": …, "workdir": …, "programs": descriptor, …}
    reaper   {"daemon": path, "label": …, "left": […]}
"""

import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from envs.sandbox.guest import kernel
from envs.sandbox.guest.counts import SocketMemory
from envs.sandbox.guest.jobs import Rules
from envs.sandbox.guest.keeper import (
    end_everything,
    keep,
    kill_descendants,
    list_ancestors,
    list_descendants,
    serve_reaper,
)
from envs.sandbox.guest.lockdown import Limits, give_up_rights, protect_from_signals, seal_server
from envs.sandbox.guest.oci import run_container
from envs.sandbox.guest.packets import describe_error, receive_packet, send_packet
from envs.sandbox.guest.server import Server, kill_others, list_processes, open_oom_score
from envs.sandbox.guest.skeleton import USER
from envs.sandbox.guest.zygote import serve_zygote

RANGE = 65536
"""Users of a zygote that runs as root."""
_SERVE_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Run what the command line names."""
    role = sys.argv[1]
    sys.path.pop(0)  # the archive, which nothing in a box may import
    if role == "container":
        _serve_container(sys.argv[2])
        os._exit(0)
    end = socket.socket(fileno=int(sys.argv[2]))
    if (packet := receive_packet(end)) is None:
        return
    config = packet.fields
    kept = sorted({end.fileno(), cast("int", config.get("programs", end.fileno()))})
    for first, behind in zip((2, *kept), (*kept, os.sysconf("SC_OPEN_MAX")), strict=True):
        os.closerange(first + 1, behind)
    left = cast("list[str]", config["left"])
    if role == "zygote":
        _run_zygote(end, config, left)
    elif role == "oci":
        _run_oci(end, config, left)
    elif role == "reaper":
        serve_reaper(end, cast("str", config["daemon"]), cast("str", config["label"]), left)
    else:
        keep(_reporting(end, lambda: _serve_alone(end, config)), lambda _: end.close(), left)
    os._exit(0)


def _run_zygote(end: socket.socket, config: dict[str, object], left: list[str]) -> None:
    outside = cast("int | None", config["outside_user"])
    handshake = None if outside is None else _Handshake(outside)
    image = cast("str | int | None", config["image"])
    if outside is not None and isinstance(image, str):
        image = _open_image(end, image, outside)
    mounts = _open_mounts(end, cast("list[str]", config["mounts"]), outside)

    def serve() -> None:
        _become_root(handshake)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1, "dumpable")  # or it could not map the users of boxes
        serve_zygote(end, "/tmp", cast("list[str]", config["hidden"]), image, mounts)

    def prepare(child: int) -> None:
        end.close()
        if handshake is not None:
            handshake.answer(child)

    keep(_reporting(end, serve), prepare, left)


def _run_oci(end: socket.socket, config: dict[str, object], left: list[str]) -> None:
    outside, image = cast("int | None", config["outside_user"]), cast("str | None", config["image"])
    handshake = None if outside is None else _Handshake(outside)
    tree = None if outside is None or image is None else _open_image(end, image, outside)
    mounts = _open_mounts(end, cast("list[str]", config["mounts"]), outside)
    programs = os.dup(cast("int", config["programs"]))

    def serve() -> None:
        report = socket.fromfd(end.fileno(), socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _become_root(handshake)
        root = os.open(image, os.O_PATH) if tree is None and image is not None else tree
        try:
            run_container(end.detach(), programs, {**config, "is_tree": tree is not None}, root, mounts)
        except OSError as error:
            send_packet(report, {"error": describe_error(error)})

    def prepare(child: int) -> None:
        end.close()
        if handshake is not None:
            handshake.answer(child)

    keep(_reporting(end, serve), prepare, left, cast("list[str]", config["inherited"]))


def _become_root(handshake: "_Handshake | None") -> None:
    """Become root of a user and a mount namespace of this process's own."""
    if handshake is None:
        kernel.enter_user_namespace(0)
    else:
        kernel.unshare(kernel.CLONE_NEWUSER)
        handshake.ask()
        os.setgroups([])
    kernel.unshare(kernel.CLONE_NEWNS)
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, "parent death signal")  # changing users cleared it


class _Handshake:
    """How a zygote has the users of its namespace mapped by its keeper, which has the right to."""

    def __init__(self, first_user: int) -> None:
        self._first_user = first_user
        self._request, self._ask = os.pipe()
        self._mapped, self._confirm = os.pipe()

    def ask(self) -> None:
        """Wait until the users are mapped; in the zygote."""
        os.close(self._request)
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
        if os.read(self._request, 1):
            with suppress(OSError):
                for name in ("uid_map", "gid_map"):
                    with open(f"/proc/{child}/{name}", "w", encoding="ascii") as file:
                        file.write(f"0 {self._first_user} {RANGE}\n")
                os.write(self._confirm, b"!")
        os.close(self._request)
        os.close(self._confirm)


def _open_mounts(end: socket.socket, paths: list[str], first_user: int | None) -> dict[str, int | None]:
    """Return mounts that are nowhere yet, by their place; None where the worker's user finds them without help.

    Root of the host reaches folders that no user of a box does, and files that only root may read.
    """
    mounts: dict[str, int | None] = dict.fromkeys(paths)
    if first_user is None:
        return mounts
    for path in paths:
        try:
            mounts[path] = _clone_mapped(path, first_user)
        except OSError:  # a file system that maps no users: what others may read has to do
            mounts[path] = _or_exit(end, lambda path=path: kernel.clone_tree(path))
    return mounts


def _open_image(end: socket.socket, image: str, first_user: int) -> int:
    """Return the descriptor of a mount of an image, whose files belong to users of boxes."""
    return _or_exit(end, lambda: _clone_mapped(image, first_user))


def _or_exit(end: socket.socket, opening: Callable[[], int]) -> int:
    try:
        return opening()
    except OSError as error:
        send_packet(end, {"error": describe_error(error)})
        os._exit(1)


def _clone_mapped(image: str, first_user: int) -> int:
    """Return the descriptor of a mount of a folder, whose files belong to users of boxes.

    What belongs to root there belongs to the box's user, and the other way round.
    """
    lines = f"0 {first_user + USER} 1\n1 {first_user + 1} {USER - 1}\n{USER} {first_user} 1\n"
    rest = USER + 1
    lines += f"{rest} {first_user + rest} {RANGE - rest}\n"
    holder_end, keeper_end = os.pipe()
    entered, enter = os.pipe()
    if (holder := os.fork()) == 0:
        os.close(keeper_end)
        with suppress(OSError):
            kernel.unshare(kernel.CLONE_NEWUSER)
            os.write(enter, b"!")
            os.read(holder_end, 1)
        os._exit(0)
    os.close(enter)
    try:
        os.read(entered, 1)
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{holder}/{name}", "w", encoding="ascii") as file:
                file.write(lines)
        namespace = os.open(f"/proc/{holder}/ns/user", os.O_RDONLY)
        tree = kernel.clone_tree(image)
        kernel.map_users(tree, namespace)
        os.close(namespace)
        return tree
    finally:
        for one in (holder_end, keeper_end, entered):
            os.close(one)
        os.waitpid(holder, 0)


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
    above = [os.getpid(), *list_ancestors()]
    rules = Rules(
        workdir=cast("str", config["workdir"]),
        variables=cast("dict[str, str]", config["variables"]),
        limits=Limits(**cast("dict[str, int]", config["limits"])),
        watched_bytes=cast("int | None", config["watched_bytes"]),
        max_watches=None,
        give_up_rights=lambda: protect_from_signals(above),
        kill_others=kill_descendants,
        list_processes=lambda: list_descendants(os.getpid()),
    )
    try:
        Server(end, rules, open_oom_score()).serve([])
    finally:
        end_everything(cast("list[str]", config["left"]))  # as the keeper does, unless it was killed


def _serve_container(address: str) -> None:
    """Serve the box that a container runtime has made, as its first process, until the worker closes the connection.

    The worker sends the rules of the box as the first packet: ``{"workdir": …, "user": …, "limits": {…}, …}``.

    Args:
        address: path of the worker's socket, or an inherited descriptor, on which it announces itself.
    """
    for number in _SERVE_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    end = _connect(address)
    packet = receive_packet(end)
    if packet is None:
        return
    fields = packet.fields
    user = cast("int", fields["user"])
    rules = Rules(
        workdir=cast("str", fields["workdir"]),
        variables=cast("dict[str, str]", fields["variables"]),
        limits=Limits(**cast("dict[str, int]", fields["limits"])),
        watched_bytes=cast("int | None", fields["watched_bytes"]),
        max_watches=cast("int | None", fields["max_watches"]),
        give_up_rights=lambda: give_up_rights(user),
        kill_others=kill_others,
        list_processes=list_processes,
        sockets=None if fields["watched_bytes"] is None else SocketMemory(),
        has_warm_python=not fields["has_image"],
    )
    oom_score = open_oom_score()
    try:
        if fields.get("is_alone"):  # the runtime's container has root only
            kernel.enter_user_namespace(user)
        os.chdir(rules.workdir)
        missing = seal_server(cast("list[str]", fields["writable"]))
    except OSError as error:
        send_packet(end, {"error": describe_error(error)})
        return
    Server(end, rules, oom_score).serve(missing)


def _connect(address: str) -> socket.socket:
    if address.isdecimal():
        end = socket.socket(fileno=int(address))
        send_packet(end, {"up": True})  # from which the worker learns its process id
        return end
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.connect(address)
    return end
