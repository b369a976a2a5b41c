"""The worker's end of a box: whatever the other end sends, the worker only loses that box."""

import socket
from pathlib import Path

import pytest

from agent_layer.errors import SandboxError
from envs.sandbox.host_side.connection import BoxConnection


@pytest.fixture
async def ends():
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    connection = BoxConnection(ours)
    yield connection, theirs
    connection.close()
    theirs.close()


async def test_a_reply_reaches_its_request(ends):
    connection, theirs = ends
    _, first = connection.request({"job": "exec"}, [])
    _, second = connection.request({"job": "exec"}, [])

    theirs.send(b'{"id": 2, "status": 256}')
    theirs.send(b'{"id": 1, "status": 0}')

    assert ((await first).status, (await second).status) == (0, 256)


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"no json",
        b"[]",
        b'{"id": "x"}',
        b'{"status": 1e999}',
        b'{"ready": 1}',
        b'{"id": 1' + b" " * 60_000,
        b"\xff\xfe",
    ],
    ids=["empty", "text", "list", "name", "infinite", "number", "cut", "binary"],
)
async def test_what_is_no_reply_costs_the_box(ends, packet):
    connection, theirs = ends
    _, reply = connection.request({"job": "exec"}, [])

    theirs.send(packet) if packet else theirs.close()

    with pytest.raises(SandboxError, match="the box is gone"):
        await reply
    assert connection.is_lost


async def test_replies_that_no_request_waits_for_are_ignored(ends):
    connection, theirs = ends
    for packet in (b'{"id": 99, "status": 0}', b'{"pong": true}', b'{"ready": []}', b"{}"):
        theirs.send(packet)
    _, reply = connection.request({"job": "exec"}, [])
    theirs.send(b'{"id": 1, "status": 0}')

    assert (await reply).id == 1


async def test_descriptors_that_a_box_sends_are_not_received(ends):
    connection, theirs = ends
    _, reply = connection.request({"job": "exec"}, [])
    before = _count_descriptors()

    socket.send_fds(theirs, [b'{"id": 1, "status": 0}'], [0, 1, 2])

    await reply
    assert _count_descriptors() == before


async def test_a_request_after_the_end_fails_at_once(ends):
    connection, theirs = ends
    theirs.close()
    _, first = connection.request({"job": "exec"}, [])
    with pytest.raises(SandboxError):
        await first

    _, second = connection.request({"job": "exec"}, [])
    with pytest.raises(SandboxError, match="take another"):
        await second


def _count_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))
