"""Promises of an attempt's directories: fresh, apart from all others, and gone when it has ended."""

import asyncio
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from agent_layer.errors import AgentFailedError, BadInputError, SandboxError
from agent_layer.schema.sandbox import SandboxSpec
from envs.commands.directories import OUTSIDE, hash_template, write_files
from envs.commands.plan import CommandOptions, CommandPlan

LOOKS = """
import json, os, sys, time
places = {name: value for name, value in os.environ.items() if name.startswith("XDG_")}
places |= {name: os.environ[name] for name in ("HOME", "TMPDIR", "TMP", "TEMP", "PWD")} | {"cwd": os.getcwd()}
found = {name: sorted(os.listdir(place)) for name, place in places.items() if os.path.isdir(place)}
for place in places.values():
    os.makedirs(place, exist_ok=True)
    open(os.path.join(place, "mine"), "a").write(os.environ["AGENT_LAYER_ROLLOUT"])
time.sleep(0.2)
texts = {open(os.path.join(place, "mine")).read().count(os.environ["AGENT_LAYER_ROLLOUT"]) for place in places.values()}
nodes = [[one.st_dev, one.st_ino] for folder in (os.getcwd(), os.environ["HOME"], os.environ["TMPDIR"])
         for top, _, names in os.walk(folder) for one in (os.lstat(os.path.join(top, name)) for name in names)]
print(json.dumps({"places": places, "found": found, "texts": sorted(texts), "nodes": nodes}))
"""


@pytest.fixture
def template(tmp_path):
    """A template with a file of two names, a link inside, and a folder that may be entered by its owner alone."""
    top = tmp_path / "template"
    (top / "src").mkdir(parents=True)
    (top / "src/a.py").write_text("a = 1\n")
    (top / "again.py").hardlink_to(top / "src/a.py")
    (top / "link.py").symlink_to("src/a.py")
    (top / "closed").mkdir(mode=0o700)
    return top


@pytest.mark.parametrize("has_template", [False, True])
async def test_attempts_side_by_side_share_no_file_and_begin_with_the_same(attempts, template, has_template):
    options = CommandOptions(workdir=str(template), home=str(template)) if has_template else None
    running = attempts([sys.executable, "-c", LOOKS], options)

    ran = await asyncio.gather(*(running.run(f"r{number}-0") for number in range(4)))

    places = [place for one in ran for place in set(one["places"].values())]
    assert len(places) == len(set(places))
    nodes = [{tuple(node) for node in one["nodes"]} for one in ran]
    assert len(set().union(*nodes)) == sum(map(len, nodes))
    expected = ["again.py", "closed", "link.py", "src"] if has_template else []
    for one in ran:
        assert one["places"]["cwd"] == one["places"]["PWD"]
        assert (one["found"]["cwd"], one["found"]["HOME"], one["found"]["TMPDIR"]) == (expected, expected, [])
    assert (template / "src/a.py").read_text() == "a = 1\n"
    assert not (template / "mine").exists()


async def test_a_plan_that_continues_finds_what_the_one_before_left_and_adds_its_own_files(attempts, template):
    options = CommandOptions(workdir=str(template), home=str(template), diff="changes.patch")
    running = attempts(["sh", "-c", "echo b > again.py; echo c > task.txt; rm ~/again.py; touch $TMPDIR/left"], options)
    code = "cat again.py task.txt new.txt ~/mine; ls $TMPDIR; ls ~/again.py 2>/dev/null"
    then = CommandPlan(
        argv=["sh", "-c", f"({code}) | tr '\\n' ' '"], files={"new.txt": "d "}, home_files={"mine": "e "}
    )

    result = await running.run(files={"task.txt": "t"}, then=then)
    left = await running.collect()

    assert result == "b c d e left"
    with tarfile.open(fileobj=io.BytesIO(left.archive)) as archive:
        changes = archive.extractfile("changes.patch").read().decode()
    assert "-a = 1\n" in changes
    assert "+d " in changes


@pytest.mark.parametrize("ends", ["well", "fails", "cancelled"])
async def test_nothing_is_left_however_an_attempt_ends(attempts, tmp_path, ends, until):
    code = "import os, sys, time; open('x', 'w'); os.mkdir('closed', 0); print(1, flush=True)"
    more = {"well": "", "fails": "; sys.exit(3)", "cancelled": "; time.sleep(600)"}[ends]
    running = attempts([sys.executable, "-c", code + more])
    going = asyncio.create_task(running.run())
    if ends == "cancelled":
        await until(lambda: list((tmp_path / "tmp").glob("*/r-0/work/closed")))
        await running.target.remove("r-0")  # as for a lost lease: the command has not ended yet
        assert list((tmp_path / "tmp").glob("*/r-0/work/x"))
        going.cancel()

    await asyncio.gather(going, return_exceptions=True)
    await running.collect()

    assert [one.name for one in (tmp_path / "tmp").glob("*/*")] == ["lock"]


