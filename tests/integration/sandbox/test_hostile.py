"""Hostile code stays in its box: snippets that attack the host, the worker, the neighbours and the box itself.

They run against a worker that has a secret in its command line, variables, memory and files, once as root and once as a
user without privileges. No attack may report that it got out, show the secret, harm anything, or stop the pool.
"""

import asyncio
import contextlib
import io
import json
import os
import secrets
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest
import pytest_asyncio

from envs.sandbox import Snapshot
from envs.sandbox.registry import list_kind_names, make_kind

from ...boxes import end_without
from ...waiting import run, within
from .conftest import open_kind

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in (HERE / "hostile").glob("*.py"))
KINDS = [name for name in list_kind_names() if name not in ("process", "docker")]
"""What a daemon's boxes stop is the daemon's to test."""
NOBODY = 65534


def run_attacks(kind_name, user, secret, *names):
    """Run snippets, or all; return what the worker reported."""
    directory = Path(tempfile.mkdtemp(prefix="agent-layer-attacks-"))
    try:
        if user != "-":
            os.chown(directory, int(user), int(user))
        command = [sys.executable, str(HERE / "attack_run.py"), kind_name, user, str(directory), secret, *names]
        ran = run(command, 300, cwd=HERE.parents[2])
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0, f"{ran.stdout[-2000:]}{ran.stderr[-4000:]}"
    return lines


@pytest.fixture(scope="module", params=[f"{kind}-{user}" for kind in KINDS for user in ("root", "unprivileged")])
def attacked(request):
    kind_name, _, user = request.param.rpartition("-")
    if user == "root" and os.geteuid() != 0:
        pytest.skip("needs root; the unprivileged half of these tests runs")
    number = str(NOBODY) if user == "unprivileged" and os.geteuid() == 0 else "-"
    support, *lines = run_attacks(kind_name, number, secrets.token_hex(16))
    if not support["works"]:
        end_without(f"kind {kind_name}, {user}: {support['support']}", kind_name)
    found = {name: [line for line in lines if line.get("name") == name] for name in NAMES}
    return found, lines[-1]


@pytest.mark.parametrize("name", NAMES)
def test_an_attack_stays_in_its_box(attacked, name):
    assert attacked[0][name]
    for found in attacked[0][name]:
        assert found["has_begun"], found["tail"]
        assert found["escapes"] == [], found["tail"]
        assert not found["has_secret"]
        assert found["harm"] == ""
        assert found["answers"], "the box does not answer any more"
        assert found["neighbour"] == "neighbour-was-here\n"
        assert found["status"] != "gone"


def test_no_attack_costs_the_pool_a_box(attacked):
    assert attacked[1] == {"failed_starts": 0, "dead": 0}


HARMLESS = (
    *("canary_read", "children_traced", "command_lines_searched", "environment_searched", "homes_seen"),
    *("memory_of_others_searched", "network_of_the_host", "processes_seen", "sockets_of_the_host"),
    "sockets_of_the_host_abstract",
)
"""Attacks that only look."""


@pytest.fixture(scope="module")
def unprotected():
    return {line.get("name"): line for line in run_attacks("process", "-", secrets.token_hex(16), *HARMLESS)}


@pytest.mark.parametrize("name", HARMLESS)
def test_an_attack_works_where_nothing_stops_it(unprotected, name):
    assert unprotected[name]["escapes"]


def test_there_are_many_attacks():
    assert len(NAMES) >= 100


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[name for name in list_kind_names() if name != "process"]
)
async def kind(request):
    """Kinds for code that is not trusted."""
    async with open_kind(request.param, request) as made:
        yield made


@pytest.fixture
def canary(open_folder):
    path = open_folder / "canary"
    path.write_text("untouched")
    path.chmod(0o666)
    return path


SWAP = """
import os, sys
os.mkdir("folder")
open("folder/file", "w").write("inside")
while True:
    for target in (sys.argv[1], "folder/file", "/proc/1/root" + sys.argv[1], "folder", "/etc/shadow"):
        os.symlink(target, "next")
        os.replace("next", "swapped")
    os.mkfifo("pipe") if not os.path.exists("pipe") else None
    os.replace("pipe", "swapped")
"""


@pytest.mark.asyncio(loop_scope="module")
async def test_a_path_that_changes_while_it_is_used_leads_nowhere_else(fresh_box, canary):
    swapping = asyncio.create_task(fresh_box.exec(["python3", "-c", SWAP, str(canary)], seconds=600))
    found, refused = set(), 0
    for number in range(60):
        try:
            if number % 2:
                await fresh_box.write("swapped", b"written")
            else:
                found.add(await fresh_box.read("swapped"))
        except OSError:
            refused += 1
    swapping.cancel()

    assert refused
    assert found <= {b"inside", b"written", b""}
    assert canary.read_text() == "untouched"


