"""Filter of system calls: what code in a box may ask of the kernel, as a program of the classic Berkeley filter.

``python -m envs.sandbox.guest.filters.assembler`` writes ``MACHINE.bpf``, which boxes load; a test compares them.
Refused are calls that reach or slow other processes, mounts, namespaces, kernel modules, tracing and devices, and every
call that is newer than this list. A refused call reports "not permitted", or "not implemented" where programs then try
an older way.
"""

import errno
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_NEWEST_CALL: Final = 456
"""Number of ``futex_requeue``. Later calls have the same number on every machine."""
_X32_BIT: Final = 0x40000000
"""Calls of another binary interface of x86_64, under which they would have other numbers."""

_NOT_PERMITTED: Final = {
    # name: (x86_64, aarch64); None: that machine has no such call
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "remap_file_pages": (216, 234),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
}
_NOT_IMPLEMENTED: Final = {
    "clone3": (435, 435),  # its flags are in memory, where a filter cannot look; C libraries then call clone
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    # the machine has one stock of these, for all users or for the user who started the boxes
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    # memory that belongs to no process, so that only a cgroup could count it
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "msgget": (68, 186),
    "semget": (64, 190),
    "shmget": (29, 194),
}
_CLONE, _IOCTL = (56, 220), (16, 29)
_FCNTL, _PRCTL, _SCHED_SETAFFINITY = (72, 25), (157, 167), (203, 122)
_SOCKET, _SOCKETPAIR = (41, 198), (53, 199)
_MKNOD, _MKNODAT = (133, None), (259, 33)
_BY_PROCESS: Final = {
    "prlimit": (302, 261),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
}
"""Calls whose first argument is a process, 0 for the caller."""
_BY_KIND_AND_PROCESS: Final = {"ioprio_set": ((251, 30), 1), "setpriority": ((141, 140), 0)}
"""Calls whose second argument is a process if the first has this value; for others it is a group or a user."""
_SETSOCKOPT: Final = (54, 208)
_NAMESPACES: Final = 0x7E020080
"""Bits of ``clone`` that make namespaces."""
_TERMINAL_REQUESTS: Final = (0x5412, 0x541C, 0x5423)
"""TIOCSTI and TIOCLINUX, which type into a terminal; TIOCSETD, which has the kernel load a line discipline."""
_NOTIFY: Final = 1026
"""F_NOTIFY, which tells of what others do in a folder; they would be other boxes and the host, for those of /usr."""
_SET_DUMPABLE: Final = 4
_SERVER: Final = 1
"""Process id of the box's server."""
_SOCKET_LEVEL, _BUFFER_SIZES = 1, (7, 8)
"""SO_SNDBUF and SO_RCVBUF."""
_UNIX, _INET, _INET6 = 1, 2, 10
_STREAM, _DATAGRAM = 1, 2
_DEFAULT_PROTOCOL, _TCP, _UDP = 0, 6, 17
_CHARACTER_DEVICE, _BLOCK_DEVICE, _FILE_TYPE = 0o020000, 0o060000, 0o170000

_MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of the tables above, and the number under which the kernel knows the machine."""

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_GREATER, _JUMP_GREATER_OR_EQUAL, _JUMP_ANY_BIT = 0x15, 0x25, 0x35, 0x45
_ALLOW, _REFUSE, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16


class _Instruction(NamedTuple):
    code: int
    if_true: int
    """Instructions to skip."""
    if_false: int
    value: int


def assemble_filter(machine: str) -> bytes:
    """Return the filter of a machine, 8 bytes an instruction.

    Raises: KeyError: no numbers of its system calls are known.
    """
    column, audit = _MACHINES[machine]
    program = [
        _load(_MACHINE_AT),
        *_unless(_JUMP_EQUAL, audit, [_return(_KILL_PROCESS)]),
        _load(_NUMBER_AT),
        *_when(_JUMP_GREATER_OR_EQUAL, _X32_BIT, [_return(_KILL_PROCESS)]),
        *_when(_JUMP_GREATER, _NEWEST_CALL, [_refuse(errno.ENOSYS)]),
        *_rules(column),
        _return(_ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *one) for one in program)


def _rules(column: int) -> Iterator[_Instruction]:
    """Yield what follows with the call's number loaded; each rule leaves it loaded unless it returns."""
    for names, number in ((_NOT_PERMITTED, errno.EPERM), (_NOT_IMPLEMENTED, errno.ENOSYS)):
        for call in sorted(numbers[column] or 0 for numbers in names.values() if numbers[column] is not None):
            yield from _when(_JUMP_EQUAL, call, [_refuse(number)])
    yield from _on_call(_CLONE[column], [_argument(0), *_when(_JUMP_ANY_BIT, _NAMESPACES, [_refuse(errno.EPERM)])])
    refused = [_when(_JUMP_EQUAL, request, [_refuse(errno.EPERM)]) for request in _TERMINAL_REQUESTS]
    yield from _on_call(_IOCTL[column], [_argument(1), *(one for part in refused for one in part)])
    yield from _on_call(_FCNTL[column], [_argument(1), *_when(_JUMP_EQUAL, _NOTIFY, [_refuse(errno.EINVAL)])])
    # what is not dumpable is hidden from a server without privileges, which counts what it uses
    hides = [_argument(1), *_when(_JUMP_EQUAL, 0, [_refuse(0)])]
    yield from _on_call(_PRCTL[column], [_argument(0), *_when(_JUMP_EQUAL, _SET_DUMPABLE, hides)])
    # without privileges, the server of the box has the same user as what it runs
    of_server = _when(_JUMP_EQUAL, _SERVER, [_refuse(errno.EPERM)])  # programs bind their own threads by number
    yield from _on_call(_SCHED_SETAFFINITY[column], [_argument(0), *of_server])
    of_others = _unless(_JUMP_EQUAL, 0, [_refuse(errno.EPERM)])
    for calls in _BY_PROCESS.values():
        yield from _on_call(calls[column], [_argument(0), *of_others])
    for calls, process in _BY_KIND_AND_PROCESS.values():
        of_several = _unless(_JUMP_EQUAL, process, [_refuse(errno.EPERM)])
        yield from _on_call(calls[column], [_argument(0), *of_several, _argument(1), *of_others])
    for call in (_SOCKET[column], _SOCKETPAIR[column]):
        yield from _on_call(call, _socket_rules())
    # only a cgroup counts buffers of sockets; the kernel too takes sizes that are too large without an error
    ignored = [*_unless_any(_BUFFER_SIZES, [_return(_ALLOW)]), _refuse(0)]
    of_sockets = [_argument(1), *_when(_JUMP_EQUAL, _SOCKET_LEVEL, [_argument(2), *ignored])]
    yield from _on_call(_SETSOCKOPT[column], of_sockets)
    for calls, mode in ((_MKNOD, 1), (_MKNODAT, 2)):
        if (call := calls[column]) is not None:
            devices = [_when(_JUMP_EQUAL, kind, [_refuse(errno.EPERM)]) for kind in (_CHARACTER_DEVICE, _BLOCK_DEVICE)]
            masked = [_argument(mode), _Instruction(_AND, 0, 0, _FILE_TYPE)]
            yield from _on_call(call, [*masked, *(one for part in devices for one in part)])


def _socket_rules() -> list[_Instruction]:
    """Return rules for sockets: Unix ones, and TCP and UDP, which in a box lead nowhere but to itself."""
    refuse = [_refuse(errno.EAFNOSUPPORT)]
    internet = [
        _argument(1),
        _Instruction(_AND, 0, 0, 0xF),  # without the flags for non-blocking and close-on-exec
        *_unless_any((_STREAM, _DATAGRAM), refuse),
        _argument(2),
        *_unless_any((_DEFAULT_PROTOCOL, _TCP, _UDP), refuse),
    ]
    return [
        _argument(0),
        *_when(_JUMP_EQUAL, _UNIX, [_return(_ALLOW)]),
        *_unless_any((_INET, _INET6), refuse),
        *internet,
    ]


def _on_call(number: int, rules: Sequence[_Instruction]) -> list[_Instruction]:
    """Return rules for one call, which allow what they do not refuse."""
    return _when(_JUMP_EQUAL, number, [*rules, _return(_ALLOW)])


def _when(jump: int, value: int, rules: Sequence[_Instruction]) -> list[_Instruction]:
    return [_Instruction(jump, 0, len(rules), value), *rules]


def _unless(jump: int, value: int, rules: Sequence[_Instruction]) -> list[_Instruction]:
    return [_Instruction(jump, len(rules), 0, value), *rules]


def _unless_any(values: Sequence[int], rules: Sequence[_Instruction]) -> list[_Instruction]:
    """Return rules for every other value."""
    last = len(values) - 1
    jumps = [_Instruction(_JUMP_EQUAL, last - at + len(rules), 0, value) for at, value in enumerate(values)]
    return [*jumps, *rules]


def _load(offset: int) -> _Instruction:
    return _Instruction(_LOAD, 0, 0, offset)


def _argument(index: int) -> _Instruction:
    """Load the lower half of an argument, which is all that the kernel reads of these."""
    return _load(_ARGUMENTS_AT + 8 * index)


def _return(action: int) -> _Instruction:
    return _Instruction(_RETURN, 0, 0, action)


def _refuse(number: int) -> _Instruction:
    return _return(_REFUSE | number)


def write_filters() -> None:
    """Write the filter of each machine beside this file."""
    for machine in _MACHINES:
        (Path(__file__).parent / f"{machine}.bpf").write_bytes(assemble_filter(machine))


if __name__ == "__main__":
    write_filters()
