"""Boxes that an OCI runtime (runc, crun) makes without a daemon.

The runtime runs in a user and a mount namespace of its own, where it is root and where all files that it makes are: the
root directory of the box, the bundle, its state. Nothing of them outlives the last process. The box's limits are those
of its cgroup, which the worker has made, and of its server: the runtime changes no cgroup.
"""

import fcntl
import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from envs.sandbox.guest import kernel
from envs.sandbox.guest.skeleton import (
    HOST_FILES,
    HOST_LINKS,
    ROOT_FILES,
    add_mount,
    limit_socket_buffers,
    make_owned,
    make_workdir,
)

_TOP = "/tmp"
_OWN, _BUNDLE, _ROOT, _STATE, _LOG = (f"{_TOP}/{name}" for name in ("own", "bundle", "root", "state", "log"))
_UPPER, _SCRATCH, _IMAGE = f"{_OWN}/upper", f"{_OWN}/scratch", f"{_TOP}/image"
_FOLDERS = ("dev", "etc", "proc", "run", "tmp", "usr")
_CONNECTION, _PROGRAMS = 3, 4
"""Descriptors of the container's first process."""
_NAMESPACES = ("pid", "mount", "ipc", "uts")
"""Those that the runtime makes; the network's is this process's own, where it can still set limits."""
_KEPT = ("CAP_KILL", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
_TO_MAP_ROOT = "CAP_SETFCAP"
"""Which making a user namespace takes in which root of this one has another number."""
_MASKED = ("acpi", "asound", "kcore", "keys", "latency_stats", "timer_list", "timer_stats", "sched_debug", "scsi")
_READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_MAX_ERROR_LENGTH = 500


def run_container(
    connection: int,
    programs: int,
    config: Mapping[str, object],
    image: int | None,
    mounted: Mapping[str, int | None],
) -> None:
    """Run a container to its end; in a user and a mount namespace of this process's own, as their root.

    Args:
        connection: descriptor of the socket that the server of the box gets.
        programs: descriptor of the archive.
        config: ``runtime``, ``workdir``, ``disk_mb``, ``files``, ``user``, ``hidden``, ``name``.
        image: descriptor of the image: a mount that is nowhere yet, or a directory; None: the host's programs.
        mounted: places of further folders, with the descriptors of their mounts; None: bound from the same place.

    Raises: OSError: the runtime could not.
    """
    workdir, user = cast("str", config["workdir"]), cast("int", config["user"])
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.unshare(kernel.CLONE_NEWNET)
    kernel.raise_loopback()
    limit_socket_buffers("/proc")
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", _TOP, "tmpfs", flags, "size=4m,mode=755")
    for folder in (_OWN, _BUNDLE, _ROOT, _STATE):
        os.mkdir(folder)
    limits = f"size={config['disk_mb']}m,nr_inodes={config['files']},mode=755"
    kernel.mount("tmpfs", _OWN, "tmpfs", flags, limits)
    for name, mode in (("work", 0o755), ("tmp", 0o1777), ("shm", 0o1777)):
        make_owned(f"{_OWN}/{name}", mode, user)
    if image is None:
        _build_host_root(workdir)
        mounts = _host_mounts(workdir, cast("list[str]", config["hidden"]))
    else:
        _mount_image(image, workdir, user, is_tree=bool(config["is_tree"]))
        mounts = []
    for number, (place, tree) in enumerate(mounted.items()):
        if tree is not None:
            add_mount(place, f"{_TOP}/mount{number}", tree)
        mounts.append(_bind(place if tree is None else f"{_TOP}/mount{number}", place, "ro", "rbind"))
    capabilities = [*_KEPT, *([] if user else [_TO_MAP_ROOT])]
    bundle = {
        "ociVersion": "1.0.2",
        "hostname": "box",
        "root": {"path": _ROOT, "readonly": image is None},
        "mounts": [*mounts, *_own_mounts()],
        "process": {
            "terminal": False,
            "cwd": "/",
            "user": {"uid": 0, "gid": 0},
            "args": ["python3", "-I", f"/proc/self/fd/{_PROGRAMS}", "container", str(_CONNECTION)],
            "env": [f"PATH={config['path']}", "LANG=C.UTF-8"],
            "noNewPrivileges": True,
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
        },
        "linux": {
            "namespaces": [{"type": name} for name in _NAMESPACES],
            "maskedPaths": [f"/proc/{name}" for name in _MASKED],
            "readonlyPaths": [f"/proc/{name}" for name in _READ_ONLY],
        },
    }
    with open(f"{_BUNDLE}/config.json", "w", encoding="utf-8") as file:
        json.dump(bundle, file)
    if os.path.isdir("/sys/fs/cgroup/unified"):  # a tree of both versions, with which crun does not start
        kernel.unshare(kernel.CLONE_NEWCGROUP)
        with suppress(OSError):  # runc does without
            kernel.mount("cgroup2", "/sys/fs/cgroup", "cgroup2", flags | kernel.MS_NOEXEC)
    _run(cast("list[str]", config["runtime"]), cast("str", config["name"]), connection, programs)


def _build_host_root(workdir: str) -> None:
    for folder in (*_FOLDERS, workdir.lstrip("/")):
        os.makedirs(f"{_ROOT}/{folder}", exist_ok=True)
    for name in HOST_LINKS:
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{_ROOT}/{name}")
    for name, text in ROOT_FILES.items():
        with open(f"{_ROOT}/{name}", "w", encoding="utf-8") as file:
            file.write(text)


def _host_mounts(workdir: str, hidden: list[str]) -> list[dict[str, object]]:
    seen = ["usr", *(name for name in HOST_LINKS if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}"))]
    seen += [name for name in HOST_FILES if os.path.exists(f"/{name}")]
    mounts = [_bind(f"/{name}", f"/{name}", "ro", "rbind") for name in seen]
    for path in filter(os.path.isdir, hidden):
        options = ["ro", "nosuid", "nodev", "size=4k", "mode=555"]
        mounts.append({"destination": path, "type": "tmpfs", "source": "tmpfs", "options": options})
    return [*mounts, _bind(f"{_OWN}/work", workdir, "rw", "bind")]


def _mount_image(image: int, workdir: str, user: int, *, is_tree: bool) -> None:
    os.mkdir(_IMAGE)
    if is_tree:
        kernel.attach_tree(image, _IMAGE)
    else:
        kernel.bind(f"/proc/self/fd/{image}", _IMAGE)
        kernel.make_read_only(_IMAGE)
    for folder in (_UPPER, _SCRATCH):
        make_owned(folder, 0o755, user)
    options = f"lowerdir={_IMAGE},upperdir={_UPPER},workdir={_SCRATCH},userxattr"
    kernel.mount("overlay", _ROOT, "overlay", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    make_workdir(_ROOT, workdir, user)


def _own_mounts() -> list[dict[str, object]]:
    proc = ["nosuid", "nodev", "noexec", "subset=pid", "hidepid=invisible"]
    device = ["nosuid", "noexec", "ro", "mode=755", "size=64k"]
    return [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": proc},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": device},
        _bind(f"{_OWN}/shm", "/dev/shm", "rw", "bind"),
        _bind(f"{_OWN}/tmp", "/tmp", "rw", "bind"),
    ]


def _bind(source: str, target: str, access: str, way: str) -> dict[str, object]:
    options = [way, access, "nosuid", "nodev"]
    return {"destination": target, "type": "bind", "source": source, "options": options}


def _run(runtime: list[str], name: str, connection: int, programs: int) -> None:
    """Run the runtime and wait for it. Raises: OSError: it failed."""
    if (child := os.fork()) == 0:
        try:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, "parent death signal")
            beyond = [fcntl.fcntl(one, fcntl.F_DUPFD, _PROGRAMS + 1) for one in (connection, programs)]
            for number, one in zip((_CONNECTION, _PROGRAMS), beyond, strict=True):
                os.dup2(one, number)
            os.closerange(_PROGRAMS + 1, os.sysconf("SC_OPEN_MAX"))
            own = ["--root", _STATE, "--log", _LOG]
            command = [*runtime, *own, "run", "--bundle", _BUNDLE, "--preserve-fds", "2", name]
            path = "/usr/sbin:/usr/bin:/sbin:/bin"
            os.execve(command[0], command, {"PATH": path, "HOME": _TOP, "XDG_RUNTIME_DIR": _TOP})
        finally:
            os._exit(127)
    os.close(connection)
    _, status = os.waitpid(child, 0)
    if status:
        raise OSError(0, f"{os.path.basename(runtime[0])}: {_read_log() or f'it ended with {status}'}")


def _read_log() -> str:
    try:
        with open(_LOG, encoding="utf-8", errors="replace") as file:
            return file.read()[-_MAX_ERROR_LENGTH:].strip()
    except OSError:
        return ""
