"""Root directory of boxes: the host's programs and libraries read-only, and hardly anything else.

The zygote builds it once, in a mount namespace of its own; each box adds its own ``/proc``, ``/work`` and ``/tmp``.
Homes, keys, configuration, logs and sockets of the host are not in it, because they were never put there.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from envs.sandbox.guest import kernel

WRITABLE = "/run"
"""File system of a box's own; parts of it appear in other places."""
IMAGE = "/image"
USER = 1000
SOCKET_BUFFERS = {"tcp_rmem": "4096 65536 131072", "tcp_wmem": "4096 16384 65536"}
"""Smallest, first and largest buffer in bytes; the machine may allow 32 MB, which cgroups of version 1 do not count."""
HOST_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_FOLDERS = ("dev", "dev/shm", "etc", "old", "proc", "run", "tmp", "usr")
HOST_FILES = ("etc/alternatives", "etc/ld.so.cache", "etc/localtime", "etc/ssl/certs")
"""Which programs, libraries and time zones are chosen; public on every machine."""
ROOT_FILES = {
    "etc/passwd": f"root:x:0:0:root:/:/bin/sh\nagent:x:{USER}:{USER}:agent:/work:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": f"root:x:0:\nagent:x:{USER}:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost box\n::1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/resolv.conf": "",
    "etc/hostname": "box\n",
}


def build_skeleton(top: str, hidden: Sequence[str], image: str | int | None, mounts: Mapping[str, int | None]) -> None:
    """Make the root directory of boxes, and make it this process's own.

    Args:
        top: an empty directory, on which it is mounted.
        hidden: directories below /usr that boxes must not see, such as this project's own code.
        image: root directory of boxes, or the descriptor of its mount; ``enter_session`` finds it at ``IMAGE``.
        mounts: places of further folders, with the descriptors of their mounts; None: bound from the same place.
    """
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    tree = os.open(image, os.O_PATH) if isinstance(image, str) else image  # it may be below what is covered now
    kernel.mount("tmpfs", top, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=4m,mode=755")
    os.chdir(top)
    for folder in _FOLDERS:
        os.makedirs(folder, exist_ok=True)
    for name, text in ROOT_FILES.items():
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    _bind_read_only("usr")
    _add_top_level(name for name in HOST_LINKS if os.path.lexists(f"/{name}"))
    for name in HOST_FILES:
        if os.path.exists(f"/{name}"):
            _bind_read_only(name)
    for name in _DEVICES:
        _make_like(f"/dev/{name}", f"dev/{name}")
        kernel.bind(f"/dev/{name}", f"dev/{name}")
    for name, target in {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}.items():
        os.symlink(target, f"dev/{name}")
    kernel.bind("/proc", "proc")  # the kernel lets a namespace mount its own only where it sees one; boxes cover it
    _hide(hidden)
    _add_mounts(mounts)
    if tree is not None:
        _attach_image(tree, is_tree=isinstance(image, int))
    kernel.pivot_root(".", "old")
    os.chdir("/")
    kernel.unmount("/old")
    os.rmdir("/old")


def _attach_image(image: int, *, is_tree: bool) -> None:
    """Mount the image.

    Args:
        image: descriptor of a mount that is nowhere yet, or of a directory.
        is_tree: which of both.
    """
    below = IMAGE.lstrip("/")
    os.mkdir(below)
    if is_tree:
        kernel.attach_tree(image, below)
    else:
        kernel.bind(f"/proc/self/fd/{image}", below)
        kernel.make_read_only(below)
    os.close(image)


def _add_mounts(mounts: Mapping[str, int | None]) -> None:  # kept: build_skeleton is at its limit
    for place, mounted in mounts.items():
        add_mount(place, place.lstrip("/"), mounted)


def add_mount(source: str, target: str, mounted: int | None) -> None:
    """Mount a folder read-only.

    Args:
        source: where it is.
        target: where it appears.
        mounted: descriptor of a mount of it that is nowhere yet; None: there is none.
    """
    os.makedirs(target, exist_ok=True)
    if mounted is None:
        kernel.bind(source, target)
    else:
        kernel.attach_tree(mounted, target)
        os.close(mounted)
    kernel.make_read_only(target)


def _add_top_level(names: Iterable[str]) -> None:  # kept: build_skeleton is at its limit
    """Add ``/bin`` and the like as the host has them: links into /usr, or directories."""
    for name in names:
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), name)
        else:
            _bind_read_only(name)


def _bind_read_only(name: str) -> None:
    _make_like(f"/{name}", name)
    kernel.bind(f"/{name}", name)
    kernel.make_read_only(name)


def _make_like(source: str, target: str) -> None:
    """Create an empty directory or file to mount on."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "ab"):
        pass


def _hide(paths: Sequence[str]) -> None:  # kept: build_skeleton is at its limit
    """Cover directories of the host with empty ones."""
    for path in paths:
        below = os.path.relpath(path, "/")
        if below.startswith("usr/") and os.path.isdir(below):
            flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_RDONLY
            kernel.mount("tmpfs", below, "tmpfs", flags, "size=4k,mode=555")


def enter_box(workdir: str, disk_mb: int, files: int, *, user: int) -> None:
    """Add what is a box's own, and make everything else read-only; runs in the first process of the box."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    for place, source in make_writable(workdir, disk_mb, files, user=user).items():
        kernel.bind(source, place)
    mount_proc("/proc")
    kernel.make_read_only("/proc")  # no command lowers its own oom_score_adj
    kernel.mount("none", "/", None, kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | flags)
    kernel.set_host_name("box")
    os.chdir(workdir)


def make_writable(workdir: str, disk_mb: int, files: int, *, user: int) -> dict[str, str]:
    """Mount the file system of a box's own; return the directories in it that belong to places of the box."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", WRITABLE, "tmpfs", flags, f"size={disk_mb}m,nr_inodes={files},mode=755")
    sources: dict[str, str] = {}
    for place, mode in ((workdir, 0o755), ("/tmp", 0o1777), ("/dev/shm", 0o1777)):
        sources[place] = f"{WRITABLE}/{place.strip('/').replace('/', '-') or 'top'}"
        make_owned(sources[place], mode, user)
    return sources


def limit_socket_buffers(proc: str) -> None:
    """Bound what each TCP socket of this network namespace can hold unread, as far as the machine lets it.

    Args:
        proc: where the kernel's settings can be written.
    """
    for name, sizes in SOCKET_BUFFERS.items():
        with suppress(OSError), open(f"{proc}/sys/net/ipv4/{name}", "w", encoding="utf-8") as file:
            file.write(sizes)


def make_owned(path: str, mode: int, user: int) -> None:
    """Make a directory of the box's user."""
    os.mkdir(path)
    os.chown(path, user, user)
    os.chmod(path, mode)


def make_workdir(root: str, workdir: str, user: int) -> None:
    """Make the work directory below the root, where the image has none, as directories of the box's user.

    Raises: OSError: a part of it is a link of the image, which could lead anywhere.
    """
    place = root
    for name in workdir.strip("/").split("/"):
        place = f"{place}/{name}"
        if os.path.islink(place):
            raise OSError(0, f"{workdir} is below a link of the image")
        if not os.path.isdir(place):
            make_owned(place, 0o755, user)


def mount_proc(target: str) -> None:
    """Mount a view of the box's own processes, without what is the machine's where the kernel can leave it out."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    for options in ("subset=pid,hidepid=invisible", "hidepid=2", None):
        with suppress(OSError):
            kernel.mount("proc", target, "proc", flags, options)
            return
    kernel.mount("proc", target, "proc", flags)
