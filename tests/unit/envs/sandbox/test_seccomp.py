"""The filter of system calls: what boxes load is what the generator writes, and it decides as it should."""

import errno
import struct
from importlib import resources

import pytest

from envs.sandbox.guest.filters.assembler import assemble_filter

ALLOW, KILL = 0x7FFF0000, 0x80000000
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {
    "x86_64": {
        "read": 0,
        "clone": 56,
        "socket": 41,
        "ioctl": 16,
        "mknodat": 259,
        "ptrace": 101,
        "mount": 165,
        "setsockopt": 54,
        "setpriority": 141,
        "ioprio_set": 251,
        "sched_setscheduler": 144,
        "sched_setaffinity": 203,
        "fcntl": 72,
        "prctl": 157,
    },
    "aarch64": {
        "read": 63,
        "clone": 220,
        "socket": 198,
        "ioctl": 29,
        "mknodat": 33,
        "ptrace": 117,
        "mount": 40,
        "setsockopt": 208,
        "setpriority": 140,
        "ioprio_set": 30,
        "sched_setscheduler": 119,
        "sched_setaffinity": 122,
        "fcntl": 25,
        "prctl": 167,
    },
}


def run_filter(program, call, *arguments, machine):
    """Interpret a filter for one system call, as the kernel would."""
    filled = [*arguments, *[0] * (6 - len(arguments))]
    seen = struct.pack("=iIQ6Q", struct.unpack("=i", struct.pack("=I", call))[0], machine, 0, *filled)
    instructions = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = accumulator = 0
    while True:
        code, if_true, if_false, value = instructions[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", seen, value)
            case 0x54:
                accumulator &= value
            case 0x06:
                return value
            case _:
                holds = {
                    0x15: accumulator == value,
                    0x25: accumulator > value,
                    0x35: accumulator >= value,
                    0x45: bool(accumulator & value),
                }[code]
                at += if_true if holds else if_false


@pytest.mark.parametrize("machine", MACHINES)
def test_what_boxes_load_is_what_the_generator_writes(machine):
    shipped = resources.files("envs.sandbox.guest").joinpath(f"filters/{machine}.bpf").read_bytes()

    assert shipped == assemble_filter(machine), "run: python -m envs.sandbox.guest.filters.assembler"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "refused_as"),
    [
        ("read", (0, 0, 1), None),
        ("ptrace", (16, 1), errno.EPERM),
        ("mount", (), errno.EPERM),
        ("clone", (17,), None),
        ("clone", (0x3D0F00,), None),  # a thread
        ("clone", (0x10000000 | 17,), errno.EPERM),
        ("clone", (0x40000000,), errno.EPERM),
        ("clone", (0x80 | 17,), errno.EPERM),
        ("ioctl", (0, 0x5401), None),
        ("ioctl", (0, 0x5412), errno.EPERM),
        ("ioctl", (0, 0x1_0000_5412), errno.EPERM),  # the kernel looks at the lower half
        ("ioctl", (0, 0x541C), errno.EPERM),
        ("socket", (1, 1, 0), None),
        ("socket", (2, 1 | 0x80800, 6), None),
        ("socket", (2, 2, 0), None),
        ("socket", (10, 1, 262), errno.EAFNOSUPPORT),  # MPTCP
        ("socket", (2, 3, 1), errno.EAFNOSUPPORT),  # raw
        *(("socket", (family, 1, 0), errno.EAFNOSUPPORT) for family in (16, 17, 38, 40)),
        ("setsockopt", (3, 1, 2), None),
        ("setsockopt", (3, 6, 7), None),  # another level
        *(("setsockopt", (3, 1, buffer), 0) for buffer in (7, 8)),  # nothing happens, and no error is reported
        ("setpriority", (0, 0, 19), None),  # itself
        ("ioprio_set", (1, 0, 0x6000), None),
        ("sched_setscheduler", (0, 5), None),
        ("setpriority", (0, 1, 19), errno.EPERM),
        ("setpriority", (2, 0, 19), errno.EPERM),  # all processes of its user
        ("ioprio_set", (1, 1, 0x6000), errno.EPERM),
        ("ioprio_set", (3, 0, 0x6000), errno.EPERM),
        ("sched_setscheduler", (1, 5), errno.EPERM),
        *(("sched_setaffinity", (thread, 8), None) for thread in (0, 7)),
        ("sched_setaffinity", (1, 8), errno.EPERM),
        *(("fcntl", (3, command), None) for command in (2, 6, 1024, 1031)),
        ("fcntl", (3, 1026, 1), errno.EINVAL),
        ("prctl", (4, 1), None),
        ("prctl", (4, 0), 0),  # without an error, it stays dumpable
        ("prctl", (38, 0), None),
        ("mknodat", (-100 & (1 << 64) - 1, 0, 0o010644), None),
        ("mknodat", (0, 0, 0o020644, 0), errno.EPERM),
        ("mknodat", (0, 0, 0o060644, 0), errno.EPERM),
    ],
)
def test_a_call_is_allowed_or_refused_by_its_number_and_arguments(machine, name, arguments, refused_as):
    expected = ALLOW if refused_as is None else 0x50000 | refused_as

    found = run_filter(assemble_filter(machine), NUMBERS[machine][name], *arguments, machine=MACHINES[machine])

    assert found == expected


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_that_this_project_does_not_know_are_not_implemented(machine):
    program = assemble_filter(machine)

    for call in (457, 500, 0x3FFFFFFF):
        assert run_filter(program, call, machine=MACHINES[machine]) == 0x50000 | errno.ENOSYS


@pytest.mark.parametrize(("machine", "call"), [(0x40000003, 1), (0xC000003E, 0x40000000), (0xC000003E, 0xFFFFFFFF)])
def test_other_binary_interfaces_end_the_process(machine, call):
    assert run_filter(assemble_filter("x86_64"), call, machine=machine) == KILL
