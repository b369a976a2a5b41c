"""Packets between worker, zygote and boxes: JSON over a SEQPACKET socket, with descriptors.

A request that is too large for a packet travels as a file in memory whose descriptor comes first.
"""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

MAX_PACKET_LENGTH = 1 << 16
_MAX_INLINE_LENGTH = 4096
"""Larger ones travel as files, so that a busy receiver can have dozens of requests waiting in its socket."""
_MAX_DESCRIPTORS = 8
_IN_A_FILE = b"@"


class Packet(NamedTuple):
    """A received packet. The receiver closes its descriptors."""

    fields: dict[str, object]
    descriptors: list[int]


def send_packet(
    end: socket.socket,
    fields: Mapping[str, object],
    descriptors: Sequence[int] = (),
    max_inline: int = _MAX_INLINE_LENGTH,
) -> None:
    """Send a packet; the sender keeps its own descriptors.

    Args:
        end: of a connection that keeps packets apart.
        fields: become JSON.
        descriptors: of open files; the receiver gets its own.
        max_inline: bytes beyond which it travels as a file, which a server that is locked down cannot make; at most
            ``MAX_PACKET_LENGTH``.

    Raises: OSError: the other end is closed, or has not read for a long time.
    """
    body = json.dumps(fields).encode()
    if len(body) <= max_inline:
        socket.send_fds(end, [body], list(descriptors))
        return
    file = os.memfd_create("packet", os.MFD_CLOEXEC)
    try:
        with open(file, "wb", closefd=False) as content:
            content.write(body)
        os.lseek(file, 0, os.SEEK_SET)
        socket.send_fds(end, [_IN_A_FILE], [file, *descriptors])
    finally:
        os.close(file)


def receive_packet(end: socket.socket) -> Packet | None:
    """Return the next packet; None: the other end is closed.

    Raises: ValueError: it is no packet of ours.
    """
    body, descriptors, _, _ = socket.recv_fds(end, MAX_PACKET_LENGTH, _MAX_DESCRIPTORS)
    if not body:
        return None
    if body == _IN_A_FILE:
        with open(descriptors.pop(0), "rb") as content:
            body = content.read()
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise ValueError(f"expected a JSON object, found {type(fields).__name__}")  # noqa: TRY004  # like broken JSON
    return Packet(cast("dict[str, object]", fields), descriptors)


def describe_error(error: Exception) -> str:
    """Return what failed and why, without the number of the error."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
