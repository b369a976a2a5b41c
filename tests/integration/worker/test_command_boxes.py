"""Commands in boxes: the rollout's gateway answers there, and nothing else does."""

import base64
import io
import json
import shutil
import tarfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from agent_layer.schema.task import Limits
from envs.commands.options import CommandFlags
from envs.commands.target import CommandTarget

from ...boxes import require_kind
from ...waiting import until
from .conftest import make_task, open_harness

pytestmark = pytest.mark.asyncio(loop_scope="module")
KINDS = ["session", "oci"]

TRIES = """
import json, os, socket, urllib.error, urllib.request

def request(url, body, headers):
    return urllib.request.Request(url + "/chat/completions", body, headers)

def post(url, key):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    try:
        return urllib.request.urlopen(request(url, body, headers), timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code

def connects(host, port):
    try:
        socket.create_connection((host, port), 2).close()
        return "reached"
    except OSError as error:
        return type(error).__name__

base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
other = json.loads(os.environ["AGENT_LAYER_TASK"])["input"]
found = {"own": post(base, key), "open": {}, "unix": None}
found["foreign"] = post(base.replace(os.environ["AGENT_LAYER_ROLLOUT"], "other.0"), key)
for name, (host, port) in {**other["ports"], "metadata": ("169.254.169.254", 80), "dns": ("8.8.8.8", 53)}.items():
    found["open"][name] = connects(host, port)
try:
    found["name"] = socket.gethostbyname("example.org")
except OSError:
    found["name"] = None
try:
    socket.socket(socket.AF_UNIX).connect(other["redis"])
    found["unix"] = "reached"
except OSError as error:
    found["unix"] = type(error).__name__
found["variables"] = sorted(name for name in os.environ if name.startswith(("AWS_", "AGENT_LAYER_")))
found["mine"] = [os.getcwd(), os.environ["HOME"], os.listdir("."), os.listdir(os.environ["HOME"])]
open("left.txt", "w").write("left")
print(json.dumps(found))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(module_settings):
    async with open_harness(module_settings) as harness:
        yield harness


def choose(box, **options):
    """Return what a command line with these options asks for."""
    return CommandFlags(box=box, box_memory=512, **options).read(is_harness=False)


async def play(harness, command, options, *tasks):
    """Run commands in boxes, side by side; return their trajectories in the order of the tasks."""
    ran = {"sandbox": options.box, "artifacts": options.artifacts}
    async with harness.worker(CommandTarget(command, options), **ran):
        await harness.wait(await harness.submit(*tasks))
    names = [task.id for task in tasks]

    def find_rows():
        rows = [row for row in harness.store.query(limit=1000).items if row.task_id in names and row.ended_at]
        return rows if len(rows) >= len(tasks) else None

    rows = await until(find_rows)
    return [harness.store.get(next(row.trajectory_id for row in rows if row.task_id == name)) for name in names]


def read_artifacts(harness, trajectory):
    """Return the texts of the stored artifacts, by name."""
    packed = base64.b64decode(json.loads(harness.store.contents(trajectory)[trajectory.outcome.artifacts]))
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {one.name: archive.extractfile(one).read().decode() for one in archive if one.isreg()}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_command_in_a_box_reaches_its_own_gateway_and_nothing_else(harness, kind, monkeypatch):
    require_kind(kind)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    ports = {name: urlsplit(url).netloc.rpartition(":") for name, url in list_servers(harness).items()}
    aims = {
        "ports": {name: [host, int(port)] for name, (host, _, port) in ports.items()},
        "redis": harness.settings.redis_url.removeprefix("unix://"),
    }
    options = choose(kind, artifacts=["left.txt"])

    first, second = await play(
        harness, ["python3", "-c", TRIES], options, *(make_task(f"{kind}-{at}", input=aims) for at in range(2))
    )

    for trajectory in (first, second):
        found = trajectory.outcome.result
        assert (found["own"], found["foreign"]) == (200, 401), trajectory.outcome
        assert "reached" not in found["open"].values()
        assert (found["name"], found["unix"]) == (None, "FileNotFoundError")
        assert found["variables"] == [
            "AGENT_LAYER_ATTEMPT",
            "AGENT_LAYER_ROLLOUT",
            "AGENT_LAYER_RUN",
            "AGENT_LAYER_TASK",
        ]
        assert found["mine"] == ["/attempt", "/tmp/home", [], []]
        assert read_artifacts(harness, trajectory) == {"left.txt": "left"}
        assert len(trajectory.steps) == 1
        assert trajectory.outcome.sandbox.kind == kind


def list_servers(harness):
    """What listens on the host's loopback address beside nothing that a box may reach."""
    return {"gateway": harness.settings.gateway_url, "engine": harness.engine.url}


