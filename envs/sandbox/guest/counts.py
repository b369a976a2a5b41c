"""Counts of what the processes and sockets of a box hold, for limits that no cgroup keeps."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

_NETLINK_SOCK_DIAG, _BY_FAMILY, _REQUEST_DUMP, _ERROR, _DONE = 4, 20, 0x301, 2, 3
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_UNIX_REQUEST = struct.pack("=BBHIIIQ", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, 0x30, 0)
"""Asks for sockets of any state, their queues and their memory."""
_INET_REQUESTS = [
    struct.pack("=BBBBI48x", family, protocol, 0x40, 0, 0xFFFFFFFF)
    for family in (socket.AF_INET, socket.AF_INET6)
    for protocol in (socket.IPPROTO_TCP, socket.IPPROTO_UDP)
]
_UNIX_ATTRIBUTES_AT, _INET_ATTRIBUTES_AT = 16, 72
_QUEUE, _MEMORY = (socket.AF_UNIX, 4), ((socket.AF_UNIX, 5), (socket.AF_INET, 7), (socket.AF_INET6, 7))
"""Families and numbers of attributes."""
_MAX_ANSWER_LENGTH = 1 << 16
_ANSWER_SECONDS = 1.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FEW_DESCRIPTORS = 32
"""Number with which, half of them watching the other half, all processes of a box stay below what it may watch."""


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process, which it shares in part with the process that forked it; 0: it ended."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as sizes:
            return int(sizes.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def count_watches(pid: int, enough: int) -> int:
    """Return how many descriptors the ``epoll`` of a process watch; few are not counted.

    Args:
        pid: of the process.
        enough: number beyond which it is not counted further.
    """
    found, place = 0, f"/proc/{pid}/fd"
    try:
        if 0 < os.stat(place).st_size <= _FEW_DESCRIPTORS:  # always 0 before Linux 6.2
            return 0
        for name in os.listdir(place):
            if os.readlink(f"{place}/{name}") == "anon_inode:[eventpoll]":
                with open(f"{place}info/{name}", "rb") as watched:
                    found += watched.read().count(b"tfd:")
            if found > enough:
                break
    except OSError:  # it has ended, or closed it
        pass
    return found


class SocketMemory:
    """Memory of all sockets of a network namespace, that of this process when it is made; see sock_diag(7)."""

    def __init__(self) -> None:
        self._end: socket.socket | None = None
        with suppress(OSError):  # a kernel without it
            self._end = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
            self._end.settimeout(_ANSWER_SECONDS)

    def count_bytes(self) -> int:
        """Return what buffers hold; 0 where this kernel does not tell."""
        if self._end is None:
            return 0
        try:
            requests = _UNIX_REQUEST, *_INET_REQUESTS
            return sum(_held_bytes(one) for request in requests for one in _ask(self._end, request))
        except (OSError, struct.error):
            return 0


def _ask(end: socket.socket, request: bytes) -> Iterator[bytes]:
    """Yield the answer for each socket."""
    end.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _REQUEST_DUMP, 0, 0) + request)
    while True:
        answer = end.recv(_MAX_ANSWER_LENGTH)
        while answer:
            length, kind, *_ = _HEADER.unpack_from(answer)
            if kind in (_DONE, _ERROR):
                return
            yield answer[_HEADER.size : length]
            answer = answer[(length + 3) & ~3 :]


def _held_bytes(answer: bytes) -> int:
    """Return what one socket holds: what it has not read yet, and what it sent that is not read yet."""
    family, held = answer[0], 0
    at = _UNIX_ATTRIBUTES_AT if family == socket.AF_UNIX else _INET_ATTRIBUTES_AT
    while at + _ATTRIBUTE.size <= len(answer):
        length, kind = _ATTRIBUTE.unpack_from(answer, at)
        value = answer[at + _ATTRIBUTE.size : at + length]
        if (family, kind) == _QUEUE:  # the sender of these may have closed its end
            held += struct.unpack_from("=I", value)[0]
        elif (family, kind) in _MEMORY:
            received, _, sent, _, _, queued, _, backlog = struct.unpack_from("=8I", value)
            held += received + max(sent, queued) + backlog
        at += max(_ATTRIBUTE.size, (length + 3) & ~3)
    return held
