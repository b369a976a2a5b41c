"""Promises of what an attempt leaves: declared files and a diff, no links, nothing from outside, no process."""

import asyncio
import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from agent_layer.errors import BadInputError
from envs.commands.left_files import collect_files
from envs.commands.plan import CommandOptions

TREE = """
mkdir -p out/deep/er src 'odd [x]' && echo 1 > out/a.txt && echo 2 > out/deep/b.txt && echo 3 > out/deep/er/c.log
echo 4 > top.txt && echo 5 > src/a.py && echo 6 > 'odd [x]/[y].txt' && touch out/.hidden
ln -s /etc/passwd out/link.txt && ln -s /etc linked && ln -s out again && mkfifo out/pipe && mkdir empty
"""
FOUND = [
    (["out"], "out out/.hidden out/a.txt out/deep out/deep/b.txt out/deep/er out/deep/er/c.log out/link.txt"),
    (["out/**"], "out/.hidden out/a.txt out/deep/b.txt out/deep/er/c.log"),
    (["**/*.txt"], "odd [x]/[y].txt out/a.txt out/deep/b.txt top.txt"),
    (["*.txt", "src/?.py"], "src/a.py top.txt"),
    (["out/*.txt", "out/a.txt"], "out/a.txt"),
    (["odd [x]/[y].txt"], "odd [x]/[y].txt"),
    (["./top.txt", "none", "none/**"], "top.txt"),
    (["linked/passwd", "linked/**", "again/a.txt", "out/link.txt", "out/pipe"], ""),
    (["empty"], "empty"),
]


def list_names(files):
    """Return the names in an archive."""
    with tarfile.open(fileobj=io.BytesIO(files.archive)) as archive:
        return [one.name for one in archive]


def read(files, name):
    with tarfile.open(fileobj=io.BytesIO(files.archive)) as archive:
        return archive.extractfile(name).read().decode()


async def test_patterns_name_files_and_never_follow_a_link(attempts):
    running = attempts(["sh", "-c", TREE])
    await running.run()
    work = running.target._attempts["r-0"].directory.work

    for patterns, expected in FOUND:
        files = await collect_files(work, patterns, 1 << 20)

        found = set(list_names(files))
        wanted = [name for name in "|".join(expected.split(" ")).replace("odd|[x]", "odd [x]").split("|") if name]
        assert found == set(wanted), patterns
        missing = {"none", "none/**", "linked/passwd", "linked/**", "again/a.txt", "out/link.txt", "out/pipe"}
        assert files.missing == [one for one in patterns if one in missing]
        if "out/link.txt" in found:
            with tarfile.open(fileobj=io.BytesIO(files.archive)) as archive:
                assert archive.getmember("out/link.txt").issym()


@pytest.mark.parametrize("pattern", ["../x", "/etc/passwd", "out/../../x", ""])
def test_patterns_that_lead_out_are_refused(attempts, pattern):
    with pytest.raises(BadInputError, match="expected an artifact below the working directory"):
        attempts(["true"], CommandOptions(artifacts=[pattern]))


async def test_files_that_are_too_large_are_not_read(attempts):
    running = attempts(["sh", "-c", "truncate -s 1T huge; echo 1 > small"])
    await running.run()

    files = await running.collect("*", max_bytes=1 << 20)

    assert files.too_large
    assert list_names(files) == []


async def test_a_tree_deeper_than_a_path_is_taken_as_far_as_it_goes_and_removed(attempts):
    name = "d" * 200
    code = f"import os\nfor _ in range(100):\n    os.mkdir('{name}'); os.chdir('{name}')\nopen('deep', 'w')"
    running = attempts([sys.executable, "-c", code])
    await running.run()

    files = await running.collect("**/deep", name)

    assert files.missing[0] == "**/deep"
    assert len(list_names(files)) > 10


