"""A Docker daemon of the tests' own: on a private socket, without a bridge or firewall rules, its data beside it."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from agent_layer.settings import load_settings

from ...waiting import WaitExpired, scaled, wait_for_exit, wait_until_ready
from .leftovers import DAEMON_FOLDERS, list_descendants


class UnixConnection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(scaled(30))
        self.sock.connect(self.host)


def ask(address, method, path, body=None, kind="application/json"):
    """Return status and body of a daemon's answer."""
    connection = UnixConnection(address.removeprefix("unix://"))
    try:
        connection.request(method, path, body, {"Host": "docker", "Content-Type": kind})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def list_box_processes(kind_name, pid):
    """Process ids of a worker's boxes and what is beneath them; those of a daemon's boxes are not below the worker."""
    if kind_name != "docker":
        return list_descendants(pid)
    address, found = load_settings().docker_host, set()
    for row in json.loads(ask(address, "GET", '/containers/json?filters={"label":["agent-layer.owner"]}')[1]):
        status, body = ask(address, "GET", f"/containers/{row['Id']}/json")
        if status == http.client.OK and row["Labels"]["agent-layer.owner"].split(".")[1] == str(pid):
            first = json.loads(body)["State"]["Pid"]
            found |= {first, *list_descendants(first)}
    return found


def _answers(path):
    try:
        return ask(str(path), "GET", "/_ping")[0] == http.client.OK
    except OSError:
        return False


@contextmanager
def run_docker_daemon():
    """Yield the address of a daemon; None: this user cannot start one."""
    program = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if os.geteuid() != 0 or program is None:
        yield None
        return
    place = Path(f"{DAEMON_FOLDERS}{os.getpid()}-")  # a short path, and no tmpfs
    folder = Path(tempfile.mkdtemp(prefix=place.name, dir=place.parent))
    options = ["--iptables=false", "--bridge=none", "--host", f"unix://{folder}/socket", "--data-root", folder / "data"]
    more = ["--exec-root", folder / "run", "--pidfile", folder / "pid", "--config-file", folder / "none.json"]
    (folder / "none.json").write_text("{}")
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen([program, *options, *more], stdout=log, stderr=log, start_new_session=True)
    try:
        try:
            wait_until_ready(daemon, lambda: _answers(folder / "socket"), log=folder / "log")
        except AssertionError as error:  # it ended, so this machine allows none
            sys.stderr.write(str(error))
            yield None
            return
        yield f"unix://{folder}/socket"
    finally:
        daemon.terminate()
        try:
            wait_for_exit(daemon, 30)
        except WaitExpired:
            daemon.kill()
            daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)
