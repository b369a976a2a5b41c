"""First lines of every hostile snippet: what it knows of the host, and how it reports that it got out."""

import ctypes
import errno
import json
import mmap
import os
import platform
import signal
import socket
import sys
import time

FACTS = json.loads(os.environ.pop("FACTS"))
"""Where the host's canary, victim, sockets and neighbours are. A real attacker would have to guess."""
MACHINE = platform.machine()
LIBC = ctypes.CDLL(None, use_errno=True)
_NUMBERS = {
    # name: (x86_64, aarch64)
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "capset": (126, 91),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_setup": (206, 0),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, -1),
    "iopl": (172, -1),
    "kcmp": (312, 272),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "linkat": (265, 37),
    "mknodat": (259, 33),
    "modify_ldt": (154, -1),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "renameat2": (316, 276),
    "request_key": (249, 218),
    "seccomp": (317, 277),
    "semget": (64, 190),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}


def escaped(how):
    """Report that an attack worked."""
    os.write(1, f"\nESCAPED {how}\n".encode())


def syscall(name, *arguments):
    """Call the kernel; return its result, and the name of the error if that is negative."""
    number = _NUMBERS[name][MACHINE != "x86_64"]
    result = LIBC.syscall(*(ctypes.c_long(one) if isinstance(one, int) else one for one in (number, *arguments)))
    return result, errno.errorcode.get(ctypes.get_errno(), "") if result < 0 else ""


def attempt(function, *arguments):
    """Return what a function returns; None: it raised an error."""
    try:
        return function(*arguments)
    except (OSError, ValueError) as error:
        print(error)
        return None


def read_bytes(path, size=1 << 16):
    with open(path, "rb") as file:
        return file.read(size)


def processes():
    return [name for name in os.listdir("/proc") if name.isdigit()]


def is_secret(content):
    """Whether the worker's secret is in it; its halves come apart, so that this is not where it is found."""
    first, second = FACTS["secret_halves"]
    at = content.find(first.encode())
    while at >= 0:
        if content[at + len(first) :].startswith(second.encode()):
            return True
        at = content.find(first.encode(), at + 1)
    return False


def exhaust(work, num_processes, limit, what):
    """Run ``work(number, tell)`` in many processes, until what they tell adds up to the limit, or stands still."""
    totals, children = mmap.mmap(-1, 8 * num_processes), []

    def look():
        return sum(int.from_bytes(totals[8 * one : 8 * one + 8], "little") for one in range(num_processes))

    for number in range(num_processes):
        if (child := os.fork()) == 0:
            try:
                work(
                    number,
                    lambda total: totals.__setitem__(slice(8 * number, 8 * number + 8), total.to_bytes(8, "little")),
                )
            except OSError as error:
                print(number, "stopped", error, flush=True)
            finally:
                time.sleep(30)
                os._exit(0)
        children.append(child)
    total = num_still = 0
    while num_still < (15 if total else 250):
        before, total = total, look()
        if total > limit:
            escaped(f"{total} {what}")
            break
        num_still = 0 if total > before else num_still + 1
        time.sleep(0.02)
    print("held", total)
    for child in children:
        os.kill(child, signal.SIGKILL)


_ = signal, socket, sys, time  # for the snippets
os.write(1, b"begun\n")