KILLED = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[1])
import tempfile
tempfile.tempdir = sys.argv[2]
import agent_layer.infra.processes.owned_directories as owned
owned._MAX_PLACE_LENGTH = 1000
from agent_layer.schema.task import Task
from envs.commands.target import CommandTarget
from tracer.core import Rollout
rollout = Rollout(trajectory_id="r-0", rollout_id="r", attempt=0, run="run", sink=None)
asyncio.run(CommandTarget(["sh", "-c", "touch here; sleep 600"])(Task(id="t", run="run", input=1), rollout))
"""


def start(command):
    return subprocess.Popen(command)


async def test_the_next_worker_removes_what_a_killed_one_left_and_nothing_of_one_that_lives(
    attempts, tmp_path, wait_until
):
    root = Path(__file__).parents[4]
    command = [sys.executable, "-c", KILLED, str(root), str(tmp_path / "tmp")]
    killed, lives = (start(command) for _ in range(2))
    try:
        wait_until(lambda: len(list((tmp_path / "tmp").glob("*/r-0/work/here"))) == 2)
        killed.kill()
        killed.wait()

        await attempts(["true"]).run()

        left = {one.name.split("-")[3] for one in (tmp_path / "tmp").iterdir()}
        assert left == {str(lives.pid), str(os.getpid())}
    finally:
        lives.kill()
        lives.wait()
        await attempts(["true"]).run("again-0")


@pytest.mark.parametrize(
    ("path", "target"),
    [("out", "/etc"), ("src/up", "../../start"), ("far", "src/deep/../../.."), ("dangling", "../none")],
)
async def test_a_template_whose_links_lead_out_is_refused_by_name(attempts, template, path, target):
    (template / "src/deep").symlink_to(".")
    (template / path).symlink_to(target)

    with pytest.raises(BadInputError, match=f"the link {path} leads out of it"):
        attempts(["true"], CommandOptions(workdir=str(template)))


async def test_a_template_that_is_not_there_or_holds_a_pipe_is_refused(attempts, template):
    with pytest.raises(BadInputError, match="no such directory"):
        attempts(["true"], CommandOptions(workdir="missing"))
    os.mkfifo(template / "pipe")
    with pytest.raises(BadInputError, match="pipe is no file"):
        attempts(["true"], CommandOptions(workdir=str(template)))


@pytest.mark.parametrize("path", ["../out", "/etc/agent-layer-test", "src/../../out", "in/../..", ".", "link/out"])
async def test_no_file_of_a_task_or_plan_leaves_the_attempts_directory(attempts, tmp_path, path):
    running = attempts(["ln", "-s", "..", "link"], CommandOptions())
    await running.run()
    tops = running.target._attempts["r-0"].directory
    escaping = attempts(lambda _: CommandPlan(argv=["true"], files={path: "x"}), CommandOptions())
    if path == "link/out":  # what a template may not have, an earlier file cannot bring either
        with pytest.raises(BadInputError, match="outside the attempt's directory"):
            write_files(tops.work, {path: "x"}, "file")
        return

    with pytest.raises(BadInputError, match="outside the attempt's directory"):
        await escaping.run("a-0")
    with pytest.raises(BadInputError, match="outside the attempt's directory"):
        await attempts(["true"]).run("b-0", files={path: "x"})
    assert not list(tmp_path.rglob("out"))


async def test_a_task_brings_its_own_files_unless_they_are_its_sandboxes(attempts, template):
    command = ["sh", "-c", "cat src/a.py deep/er.txt 2>&1 | tr '\\n' ' '"]
    running = attempts(command, CommandOptions(workdir=str(template)))

    own = await running.run(files={"src/a.py": "b = 2\n", "deep/er.txt": "x"})
    boxed = await running.run("s-0", files={"src/a.py": "b = 2\n"}, sandbox=SandboxSpec())

    assert own == "b = 2 x"
    assert boxed.startswith("a = 1 cat: deep/er.txt")


async def test_a_plan_sets_files_variables_and_input(attempts, monkeypatch):
    monkeypatch.setenv("INHERITED", "1")

    def plan(place):
        facts = json.dumps([place.prompt, place.base_url, place.anthropic_url, place.api_key, place.model])
        code = "import os, sys; h = os.environ['HOME']; print(repr([open(h + '/.rc/conf').read(), open('w').read(), "
        code += "sys.stdin.read(), os.environ.get('INHERITED'), os.environ['OPENAI_API_KEY'], os.getcwd(), h]))"
        return CommandPlan(
            argv=[sys.executable, "-c", code],
            env={"INHERITED": None, "OPENAI_API_KEY": "other"},
            home_files={".rc/conf": facts},
            files={"w": place.workdir + " " + place.home},
            stdin=place.prompt,
        )

    result = await attempts(plan).run(input={"prompt": "ask", "more": 1})

    conf, place, stdin, inherited, key, cwd, home = eval(result)
    url = "http://127.0.0.1:9/r/r-0"
    assert json.loads(conf) == ["ask", f"{url}/v1", url, "key", "policy"]
    assert (place, stdin, inherited, key) == (f"{cwd} {home}", "ask", None, "other")


async def test_directories_can_be_kept_for_a_look(attempts, tmp_path):
    running = attempts(["sh", "-c", "echo x > seen"], CommandOptions(keep=str(tmp_path / "kept")))

    await running.run()
    await running.collect()

    assert (tmp_path / "kept/r-0/work/seen").read_text() == "x\n"


async def test_workers_with_equal_attempts_keep_them_side_by_side(attempts, tmp_path):
    options = CommandOptions(keep=str(tmp_path / "kept"))
    first, second = (attempts(["sh", "-c", "ls; echo x > seen; sleep 0.2; cat seen"], options) for _ in range(2))

    assert await asyncio.gather(first.run(), second.run()) == ["x", "x"]
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["r-0", "r-0.2"]


@pytest.mark.parametrize(
    ("keep", "named"),
    [("file", "cannot be made"), ("template/kept", "lies in the template"), ("link/kept", "lies in the template")],
)
async def test_a_directory_that_cannot_keep_attempts_is_refused_at_the_start(attempts, template, keep, named):
    (template.parent / "file").write_text("")
    (template.parent / "link").symlink_to(template)
    options = CommandOptions(workdir=str(template), keep=str(template.parent / keep))

    with pytest.raises(BadInputError, match=named):
        attempts(["true"], options)
    assert not (template / "kept").exists()


async def test_no_template_has_the_records_of_this_projects_runs(attempts, template):
    state = template / "src/.agent-layer"
    before = hash_template(str(template))
    state.mkdir()
    (state / "log").write_text("another attempt's")
    os.mkfifo(state / "redis.sock")
    options = CommandOptions(workdir=str(template), keep=str(state / "kept"))

    found = await attempts(["find", ".", "-name", ".agent-layer"], options).run()

    assert found is None
    assert hash_template(str(template)) == before


@pytest.mark.parametrize("name", sorted(OUTSIDE))
async def test_no_variable_of_the_worker_leads_out_of_an_attempts_directories(attempts, monkeypatch, name):
    monkeypatch.setenv(name, "/somewhere")

    assert await attempts(["sh", "-c", f"echo at:${name}"]).run() == "at:"


async def test_a_task_that_no_process_can_be_given_is_the_tasks_fault(attempts):
    with pytest.raises(BadInputError, match="its task is longer than the 128 KiB"):
        await attempts(["true"]).run(input="x" * 140_000)
    with pytest.raises(BadInputError, match="expected text as its arguments"):
        await attempts(lambda place: CommandPlan(argv=["echo", place.prompt])).run("b-0", input="a\0b")


async def test_a_full_disk_is_not_the_tasks_fault():
    with pytest.raises(SandboxError, match="No space left on device; make room"):
        write_files(Path("/dev"), {"full": "x"}, "file")


async def test_a_plan_with_files_is_refused_where_attempts_share_a_directory(attempts):
    for more in ({"home_files": {"a": "b"}}, {"files": {"a": "b"}}, {"stdin": "x"}):
        with pytest.raises(BadInputError, match="--share-workdir has no place"):
            await attempts(lambda _, m=more: CommandPlan(argv=["true"], **m), CommandOptions(is_shared=True)).run()


async def test_shared_attempts_run_where_the_worker_was_started_with_its_home(attempts, tmp_path, monkeypatch):
    start = tmp_path / "start"
    monkeypatch.setenv("HOME", "/somewhere")
    running = attempts(["sh", "-c", "touch made; echo $PWD $HOME"], CommandOptions(is_shared=True))

    assert await running.run() == f"{start} /somewhere"
    assert (start / "made").exists()


async def test_a_command_that_fails_tells_its_last_words(attempts):
    with pytest.raises(AgentFailedError, match=r"command 'sh': exited with status 3: why"):
        await attempts(["sh", "-c", "echo why >&2; exit 3"]).run()
    with pytest.raises(BadInputError, match="no such program"):
        await attempts(["no-such-program"]).run("b-0")
