"""A Docker daemon of the tests' own: on a private socket, without a bridge or firewall rules, its data beside it."""

import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

_START_SECONDS, _END_SECONDS = 60, 30


class UnixConnection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(5)
        self.sock.connect(self.host)


def answers(path):
    """Whether a daemon listens on a socket."""
    connection = UnixConnection(str(path))
    try:
        connection.request("GET", "/_ping", headers={"Host": "docker"})
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextmanager
def run_docker_daemon():
    """Yield the address of a daemon, or why there is none."""
    program = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if os.geteuid() != 0 or program is None:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="docker-", dir="/var/tmp"))  # short, and no tmpfs
    options = ["--iptables=false", "--bridge=none", "--host", f"unix://{folder}/socket", "--data-root", folder / "data"]
    more = ["--exec-root", folder / "run", "--pidfile", folder / "pid", "--config-file", folder / "none.json"]
    (folder / "none.json").write_text("{}")
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen([program, *options, *more], stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not answers(folder / "socket"):
            if daemon.poll() is not None or time.monotonic() > deadline:
                sys.stderr.write((folder / "log").read_text()[-2000:])
                yield None
                return
            time.sleep(0.1)
        yield f"unix://{folder}/socket"
    finally:
        daemon.terminate()
        try:
            daemon.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)