WORKS = """
set -e
test "$(cat conf.txt)" = "from the template"
test "$(cat $HOME/.rc)" = home
test "$(cat task.txt)" = task
test ! -e "$OUTSIDE_FILE"
test "$(tool)" = mounted
! (echo x > /var/tmp/agent-layer-mount-test/bin/tool) 2>/dev/null
echo changed > conf.txt
mkdir out && echo new > out/new.txt
ln -s /etc/passwd out/link.txt
(setsid sleep 600 &) >/dev/null 2>&1
echo '"worked"'
"""


@pytest.fixture
def tools():
    """A folder that only root may enter, with a program in it; outside of what boxes have of their own."""
    top = Path("/var/tmp/agent-layer-mount-test")
    shutil.rmtree(top, ignore_errors=True)
    (top / "bin").mkdir(parents=True)
    (top / "bin/tool").write_text("#!/bin/sh\necho mounted\n")
    (top / "bin/tool").chmod(0o700)
    yield top
    shutil.rmtree(top)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_box_has_templates_mounted_programs_and_leaves_files_and_a_diff(harness, kind, tools, tmp_path):
    require_kind(kind)
    for name, file, text in (("work", "conf.txt", "from the template"), ("home", ".rc", "home")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    options = choose(
        kind,
        workdir=str(tmp_path / "work"),
        home=str(tmp_path / "home"),
        mounts=[str(tools)],
        artifacts=["out/*.txt"],
        diff="changes.patch",
    )
    task = make_task(f"works-{kind}", files={"task.txt": "task"})

    (trajectory,) = await play(harness, ["sh", "-c", WORKS], options, task)

    assert trajectory.outcome.result == "worked", trajectory.outcome.error
    left = read_artifacts(harness, trajectory)
    assert sorted(left) == ["changes.patch", "out/new.txt"]
    assert "-from the template" in left["changes.patch"]
    assert "+changed" in left["changes.patch"]
    assert "b/out/new.txt" in left["changes.patch"]
    assert "task.txt" not in left["changes.patch"]


ENDS = {
    "memory": ("python3 -c 'x = bytearray(1 << 30)'", {}, "truncated", "policy", "more than the 512 MB"),
    "killed": ("kill -9 $$", {}, "truncated", "policy", "ended it by SIGKILL"),
    "time": ("sleep 600", {"wall_seconds": 3.0}, "truncated", "policy", "wall_seconds"),
    "status": ("exit 4", {}, "failed", "user", "status 4"),
    "missing": ("exec no-such-program", {}, "failed", "user", "status 127"),
}


async def test_how_a_boxed_command_ends_is_the_policys_unless_the_program_itself_failed(harness):
    require_kind("session")
    options = choose("session")
    tasks = [
        make_task(f"ends-{name}", input=script, scorer="agent", limits=Limits(**limits), group_size=1)
        for name, (script, limits, *_) in ENDS.items()
    ]
    command = [
        "sh",
        "-c",
        "eval $(echo $AGENT_LAYER_TASK | python3 -c 'import json; print(json.load(open(0))[\"input\"])')",
    ]

    ran = await play(harness, command, options, *tasks)

    for trajectory, (_, _, status, cause, error) in zip(ran, ENDS.values(), strict=True):
        outcome = trajectory.outcome
        assert (outcome.status, outcome.cause) == (status, cause), outcome
        assert error in outcome.error
        assert trajectory.reward == (0.0 if cause == "policy" else None)


STREAMS = """
import json, os, threading, urllib.request
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
os.system("pkill -9 -f 47113; sleep 0.5")
def ask(number):
    messages = [{"role": "user", "content": f"{number} " + "x" * 200_000}]
    body = json.dumps({"model": "m", "messages": messages, "stream": number % 2 == 1}).encode()
    request = urllib.request.Request(base + "/chat/completions", body, {"Authorization": "Bearer " + key})
    for _ in range(50):
        try:
            sizes.append(len(urllib.request.urlopen(request, timeout=30).read()))
            return
        except OSError as error:
            errors.append(str(error))
            threading.Event().wait(0.1)
sizes, errors = [], []
threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
[one.start() for one in threads]
[one.join() for one in threads]
print(json.dumps([len(sizes), min(sizes) > 200_000, errors[:1]]))
"""


async def test_calls_side_by_side_come_through_whole_also_after_the_way_was_cut(harness):
    require_kind("session")

    (trajectory,) = await play(harness, ["python3", "-c", STREAMS], choose("session"), make_task("streams"))

    assert trajectory.outcome.result[:2] == [16, True], trajectory.outcome
    assert len(trajectory.steps) == 16


async def test_a_box_that_lacks_the_commands_file_says_how_to_bring_it(harness, tmp_path, monkeypatch):
    require_kind("session")
    (tmp_path / "agent.py").write_text("print(1)")
    monkeypatch.chdir(tmp_path)
    command = ["python3", "agent.py"]

    (without,) = await play(harness, command, choose("session"), make_task("without"))
    (with_it,) = await play(harness, command, choose("session", workdir="."), make_task("with-it"))

    assert "agent.py is not in the sandbox" in without.outcome.error
    assert with_it.outcome.result == 1
