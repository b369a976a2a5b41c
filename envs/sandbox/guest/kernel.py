"""System calls that Python has no function for, through ctypes. Each raises ``OSError`` and names what failed."""

import ctypes
import os
import platform
import signal
import socket
from typing import Final

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER = 0x20000, 0x4000000, 0x8000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP = 0x20000000, 0x40000000, 0x2000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 4096, 8192, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 4, 24, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SYS_PTRACE = 5, 6, 7, 19
_LAST_CAPABILITY: Final = 63
_CLONE_PIDFD: Final = 0x1000
_MNT_DETACH: Final = 2
_SIOCSIFFLAGS, _IFF_UP_AND_RUNNING = 0x8914, 0x41
_CAPABILITY_VERSION: Final = 0x20080522

MACHINE: Final = platform.machine()
_NUMBERS: Final = {
    "x86_64": {"pivot_root": 155, "clone": 56, "seccomp": 317, "capget": 125, "capset": 126},
    "aarch64": {"pivot_root": 41, "clone": 220, "seccomp": 277, "capget": 90, "capset": 91},
}
"""Numbers of system calls that C libraries have no function for; later ones are the same on every machine."""
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_EMPTY_PATH, _AT_RECURSIVE, _CLONE_TREE, _CLOSE_ON_EXEC = 0x1000, 0x8000, 1, os.O_CLOEXEC
_MOVE_FROM_EMPTY_PATH: Final = 4
_ATTRIBUTE_MAPPED_USERS: Final = 0x100000
_HERE: Final = -100
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_libc = ctypes.CDLL(None, use_errno=True)
_libc_with_gil = ctypes.PyDLL(None, use_errno=True)
"""Keeps the interpreter's lock during a call."""


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(what: str, number: int, *arguments: object) -> int:
    return _checked(_libc.syscall(ctypes.c_long(number), *arguments), what)


def _number(name: str) -> int:
    if MACHINE not in _NUMBERS:
        raise OSError(0, f"{name}: its number on {MACHINE} is not known; x86_64 and aarch64 are")
    return _NUMBERS[MACHINE][name]


def prctl(option: int, value: int, what: str) -> None:
    """Set an attribute of this process."""
    unused = ctypes.c_ulong(0)
    _checked(_libc.prctl(option, ctypes.c_ulong(value), unused, unused, unused), what)


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _checked(_libc.unshare(flags), "unshare")


def enter_user_namespace(user: int, proc: str = "/proc") -> None:
    """Move this process into a user namespace of its own, whose only user is this process's; needs no privileges.

    The user that makes a user namespace has every capability over what belongs to it, without holding any. So a process
    that must have none over the other namespaces of a box is in a user namespace that is no parent of theirs.

    Args:
        user: its number inside.
        proc: where the kernel's view of processes can be written.
    """
    users = f"{user} {os.geteuid()} 1", f"{user} {os.getegid()} 1"
    unshare(CLONE_NEWUSER)
    for name, text in zip(("setgroups", "uid_map", "gid_map"), ("deny", *users), strict=True):
        with open(f"{proc}/self/{name}", "w", encoding="utf-8") as file:  # others are imported, from an image here
            file.write(text)


