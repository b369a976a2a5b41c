"""HTTP/1.1 answers, read from bytes as they come: the head, and where the body ends.

Nothing here waits or owns a connection. It reads what RFC 9112 lets a server send, and refuses what could be read in
two ways.
"""

import re
from typing import Protocol

import msgspec

_MAX_HEAD_BYTES = 64 << 10
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: .*)?")
_MAX_LINE_BYTES = 4096
"""Largest size of a line: a chunk's size and extensions, or a trailer."""
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")


class WireError(Exception):
    """What came is no answer in HTTP/1.1, or not all of one."""


class Head(msgspec.Struct, frozen=True, gc=False):
    """Status and header fields of an answer."""

    status: int
    fields: dict[bytes, bytes]
    """Values by lower-case name; those of a repeated field are joined with commas."""
    is_last: bool
    """The server closes the connection after this answer."""

    def field(self, name: str) -> str:
        """A header field; empty where there is none."""
        return self.fields.get(name.encode(), b"").decode("latin-1")


class Body(Protocol):
    """The bytes between a head and the next one."""

    is_done: bool
    """All of it has come."""
    rest: bytes
    """What came after it."""

    def feed(self, received: bytes) -> bytes:
        """Add bytes that came; return those that are content."""
        ...

    def close(self) -> bool:
        """The server closed the connection. Whether the body is whole nevertheless."""
        ...


class Counted:
    """A body of known length."""

    def __init__(self, num_bytes: int) -> None:
        self._missing = num_bytes
        self.is_done, self.rest = num_bytes == 0, b""

    def feed(self, received: bytes) -> bytes:
        """See Body."""
        content = received[: self._missing]
        self.rest = received[self._missing :]
        self._missing -= len(content)
        self.is_done = not self._missing
        return content

    def close(self) -> bool:
        """See Body."""
        return self.is_done


class UntilClose:
    """A body that ends with the connection."""

    def __init__(self) -> None:
        self.is_done, self.rest = False, b""

    def feed(self, received: bytes) -> bytes:
        """See Body."""
        return received

    def close(self) -> bool:
        """See Body."""
        self.is_done = True
        return True


class Chunked:
    """A body in chunks, each with its size before it; a chunk of size 0 and trailers end it."""

    def __init__(self) -> None:
        self.is_done, self.rest = False, b""
        self._missing = 0
        """Bytes of the chunk that is being read, the line break after it included."""
        self._is_trailer = False

    def feed(self, received: bytes) -> bytes:
        """See Body.

        Raises: WireError: these are no chunks.
        """
        if not (self._missing or self._is_trailer or self.rest) and (whole := _whole_chunk(received)):
            return whole
        content: list[bytes] = []
        unread, at = self.rest + received, 0
        while not self.is_done:
            if self._missing:
                piece, at = self._take(unread, at)
                content.append(piece)
                if self._missing:
                    break
            elif (end := unread.find(b"\r\n", at)) >= 0:
                self._read_line(unread[at:end])
                at = end + 2
            elif len(unread) - at > _MAX_LINE_BYTES:
                raise WireError(f"expected a chunk's size, found {unread[at : at + 40]!r}…")
            else:
                break
        self.rest = unread[at:]
        return content[0] if len(content) == 1 else b"".join(content)

    def close(self) -> bool:
        """See Body."""
        return self.is_done

    def _take(self, unread: bytes, at: int) -> tuple[bytes, int]:
        """Return the content from here to the chunk's end, or to that of what has come, and the place behind it."""
        end = at + self._missing
        if self._missing > 1 and unread[end - 2 : end] == b"\r\n":  # all of it has come
            self._missing = 0
            return unread[at : end - 2], end
        content_end, came = max(at, end - 2), min(end, len(unread))
        self._missing = end - came
        ending = unread[content_end:end]
        if not self._missing and not b"\r\n".endswith(ending):
            raise WireError(f"expected a chunk to end where its size says, found {ending!r}")
        return unread[at:content_end], came

    def _read_line(self, line: bytes) -> None:
        if self._is_trailer:
            self.is_done = not line
        elif size := _CHUNK_SIZE.fullmatch(line):
            num_bytes = int(size[1], 16)
            self._is_trailer = not num_bytes
            self._missing = num_bytes + 2 if num_bytes else 0
        else:
            raise WireError(f"expected a chunk's size, found {line[:40]!r}")


def _whole_chunk(received: bytes) -> bytes:
    """The content, where exactly one chunk came: so each token of a stream does. Else nothing."""
    begin, end = received.find(b"\r\n") + 2, len(received) - 2
    if begin < 3 or not received.endswith(b"\r\n") or received[: begin - 2] != b"%x" % (end - begin):
        return b""
    return received[begin:end]


def read_head(received: bytes) -> tuple[Head | None, bytes]:
    """Read a head; interim answers (1xx) are passed over.

    Returns: (the head, what came after it), or (None, what is still to be read) while it is not complete.
    Raises: WireError: this is no HTTP/1 answer, or its head is too long.
    """
    while (end := received.find(b"\r\n\r\n")) >= 0:
        head, received = _parse_head(received[:end]), received[end + 4 :]
        if head.status == 101:
            raise WireError("expected HTTP, found a switch of protocols")
        if head.status >= 200:
            return head, received
    if len(received) > _MAX_HEAD_BYTES:
        raise WireError(f"expected a head of at most {_MAX_HEAD_BYTES} bytes, found more")
    return None, received


def choose_framing(head: Head) -> Body:
    """How long the answer is (RFC 9112 §6.3, for a POST).

    Raises: WireError: its length is ambiguous, or its content is encoded, though the request forbids that.
    """
    if head.fields.get(b"content-encoding", b"identity") != b"identity":
        raise WireError(f"expected plain content, found it {head.field('content-encoding')}-encoded")
    if head.status in (204, 304):
        return Counted(0)
    if coding := head.fields.get(b"transfer-encoding"):
        if coding.lower() != b"chunked":
            raise WireError(f"expected it in chunks, found transfer encoding {coding!r}")
        return Chunked()
    if (length := head.fields.get(b"content-length")) is None:
        return UntilClose()
    lengths = {one.strip() for one in length.split(b",")}
    if len(lengths) != 1 or not (only := lengths.pop()).isdigit():
        raise WireError(f"expected one content length, found {length!r}")
    return Counted(int(only))


def _parse_head(text: bytes) -> Head:
    first, *lines = text.split(b"\r\n")
    if (status := _STATUS_LINE.fullmatch(first)) is None:
        raise WireError(f"expected an HTTP/1 status line, found {first[:40]!r}")
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip()
        fields[name] = b"%b, %b" % (fields[name], value) if name in fields else value
    connection = fields.get(b"connection", b"").lower()
    is_last = b"close" in connection or (status[1] == b"0" and b"keep-alive" not in connection)
    return Head(int(status[2]), fields, is_last)
