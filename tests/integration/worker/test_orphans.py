"""A host process whose worker is gone ends without a word: there is nothing for a reader of the log to do."""

import socket
import subprocess
import sys

import msgspec
import pytest

from envs.channel import send_blocking
from envs.hosts.protocol import Begin

from ...waiting import communicate

BEGIN = Begin(target="os:getcwd", path=[], settings={})


@pytest.mark.parametrize("kind", ["agents", "scorers", "fork-server"])
@pytest.mark.parametrize("when", ["before it began", "while it loads"])
def test_it_ends_without_a_traceback(kind, when, tmp_path):
    form = socket.SOCK_SEQPACKET if kind == "fork-server" else socket.SOCK_STREAM
    ours, theirs = socket.socketpair(socket.AF_UNIX, form)
    host = subprocess.Popen(
        [sys.executable, "-m", "envs.hosts", kind, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    theirs.close()
    begin = msgspec.structs.replace(BEGIN, path=sys.path, settings={"dir": str(tmp_path)})
    if when == "while it loads" and kind == "fork-server":
        ours.send(msgspec.msgpack.encode(begin))
    elif when == "while it loads":
        send_blocking(ours, begin)
    ours.close()

    output = communicate(host)[1]

    assert "Traceback" not in output, output
    assert host.returncode == 0