def clone(flags: int) -> tuple[int, int]:
    """Fork into new namespaces; this process may have one thread only.

    Returns: process id and a descriptor of it; zeros in the child.
    """
    number, pidfd = _number("clone"), ctypes.c_int(-1)
    null = ctypes.c_void_p(None)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = _libc_with_gil.syscall(
        ctypes.c_long(number),
        ctypes.c_ulong(flags | _CLONE_PIDFD | signal.SIGCHLD),
        null,
        ctypes.byref(pidfd),
        null,
        null,
    )
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0, 0
    error = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    ctypes.set_errno(error)
    _checked(pid, "clone")
    return pid, pidfd.value


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Mount, bind, move or remount."""
    arguments = (None if one is None else os.fsencode(one) for one in (source, target, kind))
    data = None if options is None else options.encode()
    _checked(_libc.mount(*arguments, ctypes.c_ulong(flags), data), f"mount {target}")


def bind(source: str, target: str) -> None:
    """Make a file or a tree appear in another place."""
    mount(source, target, None, MS_BIND | MS_REC)


def make_read_only(target: str) -> None:
    """Make a mount and all mounts below read-only, without programs that change their user, and without devices."""
    attributes = (ctypes.c_uint64 * 4)(MS_RDONLY | MS_NOSUID | MS_NODEV, 0, 0, 0)  # set, clear, propagation, user space
    path, recursive = ctypes.c_char_p(os.fsencode(target)), ctypes.c_uint(_AT_RECURSIVE)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _syscall(f"mount_setattr {target}", _MOUNT_SETATTR, ctypes.c_int(_HERE), path, recursive, attributes, size)


def clone_tree(path: str) -> int:
    """Return a descriptor of a mount that is nowhere yet, of a directory without what is mounted below."""
    flags = ctypes.c_uint(_CLONE_TREE | _CLOSE_ON_EXEC)
    return _syscall(f"open_tree {path}", _OPEN_TREE, ctypes.c_int(_HERE), ctypes.c_char_p(os.fsencode(path)), flags)


def map_users(tree: int, namespace: int) -> None:
    """Have the files of a cloned tree appear with the users that a user namespace maps theirs to; make it read-only.

    Needs root outside any user namespace.

    Args:
        tree: descriptor from ``clone_tree``.
        namespace: descriptor of a user namespace.
    """
    flags = MS_RDONLY | MS_NOSUID | MS_NODEV | _ATTRIBUTE_MAPPED_USERS
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, namespace)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    path, at = ctypes.c_char_p(b""), ctypes.c_uint(_AT_EMPTY_PATH)
    _syscall("map users of the image", _MOUNT_SETATTR, ctypes.c_int(tree), path, at, attributes, size)


def attach_tree(tree: int, target: str) -> None:
    """Mount a cloned tree."""
    here, flags = ctypes.c_int(_HERE), ctypes.c_uint(_MOVE_FROM_EMPTY_PATH)
    names = ctypes.c_char_p(b""), ctypes.c_char_p(os.fsencode(target))
    _syscall(f"mount {target}", _MOVE_MOUNT, ctypes.c_int(tree), names[0], here, names[1], flags)


def enter_namespaces(pidfd: int, flags: int) -> None:
    """Move this process into namespaces of another one."""
    _checked(_libc.setns(ctypes.c_int(pidfd), ctypes.c_int(flags)), "setns")


def unmount(target: str) -> None:
    """Detach a mount and all mounts below."""
    _checked(_libc.umount2(os.fsencode(target), _MNT_DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """Exchange the root directory."""
    new_path, old_path = ctypes.c_char_p(os.fsencode(new)), ctypes.c_char_p(os.fsencode(old))
    _syscall("pivot_root", _number("pivot_root"), new_path, old_path)


def set_host_name(name: str) -> None:
    """Set the host name of this namespace."""
    _checked(_libc.sethostname(name.encode(), ctypes.c_size_t(len(name))), "sethostname")


def raise_loopback() -> None:
    """Bring up ``lo`` in this network namespace."""
    request = ctypes.create_string_buffer(b"lo".ljust(16, b"\0") + _IFF_UP_AND_RUNNING.to_bytes(2, "little"), 40)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        _checked(_libc.ioctl(any_socket.fileno(), ctypes.c_ulong(_SIOCSIFFLAGS), request), "ifconfig lo up")


def keep_capabilities(kept: tuple[int, ...]) -> None:
    """Drop all capabilities of this process but those of these that it has; programs that it executes can gain none."""
    header, data = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    _syscall("capget", _number("capget"), header, data)
    mask = sum(1 << one for one in kept) & data[1]
    data = (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)  # effective, permitted, inheritable; then the higher bits
    _syscall("capset", _number("capset"), header, data)


def drop_bounding_set() -> None:
    """Drop the capabilities that executed programs could gain; needs CAP_SETPCAP."""
    unused = ctypes.c_ulong(0)
    for number in range(_LAST_CAPABILITY + 1):
        if _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(number), unused, unused, unused) < 0:
            break  # this kernel has no capability of this number
    _libc.prctl(PR_CAP_AMBIENT, ctypes.c_ulong(PR_CAP_AMBIENT_CLEAR_ALL), unused, unused, unused)


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def install_filter(program: bytes) -> None:
    """Install a seccomp filter for this process and its children; needs ``no_new_privs``."""
    instructions = ctypes.create_string_buffer(program, len(program))
    described = _FilterProgram(len(program) // 8, ctypes.addressof(instructions))
    _syscall("seccomp", _number("seccomp"), ctypes.c_uint(1), ctypes.c_uint(0), ctypes.byref(described))


def landlock_version() -> int:
    """Return the kernel's version of landlock; 0: it has none, or it is off."""
    return max(0, _libc.syscall(ctypes.c_long(_LANDLOCK_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint(1)))


def restrict_files(handled: int, scoped: int, rules: dict[str, int]) -> None:
    """Restrict this process and its children by landlock; needs ``no_new_privs``.

    Args:
        handled: rights that are refused unless a rule grants them, as a bit mask.
        scoped: bits of what may not reach processes outside: 1 abstract sockets, 2 signals.
        rules: rights by directory.
    """
    attributes = (ctypes.c_uint64 * 3)(handled, 0, scoped)
    size = 24 if scoped else 8
    ruleset = _syscall("landlock", _LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint(0))
    try:
        for path, rights in rules.items():
            directory = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = (ctypes.c_char * 12).from_buffer_copy(
                    (rights & handled).to_bytes(8, "little") + directory.to_bytes(4, "little")
                )
                _syscall(
                    f"landlock {path}", _LANDLOCK_ADD, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint(0)
                )
            finally:
                os.close(directory)
        _syscall("landlock", _LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint(0))
    finally:
        os.close(ruleset)
