"""Addresses of this machine: free ports, reachable hosts, listeners."""

import socket
from http.client import HTTPException
from urllib.parse import urlsplit
from urllib.request import urlopen

_ANSWER_SECONDS = 1.0
"""Longest wait for an answer; callers poll."""


def free_port() -> int:
    """Return a free port of the loopback address, reserved for as long as this process runs.

    A bound socket that does not listen keeps the kernel from giving the port to anyone who asks for any, also for a
    connection. Servers that reuse addresses, as those of Python, Go, Node and Redis do, may listen there.
    """
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # after it is bound: else another one could share it
    port = int(probe.getsockname()[1])
    probe.detach()  # open until the process ends
    return port


def is_free(port: int) -> bool:
    """Whether no program listens on this port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended do not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def reachable_host(host: str) -> str:
    """Return the host, as URLs write it, under which a listener is reachable from its own machine."""
    if host in ("0.0.0.0", ""):
        return "127.0.0.1"
    return f"[{'::1' if host == '::' else host}]" if ":" in host else host


def is_listening(url: str) -> bool:
    """Whether a server accepts connections at this address."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port or 0), timeout=_ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def is_responding(url: str) -> bool:
    """Whether a GET of this address succeeds."""
    try:
        with urlopen(url, timeout=_ANSWER_SECONDS):
            return True
    except (OSError, HTTPException):  # OSError: also what HTTP calls an error
        return False
