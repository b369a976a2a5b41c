"""Zygote: an interpreter that has imported what snippets need, and forks the first process of each box.

It runs beneath the keeper, in a user namespace that maps either a range of users, one or two for each box, or, without
privileges, only the worker's own. Each box has user, process, mount, network, IPC and host name namespaces of its own.
Requests come as packets with the socket of the box as descriptor:

    {"spawn": {"users": [[inside, outside, number], …], "user": …, "workdir": …, "bubblewrap": path or none, …}}

and are answered with ``{"pid": …}`` and a descriptor of the process, or ``{"error": …}``. The box itself reports
``{"ready": […]}`` or ``{"error": …}`` on its own socket, once it has got ``{"go": true}`` there.
"""

import gc
import importlib
import os
import signal
import socket
from contextlib import suppress
from typing import NoReturn, cast

from envs.sandbox.guest import kernel
from envs.sandbox.guest.bubblewrap import enter_session
from envs.sandbox.guest.counts import SocketMemory
from envs.sandbox.guest.jobs import Rules
from envs.sandbox.guest.lockdown import Limits, give_up_rights, seal_server
from envs.sandbox.guest.packets import Packet, describe_error, receive_packet, send_packet
from envs.sandbox.guest.server import Server, kill_others, list_processes, open_oom_score
from envs.sandbox.guest.skeleton import build_skeleton, enter_box, limit_socket_buffers

_WARM = (
    *("argparse", "ast", "base64", "bisect", "collections", "contextlib", "copy", "csv", "dataclasses", "datetime"),
    *("decimal", "enum", "fractions", "functools", "hashlib", "heapq", "io", "itertools", "json", "math", "operator"),
    *("pathlib", "random", "re", "resource", "shutil", "statistics", "string", "struct", "subprocess", "tarfile"),
    *("tempfile", "textwrap", "threading", "time", "traceback", "types", "typing", "unittest", "uuid"),
)
"""What snippets import most."""
_NAMESPACES = kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID | kernel.CLONE_NEWNS
_MORE_NAMESPACES = kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
"""Those of sessions are bubblewrap's."""


def serve_zygote(
    end: socket.socket, top: str, hidden: list[str], image: str | int | None, mounts: dict[str, int | None]
) -> None:
    """Serve until the worker closes the connection; runs as root of its own user namespace."""
    for name in _WARM:
        importlib.import_module(name)
    build_skeleton(top, hidden, image, mounts)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps boxes; who waits for one has its descriptor
    gc.collect()
    gc.freeze()
    send_packet(end, {"up": True})
    while (packet := receive_packet(end)) is not None:
        try:
            pid, pidfd = _spawn(end, packet)
        except (OSError, ValueError, KeyError) as error:
            send_packet(end, {"error": describe_error(error)})
        else:
            send_packet(end, {"pid": pid}, [pidfd])
            os.close(pidfd)
        finally:
            for descriptor in packet.descriptors:
                os.close(descriptor)


def _spawn(zygote_end: socket.socket, packet: Packet) -> tuple[int, int]:
    config = cast("dict[str, object]", packet.fields["spawn"])
    workdir = cast("str", config["workdir"])
    namespaces = _NAMESPACES
    if "bubblewrap" not in config:
        namespaces |= _MORE_NAMESPACES
        os.makedirs(workdir, exist_ok=True)
    reader, writer = os.pipe()
    try:
        pid, pidfd = kernel.clone(namespaces)
        if pid == 0:
            os.close(writer)
            _become_box(zygote_end, packet.descriptors[0], reader, config)
        try:
            users = cast("list[list[int]]", config["users"])
            lines = "".join(f"{inside} {outside} {number}\n" for inside, outside, number in users)
            for name in ("uid_map", "gid_map"):
                with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:
                    file.write(lines)
            os.write(writer, b"!")
        except OSError:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
            raise
        return pid, pidfd
    finally:
        os.close(reader)
        os.close(writer)


def _become_box(zygote_end: socket.socket, box_end: int, mapped: int, config: dict[str, object]) -> NoReturn:
    """Set the box up and serve it; never returns."""
    code = 1
    try:
        zygote_end.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Python's handler would let commands of the same user end the box
        end = socket.socket(fileno=box_end)
        try:
            if os.read(mapped, 1) and receive_packet(end) is not None:
                oom_score, proc = open_oom_score(), os.open("/proc", os.O_PATH | os.O_CLOEXEC)
                rules = _set_up(config, f"/proc/self/fd/{proc}")
                os.close(proc)
                writable = (
                    ["/"] if config.get("has_image") else [cast("str", config["workdir"]), "/tmp", "/dev/shm", "/run"]
                )
                missing = seal_server(writable)
                Server(end, rules, oom_score).serve(missing)
                code = 0
        except OSError as error:
            with suppress(OSError):
                send_packet(end, {"error": describe_error(error)})
    finally:
        os._exit(code)  # the kernel kills all other processes of the box


def _set_up(config: dict[str, object], proc: str) -> Rules:
    """Make what is the box's own, as its root.

    Args:
        config: of the box.
        proc: where the kernel's view of processes and settings can be written; the box's own is read-only.
    """
    os.setsid()
    user, is_alone = cast("int", config["user"]), bool(config["is_alone"])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, "parent death signal")  # after what would clear it
    workdir, disk_mb = cast("str", config["workdir"]), cast("int", config["disk_mb"])
    files, has_image = cast("int", config["files"]), bool(config.get("has_image"))
    owner = 0 if is_alone else user
    if "bubblewrap" in config:
        program, mounts = cast("str", config["bubblewrap"]), cast("list[str]", config["mounts"])
        enter_session(program, workdir, disk_mb, files, user=owner, has_image=has_image, mounts=mounts)
    else:
        enter_box(workdir, disk_mb, files, user=owner)
        kernel.raise_loopback()
    limit_socket_buffers(proc)
    if is_alone:
        kernel.enter_user_namespace(user, proc)
    return Rules(
        workdir=workdir,
        variables=cast("dict[str, str]", config["variables"]),
        limits=Limits(**cast("dict[str, int]", config["limits"])),
        watched_bytes=cast("int | None", config["watched_bytes"]),
        max_watches=cast("int | None", config["max_watches"]),
        give_up_rights=lambda: give_up_rights(user),
        kill_others=kill_others,
        list_processes=list_processes,
        sockets=None if config["watched_bytes"] is None else SocketMemory(),
        has_warm_python=not has_image,
    )
