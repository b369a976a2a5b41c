"""Zygote: an interpreter that has imported what snippets need, and forks the first process of each box.

It runs beneath the keeper, in a user namespace that maps either a range of users, one or two for each box, or, without
privileges, only the worker's own. Each box has user, process, mount, network, IPC and host name namespaces of its own.
Requests come as packets with the socket of the box as descriptor:

    {"spawn": {"users": [[inside, outside], …], "user": …, "workdir": …, …}}

and are answered with ``{"pid": …}`` and a descriptor of the process, or ``{"error": …}``. The box itself reports
``{"ready": […]}`` or ``{"error": …}`` on its own socket, once it has got ``{"go": true}`` there.
"""

import gc
import importlib
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import NoReturn, cast

from envs.sandbox.inside import kernel
from envs.sandbox.inside.lockdown import Limits, give_up_rights, seal_server
from envs.sandbox.inside.packets import Packet, describe_error, receive_packet, send_packet
from envs.sandbox.inside.server import Rules, Server
from envs.sandbox.inside.skeleton import WRITABLE, build_skeleton, enter_box

_WARM = (
    *("argparse", "ast", "base64", "bisect", "collections", "contextlib", "copy", "csv", "dataclasses", "datetime"),
    *("decimal", "enum", "fractions", "functools", "hashlib", "heapq", "io", "itertools", "json", "math", "operator"),
    *("pathlib", "random", "re", "resource", "shutil", "statistics", "string", "struct", "subprocess", "tarfile"),
    *("tempfile", "textwrap", "threading", "time", "traceback", "types", "typing", "unittest", "uuid"),
)
"""What snippets import most."""
_NAMESPACES = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)


def serve_zygote(end: socket.socket, top: str, hidden: list[str]) -> None:
    """Serve until the worker closes the connection; runs as root of its own user namespace."""
    for name in _WARM:
        importlib.import_module(name)
    build_skeleton(top, hidden)
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
    os.makedirs(workdir, exist_ok=True)
    reader, writer = os.pipe()
    try:
        pid, pidfd = kernel.clone(_NAMESPACES)
        if pid == 0:
            os.close(writer)
            _become_box(zygote_end, packet.descriptors[0], reader, config)
        try:
            _map_users(pid, cast("list[list[int]]", config["users"]))
            os.write(writer, b"!")
        except OSError:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
            raise
        return pid, pidfd
    finally:
        os.close(reader)
        os.close(writer)


def _map_users(pid: int, users: list[list[int]]) -> None:
    lines = "".join(f"{inside} {outside} 1\n" for inside, outside in users)
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:
            file.write(lines)


def _become_box(zygote_end: socket.socket, box_end: int, mapped: int, config: dict[str, object]) -> NoReturn:
    """Set the box up and serve it; never returns."""
    code = 1
    try:
        zygote_end.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        end = socket.socket(fileno=box_end)
        try:
            if os.read(mapped, 1) and receive_packet(end) is not None:
                rules = _set_up(config)
                missing = seal_server([WRITABLE, cast("str", config["workdir"]), "/tmp", "/dev/shm"])
                Server(end, rules).serve(missing)
                code = 0
        except OSError as error:
            with suppress(OSError):
                send_packet(end, {"error": describe_error(error)})
    finally:
        os._exit(code)  # the kernel kills all other processes of the box


def _set_up(config: dict[str, object]) -> Rules:
    os.setsid()
    root, user = cast("list[list[int]]", config["users"])[0][0], cast("int", config["user"])
    os.setresgid(root, root, root)
    os.setresuid(root, root, root)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, "parent death signal")  # after what would clear it
    workdir = cast("str", config["workdir"])
    enter_box(workdir, cast("int", config["disk_mb"]), cast("int", config["files"]), user=user)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        kernel.raise_loopback(any_socket.fileno())
    return Rules(
        workdir=workdir,
        variables=cast("dict[str, str]", config["variables"]),
        limits=Limits(**cast("dict[str, int]", config["limits"])),
        watched_bytes=cast("int | None", config["watched_bytes"]),
        give_up_rights=lambda: give_up_rights(user),
        kill_others=_kill_others,
        list_processes=_list_processes,
    )


def _kill_others() -> None:
    """Kill every process that this one sees: all of its box."""
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def _list_processes() -> Iterator[int]:
    own = os.getpid()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != own:
            yield int(name)