FORGE = """
import os
print("up", flush=True)
while True:
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        if int(pid) not in (1, os.getpid()):
            for number, text in ((1, b"[[1]]"), (2, b'{"errno": Infinity}')):
                try:
                    with open(f"/proc/{pid}/fd/{number}", "wb", 0) as pipe:
                        pipe.write(text)
                except OSError:
                    pass
"""


@pytest.mark.asyncio(loop_scope="module")
async def test_forged_answers_about_files_are_errors_of_files(fresh_box):
    made = await fresh_box.exec(["sh", "-c", "mkdir folder; cd folder; touch $(seq 300)"])
    assert made.exit_code == 0
    async with fresh_box.open(["python3", "-c", FORGE]) as process:
        async with within(60, "its first line"):
            await process.stdout.readline()
        for _ in range(10):
            tries = [fresh_box.list("folder") if number % 2 else fresh_box.read("none") for number in range(8)]
            for error in await asyncio.gather(*tries, return_exceptions=True):
                assert isinstance(error, bytes | tuple | OSError), error


def _member(name, kind=tarfile.REGTYPE, target="", data=b""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size, member.mode = kind, target, len(data), 0o6777
    return member, data


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "members",
    [
        lambda canary: [_member(f"../../../../../../..{canary}", data=b"x")],
        lambda canary: [_member(str(canary), data=b"x")],
        lambda canary: [_member("out", tarfile.SYMTYPE, str(canary)), _member("out", data=b"x")],
        lambda canary: [_member("up", tarfile.SYMTYPE, str(canary.parent)), _member("up/canary", data=b"x")],
        lambda canary: [_member("hard", tarfile.LNKTYPE, str(canary)), _member("hard", data=b"x")],
        lambda _: [_member("disk", tarfile.BLKTYPE)],
        lambda _: [_member("memory", tarfile.CHRTYPE)],
        lambda _: [_member(f"{number}", data=b"x" * (1 << 20)) for number in range(64)],
    ],
    ids=["upwards", "absolute", "link", "folder-link", "hard-link", "disk", "device", "too-large"],
)
async def test_a_hostile_snapshot_stays_in_the_box(box, canary, members):
    await box.exec(["sh", "-c", "rm -rf /work/*"])
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member, data in members(canary):
            archive.addfile(member, io.BytesIO(data))

    with contextlib.suppress(OSError):
        await box.restore(Snapshot(archive=buffer.getvalue()))

    assert canary.read_text() == "untouched"
    devices = await box.exec(["find", "/work", "/tmp", "-type", "b", "-o", "-type", "c"])
    assert devices.stdout == b""
    assert (await box.exec(["true"])).exit_code == 0


@pytest.mark.asyncio(loop_scope="module")
async def test_what_one_box_plants_the_next_never_runs(kind, spec, fresh_box):
    names = "sitecustomize.py usercustomize.py json.py .bashrc .profile"
    plant = f"for name in {names}; do echo 'print(666)' | tee /work/$name /tmp/$name; done"
    await fresh_box.exec(["sh", "-c", plant])
    other = await kind.start(spec, owner="next")
    try:
        for argv in (
            ["python3", "-c", "import json"],
            ["/usr/bin/python3", "-m", "json.tool", "--help"],
            ["sh", "-lc", ""],
        ):
            assert b"666" not in (await other.exec(argv)).stdout
    finally:
        await other.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_this_project_is_not_in_the_box(box):
    for package in ("envs", "agent_layer", "trainer_adapter"):
        result = await box.exec(["/usr/bin/python3", "-c", f"import {package}"])
        assert b"ModuleNotFoundError" in result.stderr


@pytest.mark.asyncio(loop_scope="module")
async def test_applications_below_usr_are_not_in_the_box(kind, spec, monkeypatch):
    """Images like to have their application in /usr/src/app, with its keys."""
    monkeypatch.chdir("/usr/share/doc")
    beside = make_kind(kind.name)
    try:
        box = await beside.start(spec, owner="test")
        found = await box.exec(["sh", "-c", "ls -A /usr/src /usr/share/doc /usr/local/etc 2>/dev/null"])
    finally:
        await beside.close()

    assert set(found.stdout.decode().split()) <= {"/usr/src:", "/usr/share/doc:", "/usr/local/etc:"}
