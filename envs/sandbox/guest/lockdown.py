"""Lockdown: what a process of a box gives up, in an order in which each step is still allowed.

A server locks itself down as far as it can still start children; each child then gives up the rest. The box as a whole
is limited from outside, by ``host_side/cgroups.py``.
"""

import errno
import os
import pkgutil
import resource
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from envs.sandbox.guest import kernel

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY, _TRUNCATE, _DEVICE_CONTROL = 1, 2, 4, 8, 1 << 14, 1 << 15
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Rights over files that landlock knows, by the version that added them."""
_SCOPES_SINCE, _ALL_SCOPES = 6, 3
_READ = _EXECUTE | _READ_FILE | _READ_DIRECTORY
_NO_DUMP = 1
"""No dump is as small. A host that pipes dumps into a program would start that in spite of 0, but not of 1."""
_MAX_PENDING_SIGNALS = 128
"""Timers included. The kernel also counts them for the user who started the boxes, who may have some 96,000."""

_SIGNALLING = {"x86_64": (62, 129, 200, 234, 297, 434), "aarch64": (129, 138, 130, 131, 240, 434)}
"""Numbers of kill, rt_sigqueueinfo, tkill, tgkill, rt_tgsigqueueinfo and pidfd_open."""
_LOAD, _JUMP_EQUAL, _RETURN, _ALLOW, _NOT_PERMITTED = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000 | errno.EPERM

FILTER = pkgutil.get_data("envs.sandbox.guest", f"filters/{kernel.MACHINE}.bpf") or b""
"""Read while the archive can be; empty, and refused by the kernel, on a machine that this project has none for."""


class Limits(NamedTuple):
    """Limits of each process of a box."""

    processes: int
    open_files: int
    file_bytes: int
    memory_bytes: int | None
    """Private writable memory; None: a cgroup limits memory."""


_STARTING_CHILDREN = (kernel.CAP_KILL, kernel.CAP_SETUID, kernel.CAP_SETGID)
_COUNTING_CHILDREN = (kernel.CAP_SYS_PTRACE,)
"""To see what children of the same user hold that are not dumpable. They have none, and so may neither look into the
server nor change how it is scheduled."""


def seal_server(writable: list[str]) -> list[str]:
    """Lock this process and all its future children down, except what starting children takes.

    Args:
        writable: directories that stay writable.

    Returns: what this kernel has no means for.
    """
    missing: list[str] = []
    kernel.drop_bounding_set()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")
    if not _restrict_by_landlock(writable):
        missing.append("landlock")
    kernel.keep_capabilities(_COUNTING_CHILDREN if os.getuid() else _STARTING_CHILDREN)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0, "not dumpable")
    kernel.install_filter(FILTER)
    return missing


def _restrict_by_landlock(writable: list[str]) -> bool:
    version = kernel.landlock_version()
    if not version:
        return False
    rights = _RIGHTS[max(known for known in _RIGHTS if known <= version)]
    rules = {
        "/": _READ,
        "/dev": _READ | _WRITE_FILE | _TRUNCATE | _DEVICE_CONTROL,
        "/proc": _READ,
    }  # not their own oom_score_adj
    rules |= dict.fromkeys(writable, rights)
    kernel.restrict_files(rights, _ALL_SCOPES if version >= _SCOPES_SINCE else 0, rules)
    return True


def protect_from_signals(pids: Sequence[int]) -> None:
    """Let this process and its children signal neither these processes, nor their groups, nor everything at once.

    A machine that offers no filters has no such protection.
    """
    refused = [one & 0xFFFFFFFF for pid in pids for one in (pid, -pid)] + [0xFFFFFFFF]
    calls = _SIGNALLING.get(kernel.MACHINE, ())
    program = [(_LOAD, 0, 0, 0)]
    program += [(_JUMP_EQUAL, len(calls) - at, 0, call) for at, call in enumerate(calls)]
    program += [(_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 16)]  # the first argument
    program += [(_JUMP_EQUAL, len(refused) - at, 0, one) for at, one in enumerate(refused)]
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOT_PERMITTED)]
    with suppress(OSError):
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")
        kernel.install_filter(b"".join(struct.pack("=HBBI", *one) for one in program))


def set_limits(limits: Limits) -> None:
    """Limit this process and its children."""
    values = {
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NPROC: limits.processes,
        resource.RLIMIT_CORE: _NO_DUMP,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_SIGPENDING: _MAX_PENDING_SIGNALS,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_STACK: 8 << 20,
    }
    if limits.memory_bytes is not None:
        values[resource.RLIMIT_DATA] = limits.memory_bytes
    for number, value in values.items():
        lowest = min(value, *(one for one in resource.getrlimit(number) if one != resource.RLIM_INFINITY), value)
        resource.setrlimit(number, (lowest, lowest))


def limit_cpu(seconds: int) -> None:
    """Limit the CPU time of this process, and of each of its children: SIGXCPU, and SIGKILL a second later."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def give_up_rights(user: int) -> None:
    """Become the box's user, without any capability; irrevocable."""
    if os.getuid() != user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kernel.keep_capabilities(())
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1, "dumpable")  # its own /proc/self, and nothing above it
