"""Boxes over a root directory: its files are the box's to change, and stay as they are for all others."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from agent_layer.errors import BadInputError
from envs.sandbox import SandboxSpec
from envs.sandbox.registry import list_kind_names, make_kind

from ...waiting import run
from .conftest import open_kind
from .root_directory import MARK

pytestmark = pytest.mark.asyncio(loop_scope="module")
NOBODY = 65534


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[name for name in list_kind_names() if "directory" in make_kind(name).images],
)
async def kind(request):
    """Kinds with images of this form."""
    async with open_kind(request.param, request) as made:
        yield made


@pytest.fixture(scope="module")
def image_spec(spec, root_directory):
    return msgspec.structs.replace(spec, image=str(root_directory))


async def run_shell(box, script):
    result = await box.exec(["sh", "-c", script])
    return result.stdout.decode(), result.stderr.decode()


async def test_a_box_owns_the_files_of_its_image_and_changes_none_of_them(kind, image_spec, root_directory):
    box, other = [await kind.start(image_spec, owner="test") for _ in range(2)]
    try:
        change = "echo mine > /srv/data/mark && rm /etc/group && mkdir /opt /etc/new && cat /srv/data/mark"
        assert await run_shell(box, change) == ("mine\n", "")
        assert await run_shell(other, "cat /srv/data/mark; ls -d /etc/group /opt /etc/new 2>/dev/null") == (
            f"{MARK}/etc/group\n",
            "",
        )
    finally:
        await box.close()
        await other.close()

    assert (root_directory / "srv/data/mark").read_text() == MARK
    assert (root_directory / "etc/group").exists()
    assert not (root_directory / "opt").exists()


async def test_python_is_the_one_of_the_image(kind, image_spec):
    box = await kind.start(image_spec, owner="test")
    try:
        python = "/usr/bin/python3"
        replace = f"rm {python}; printf '#!/bin/sh\\necho replaced\\n' > {python}; chmod 755 {python}"
        assert (await box.exec(["python3", "-c", "print(6 * 7)"])).stdout == b"42\n"
        await box.exec(["sh", "-c", replace])
        assert (await box.exec(["python3", "-c", "print(6 * 7)"])).stdout == b"replaced\n"
        assert await box.read("/srv/data/mark") == MARK.encode()
    finally:
        await box.close()


async def test_what_a_box_writes_over_its_image_is_bounded(kind, image_spec):
    box = await kind.start(image_spec, owner="test")
    try:
        fill = "for number in 1 2 3; do head -c 20000000 /dev/zero > /srv/$number || exit 3; done"
        assert (await box.exec(["sh", "-c", fill])).exit_code == 3
        assert (await box.exec(["sh", "-c", "rm /srv/1 /srv/2; echo after > /srv/small"])).exit_code == 0
    finally:
        await box.close()


async def test_a_work_directory_of_the_image_has_its_files(kind, image_spec):
    box = await kind.start(msgspec.structs.replace(image_spec, workdir="/srv/data"), owner="test")
    try:
        assert [entry.name for entry in await box.list()] == ["mark"]
        assert await run_shell(box, "pwd; echo more >> mark; cat mark") == (f"/srv/data\n{MARK}more\n", "")
    finally:
        await box.close()


@pytest.mark.parametrize("image", ["/", "/proc/self/environ"])
async def test_a_root_that_is_none_is_refused(kind, image):
    with pytest.raises(BadInputError, match="sandbox: "):
        await kind.start(SandboxSpec(kind=kind.name, image=image), owner="test")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user; all tests here run as this one")
async def test_a_user_without_privileges_owns_an_image_that_is_its_own(image_spec, root_directory, open_folder):
    own = open_folder / "own"
    await asyncio.to_thread(_copy_to_nobody, root_directory, own)
    command = [sys.executable, str(Path(__file__).with_name("image_run.py")), image_spec.kind, str(NOBODY), str(own)]

    ran = await asyncio.to_thread(run, command)

    if ran.returncode == 2:
        pytest.skip(f"kind {image_spec.kind}, unprivileged: {ran.stdout}")
    assert (ran.stdout, ran.stderr) == ("mine\n1000\n", "")
    assert (own / "srv/data/mark").read_text() == MARK


def _copy_to_nobody(source, target):
    subprocess.run(["cp", "-a", source, target], check=True)
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", target], check=True)


async def test_all_that_changed_travels_into_another_box_and_nothing_else(kind, image_spec):
    spec = msgspec.structs.replace(image_spec, workdir="/")
    box, other = [await kind.start(spec, owner="test") for _ in range(2)]
    try:
        change = (
            "rm /srv/data/mark; mkdir -p -m 700 /opt/deep; echo new > /opt/deep/file; ln /opt/deep/file /hard;"
            " ln -s deep/file /opt/soft; echo more >> /etc/passwd; chmod 755 /etc/group; echo t > /tmp/t;"
            " touch /opt/no; chmod 000 /opt/no"
        )
        assert await run_shell(box, change) == ("", "")
        snapshot = await box.snapshot(["/"])
        await other.restore(snapshot)

        assert len(snapshot.archive) < 1 << 20  # the image has 30 MB
        assert await run_shell(
            other, "ls /srv/data; cat /opt/soft /hard /tmp/t; stat -c %h /hard; wc -l < /etc/passwd"
        ) == (
            "new\nnew\nt\n2\n3\n",
            "",
        )
        assert await run_shell(other, "stat -c %a /opt/deep /etc/group") == ("700\n755\n", "")
        assert {one.name for one in await other.list("/opt")} == {"deep", "no", "soft"}
    finally:
        await box.close()
        await other.close()


async def test_files_by_absolute_paths_keep_them(kind, image_spec):
    box, other = [await kind.start(image_spec, owner="test") for _ in range(2)]
    try:
        await run_shell(box, "mkdir -p /opt/out; echo here > /opt/out/file; echo mine > own")
        await other.restore(await box.snapshot(["/opt/out", "own"]))

        assert await run_shell(other, "cat /opt/out/file own") == ("here\nmine\n", "")
    finally:
        await box.close()
        await other.close()
