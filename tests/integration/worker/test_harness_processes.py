"""A coding agent that another package registers, run by ``work --harness`` as its users run it."""

import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from agent_layer.infra import start_supervised
from envs.harnesses import Installation
from envs.harnesses.registry import find_harness

from ...boxes import require_kind
from ...waiting import until
from .conftest import make_task

NUM_AT_ONCE = 4
MODULE = """
from pathlib import Path
from envs.harnesses import Harness

HARNESS = Harness(
    name="writer", package="writer", version="1", installer="pypi", program="writer", dialect="chat",
    arguments=["$prompt"], lock=Path({lock!r}), answer_command="cat $home/answer.json",
    files={{"conf.json": {{"url": "$base_url", "key": "$api_key"}}}},
)
"""
PROGRAM = """#!/usr/bin/python3 -I
import json, os, socket, time, urllib.request

home, me = os.environ["HOME"], os.environ["AGENT_LAYER_ROLLOUT"]
conf = json.load(open(home + "/conf.json"))
os.remove(home + "/conf.json")
names = ("HOME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
places = {"cwd": ".", **{name: os.environ.get(name, "/tmp") for name in names}}
found, written = {}, []
for name, place in places.items():
    os.makedirs(place, exist_ok=True)
    found[name] = [one for one in os.listdir(place) if one not in ("home", "run", "baseline")]
for place in places.values():
    with open(place + "/mine", "w") as file:
        file.write(me)
listening = socket.socket()
try:
    listening.bind(("127.0.0.1", 28765))
    listening.listen()
    port = "mine"
except OSError:
    port = "taken"
answer = "wait"
while answer != "go":
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": me}]}).encode()
    headers = {"Authorization": "Bearer " + conf["key"], "Content-Type": "application/json"}
    request = urllib.request.Request(conf["url"] + "/chat/completions", body, headers)
    answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    time.sleep(0.05)
foreign = [name for name, place in places.items() if open(place + "/mine").read() != me]
try:
    open(os.path.dirname(os.path.abspath(__file__)) + "/mine", "w")
    installation = "written"
except OSError:
    installation = "read-only"
secrets = [name for name in ("GH_TOKEN", "PASSED_TOKEN") if name in os.environ]
result = {"found": found, "foreign": foreign, "port": port, "installation": installation, "secrets": secrets}
with open(home + "/answer.json", "w") as file:
    json.dump(result | {"places": sorted(set(places.values()))}, file)
"""


@pytest.fixture
def plug_in(settings, tmp_path, monkeypatch):
    """The folder of an installed package that registers the agent, which is installed where boxes can show it."""
    installed = Path(f"/var/tmp/agent-layer-harness-test-{os.getpid()}")
    shutil.rmtree(installed, ignore_errors=True)
    installed.mkdir(mode=0o700)
    package, lock = tmp_path / "package", tmp_path / "lock"
    (package / "writer-1.dist-info").mkdir(parents=True)
    (package / "writer_harness.py").write_text(MODULE.format(lock=str(lock)))
    (package / "writer-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: writer\nVersion: 1\n")
    (package / "writer-1.dist-info/entry_points.txt").write_text(
        "[agent_layer.harnesses]\nwriter = writer_harness:HARNESS\n"
    )
    lock.mkdir()
    monkeypatch.syspath_prepend(package)
    settings.dir.mkdir(parents=True, exist_ok=True)
    (settings.dir / "harnesses").symlink_to(installed)
    installation = Installation(settings, find_harness("writer"))
    installation.program.parent.mkdir(parents=True)
    installation.program.write_text(PROGRAM)
    installation.program.chmod(0o700)
    marker = {"version": "1", "lock_hash": installation._hash_lock(), "interpreter": "Python"}
    (installation.folder / "installed.json").write_bytes(msgspec.json.encode(marker))
    yield package
    shutil.rmtree(installed)


@contextmanager
def work(harness, package, *options):
    """Run a worker as a process of its own."""
    path = os.pathsep.join([str(package), str(Path(__file__).parents[3])])
    secrets = {"GH_TOKEN": "secret", "PASSED_TOKEN": "passed"}
    variables = harness.settings.environment() | {"PYTHONPATH": path} | secrets
    command = ["work", "--harness", "writer", f"--slots={NUM_AT_ONCE}", "--env=PASSED_TOKEN", *options]
    process = start_supervised([sys.executable, "-m", "agent_layer.cli", *command], variables, package / "work.log")
    try:
        yield process
    finally:
        process.stop()


@pytest.mark.long
@pytest.mark.parametrize("box", ["auto", "none"])
async def test_four_attempts_at_once_share_no_file(harness, plug_in, box):
    require_kind("session", "oci", "docker", "namespace")
    seen = set[str]()

    def hold_until_all_run(prompt):
        seen.add(prompt.text)
        return "go" if len(seen) == NUM_AT_ONCE else "wait"

    harness.engine.script = hold_until_all_run
    options = [] if box == "auto" else [f"--box={box}"]
    with work(harness, plug_in, *options) as worker:
        groups = await harness.submit(make_task("t", input="go", group_size=NUM_AT_ONCE, calls_optional=False))
        await until(lambda: len(seen) == NUM_AT_ONCE, log=lambda: worker.log_tail)
        await harness.wait(groups)
    trajectories = await harness.trajectories(NUM_AT_ONCE)

    results = [msgspec.json.decode(one.outcome.result) for one in trajectories]
    for one in results:
        places = one.pop("places")
        assert set(map(tuple, one.pop("found").values())) == {()}
        is_boxed = box == "auto"
        expected = {"port": "mine", "installation": "read-only"} if is_boxed else {"installation": "written"}
        assert one.items() >= {"foreign": [], "secrets": ["PASSED_TOKEN"], **expected}.items()
        assert ("/tmp/home" in places) == is_boxed
    for one in trajectories:
        assert (one.outcome.sandbox is not None) == (box == "auto")
        assert {step.temperature for step in one.steps} == {1.0}