@pytest.fixture
def repository(tmp_path):
    """A repository with three commits; the last holds what the agent is to find, on another branch too."""
    place = tmp_path / "repository"

    def git(*arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        ran = subprocess.run(["git", "-C", place, *who, *arguments], check=True, capture_output=True, text=True)
        return ran.stdout.strip()

    place.mkdir()
    git("init", "-q", "-b", "trunk")
    commits = []
    for text in ("one", "two", "the answer"):
        (place / "file.txt").write_text(f"{text}\n")
        (place / ".gitignore").write_text("built/\n")
        git("add", "--all")
        git("commit", "-q", "-m", text)
        commits.append(git("rev-parse", "HEAD"))
    git("branch", "solved")
    (place / "file.txt").write_text("not committed\n")
    return place, commits


async def test_a_commit_comes_with_its_history_and_without_what_came_later(attempts, repository, monkeypatch):
    place, commits = repository
    looks = "cat file.txt; git log --format=%s; git branch -a; git remote; git cat-file -t $LATER 2>&1; git status -s"
    monkeypatch.setenv("LATER", commits[2])
    running = attempts(["sh", "-c", f"({looks}) > seen; true"], CommandOptions(workdir=f"{place}@trunk~1"))

    await asyncio.gather(running.run(), running.run("s-0"))

    files = running.target._attempts["r-0"].directory.work.rglob("*")
    texts = " ".join(path.read_text(errors="replace") for path in files if path.is_file())
    seen = read(await running.collect("seen"), "seen").splitlines()
    assert seen[:4] == ["two", "two", "one", "* main"]
    assert "could not get object info" in seen[4]
    assert seen[5:] == ["?? seen"]
    assert str(place) not in texts


@pytest.mark.parametrize("name", ["repository@nowhere", "repository@", "@", "none@HEAD", "repository@--help"])
@pytest.mark.usefixtures("repository")
async def test_a_commit_that_is_not_there_is_refused(attempts, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(BadInputError, match=r"expected --workdir as a directory|there is no commit '.*'; see"):
        attempts(["true"], CommandOptions(workdir=name))


async def test_a_directory_that_is_no_repository_is_named_as_git_names_it(attempts, tmp_path):
    with pytest.raises(BadInputError, match=r"start@HEAD: fatal: not a git repository .*; see 'git log' in"):
        attempts(["true"], CommandOptions(workdir=f"{tmp_path}/start@HEAD"))


async def test_a_worker_that_a_hook_of_git_starts_leaves_that_repository_alone(
    attempts, repository, tmp_path, monkeypatch
):
    place, commits = repository
    other = tmp_path / "other"
    shutil.copytree(place, other)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    running = attempts(["cat", "file.txt"], CommandOptions(workdir=f"{place}@trunk~1", diff="changes.patch"))

    assert await running.run() == "two"
    monkeypatch.delenv("GIT_DIR")
    assert (other / ".git/refs/heads/trunk").read_text().strip() == commits[2]


CHANGES = """
echo changed > file.txt; echo new > new.txt; mkdir -p built sub; echo out > built/out.txt; printf '\\0\\1' > sub/binary
git init -q 2>/dev/null; git config core.fsmonitor 'touch {owned}'; git config diff.external 'touch {owned}'
git config filter.evil.clean 'touch {owned}; cat'
echo '*.txt filter=evil diff=evil' > .gitattributes
git config diff.evil.textconv 'touch {owned}'; mkdir -p .git/hooks
printf '#!/bin/sh\\ntouch {owned}' > .git/hooks/h; cp .git/hooks/h .git/hooks/post-index-change
chmod +x .git/hooks/*; git add -A 2>/dev/null
git -c user.name=a -c user.email=a@b commit -qm x 2>/dev/null; rm -f {owned}
"""


@pytest.mark.parametrize("is_repository", [False, True])
async def test_the_diff_is_what_changed_whatever_the_agent_does_to_git(attempts, repository, tmp_path, is_repository):
    place, _ = repository
    plain = tmp_path / "plain"
    shutil.copytree(place, plain, ignore=shutil.ignore_patterns(".git"))
    (plain / "file.txt").write_text("the answer\n")
    workdir = f"{place}@HEAD" if is_repository else str(plain)
    owned = tmp_path / "owned"
    running = attempts(["sh", "-c", CHANGES.format(owned=owned)], CommandOptions(workdir=workdir, diff="p.diff"))
    await running.run()

    files = await running.collect("new.txt")

    diff = read(files, "p.diff")
    assert list_names(files) == ["new.txt", "p.diff"]
    assert "-the answer\n+changed\n" in diff
    assert "+new\n" in diff
    assert "GIT binary patch" in diff
    assert "built/out.txt" not in diff
    assert not owned.exists()
    applied = tmp_path / "applied"
    shutil.copytree(plain, applied)
    (tmp_path / "p.diff").write_text(diff)
    apply_diff(applied, tmp_path / "p.diff")
    assert (applied / "file.txt").read_text() == "changed\n"
    assert (applied / "sub/binary").read_bytes() == b"\0\1"


def apply_diff(top, diff):
    variables = os.environ | {"GIT_CEILING_DIRECTORIES": str(top.parent)}
    subprocess.run(["git", "apply", diff], cwd=top, check=True, env=variables)


DAEMONS = """
import os, subprocess, sys, time
def daemon(keeps_output):
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    if not keeps_output:
        for number in range(3):
            os.dup2(os.open("/dev/null", os.O_RDWR), number)
    open(os.path.join(os.environ["PIDS"], str(os.getpid())), "w").close()
    os.chdir("/")
    time.sleep(600)
    os._exit(0)
daemon(True)
daemon(False)
while len(os.listdir(os.environ["PIDS"])) < 2:
    time.sleep(0.01)
if sys.argv[1] == "kills":
    os.kill(os.getppid(), 9)
    time.sleep(600)
if sys.argv[1] == "stays":
    time.sleep(600)
print(1.0)
"""


@pytest.mark.parametrize("ends", ["ends", "stays", "kills"])
async def test_daemons_end_with_their_attempt(attempts, tmp_path, monkeypatch, until, ends):
    pids = tmp_path / "pids"
    pids.mkdir()
    monkeypatch.setenv("PIDS", str(pids))
    going = asyncio.create_task(attempts([sys.executable, "-c", DAEMONS, ends]).run())
    await until(lambda: len(list(pids.iterdir())) == 2)
    if ends == "stays":
        going.cancel()

    (result,) = await asyncio.gather(going, return_exceptions=True)

    assert (result == 1.0) is (ends == "ends")
    await until(lambda: not any(Path(f"/proc/{one.name}").exists() for one in pids.iterdir()))


async def test_random_trees_and_patterns_agree_with_pythons_own(tmp_path):
    dice = random.Random(7)
    names = ["a", "b", "ab", "a.c", "b.c"]
    drawn = {"/".join(dice.choices(names, k=dice.randint(1, 3))) for _ in range(40)}
    paths = sorted(path for path in drawn if not any(other.startswith(f"{path}/") for other in drawn))
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    parts = ["a", "*", "**", "?", "*.c", "[ab]"]
    for pattern in ["/".join(dice.choices(parts, k=dice.randint(1, 3))) for _ in range(60)]:
        wanted = set(tmp_path.glob(f"{pattern}/*" if pattern.endswith("**") else pattern))
        inside = {inner for one in wanted for inner in (one, *one.rglob("*"))}
        if pattern.endswith("**"):  # files alone, not the folders that they are in
            inside = {one for one in inside if one.is_file()}

        files = await collect_files(tmp_path, [pattern], 1 << 20)

        assert {tmp_path / name for name in list_names(files)} == inside, pattern
