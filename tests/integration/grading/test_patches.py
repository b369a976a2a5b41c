"""Patches in real boxes: what applies is judged, and what does not scores 0 with the reason."""

import asyncio
import io
import shutil
import tarfile

import pytest

from agent_layer.schema.sandbox import Snapshot
from envs.grading import PatchScorer, ProgramScorer, ValueScorer
from envs.sandbox import SandboxSpec

from .conftest import mark_long

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("git") is None, reason="this machine has no git"),
]

START = {"calc.py": "def add(a, b):\n    return a - b\n", "old.py": "", "lib/two.py": "TWO = 2\n"}
RIGHT = "def add(a, b):\n    return a + b\n"
CASES = [{"call": "calc:add", "args": [2, 3], "expected": 5}]
PATCH = "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"
BINARY = (
    "diff --git a/x.bin b/x.bin\nnew file mode 100644\nindex 0000000000000000000000000000000000000000.."
    "f76dd238ade08917e6712764a16a22005a50573d\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\n"
    "literal 0\nHcmV?d00001\n\n"
)
SUBMODULE = (
    "diff --git a/sub b/sub\nnew file mode 160000\nindex 0000000..1111111\n--- /dev/null\n+++ b/sub\n"
    "@@ -0,0 +1 @@\n+Subproject commit 1111111111111111111111111111111111111111\n"
)


def link_patch(name, target):
    return (
        f"diff --git a/{name} b/{name}\nnew file mode 120000\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+{target}\n"
        "\\ No newline at end of file\n"
    )


def new_file(name, text):
    return f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+{text}\n"


@pytest.fixture
def score(judge):
    async def score(answer, *, cases=CASES, **options):
        scorer = PatchScorer(submission="answer", **options)
        return await judge(scorer, cases, result=answer, own_files=START)

    return score


@pytest.mark.parametrize(
    "answer",
    [PATCH, PATCH.rstrip(), f"Here it is:\n\n```diff\n{PATCH}```\n", PATCH + link_patch("lib/l", "two.py")],
)
async def test_a_patch_that_applies_is_judged(score, answer):
    reward = await score(answer)

    assert (reward.score, reward.status) == (1.0, "ok"), reward.comment


REFUSED = {
    "conflict": (PATCH.replace("a - b", "a * b"), "patch does not apply"),
    "no patch": ("I could not do it.", "No valid patches"),
    "cut off": (PATCH[: PATCH.index("+    return")], "corrupt patch"),
    "binary": (PATCH + BINARY, "binary file x.bin"),
    "above the tree": (new_file("../x.py", "1"), "invalid path"),
    "into .git": (new_file(".git/config", "1"), "invalid path"),
    "link out": (PATCH + link_patch("lib/out", "/etc/passwd"), "leads out of the tree"),
    "link above": (PATCH + link_patch("lib/out", "../../etc"), "leads out of the tree"),
    "link behind a link": (PATCH + link_patch("lib/out", "two.py/../../.."), "leads out of the tree"),
    "through a link": (link_patch("d", "/tmp") + new_file("d/x.py", "1"), "beyond a symbolic link"),
    "submodule": (
        SUBMODULE,
        "submodule",
    ),
}


@pytest.mark.parametrize("name", mark_long(REFUSED, "conflict", "binary", "link out", "through a link"))
async def test_a_patch_that_may_not_be_scores_0_with_the_reason(score, name):
    answer, why = REFUSED[name]

    reward = await score(answer)

    assert (reward.score, reward.status) == (0.0, "ok"), reward.error
    assert why in reward.comment


@pytest.mark.parametrize("answer", ["", None, {"patch": PATCH}])
async def test_without_a_patch_the_start_is_judged(score, answer):
    reward = await score(answer)

    assert (reward.score, reward.status) == (0.0, "ok")
    assert '"failed":1' in reward.comment


async def test_a_file_that_the_patch_removes_is_gone(score):
    patch = "diff --git a/old.py b/old.py\ndeleted file mode 100644\nindex e69de29..0000000\n"
    cases = [{"call": "old:f", "raises": "AttributeError"}]

    assert (await score("", cases=cases)).score == 1.0
    assert (await score(patch, cases=[{"call": "old:f", "raises": "ModuleNotFoundError"}])).score == 1.0


async def test_the_patch_of_an_artifact_is_judged(judge):
    scorer = PatchScorer(submission="artifact", scorer=ValueScorer(partial=True))

    right = await judge(scorer, CASES, {"changes.patch": PATCH}, own_files=START)
    none = await judge(scorer, CASES, {}, own_files=START)

    assert (right.score, none.score) == (1.0, 0.0)


def archive(entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
            entry.size = 0 if isinstance(content, str) else len(content)
            made.addfile(entry, io.BytesIO(content if isinstance(content, bytes) else b""))
    return Snapshot(archive=out.getvalue())


LEFT = {
    "right": ({"calc.py": RIGHT.encode(), "lib/two.py": b"TWO = 2\n", "old.py": b""}, 1.0, None),
    "with what Python leaves": ({"calc.py": RIGHT.encode(), "__pycache__/calc.cpython-311.pyc": b"\0\1"}, 1.0, None),
    "with settings of git": (
        {"calc.py": RIGHT.encode(), ".gitattributes": b"* filter=x text eol=crlf\n", ".git/config": b"[core\n"},
        1.0,
        None,
    ),
    "unchanged": ({name: text.encode() for name, text in START.items()}, 0.0, '"failed":1'),
    "nothing": ({}, 0.0, '"failed":1'),
    "binary": ({"calc.py": RIGHT.encode(), "x.bin": bytes(range(256))}, 0.0, "binary"),
    "link out": ({"calc.py": RIGHT.encode(), "lib/out": "/etc/passwd"}, 0.0, "leads out"),
    "link as the solution": ({"calc.py": "/proc/self/environ"}, 0.0, "leads out"),
}


@pytest.mark.parametrize("name", mark_long(LEFT, "with what Python leaves", "binary", "link out"))
async def test_what_differs_between_the_files_and_the_start_is_judged(judge, name):
    entries, wanted, why = LEFT[name]

    reward = await judge(PatchScorer(), CASES, archive(entries), own_files=START)

    assert (reward.score, reward.status) == (wanted, "ok"), reward.comment or reward.error
    assert why is None or why in reward.comment


@pytest.mark.parametrize(
    ("artifacts", "kept"),
    [
        ([], "lib/two.py\nold.py\n"),
        (["."], ""),
        (["*.py"], "lib/two.py\n"),
        pytest.param(["**/*.py"], "", marks=pytest.mark.long),
        pytest.param(["lib", "calc.*"], "old.py\n", marks=pytest.mark.long),
    ],
)
async def test_what_the_artifacts_do_not_name_was_not_removed(judge, artifacts, kept):
    grading = {
        "run": ["sh", "-c", "find lib/two.py old.py -type f 2> errors || true"],
        "cases": [{"expected": kept}],
    }
    left = archive({"calc.py": RIGHT.encode()})

    reward = await judge(PatchScorer(scorer=ProgramScorer()), grading, left, own_files=START, artifacts=artifacts)

    assert reward.score == 1.0, reward.comment or reward.error


async def test_a_change_within_a_second_is_found_where_boxes_share_a_file_system(judge):
    scorer = PatchScorer(spec=SandboxSpec(kind="process"), scorer=ValueScorer(spec=SandboxSpec(kind="process")))

    rewards = await asyncio.gather(
        *(judge(scorer, CASES, archive({"calc.py": RIGHT.encode()}), own_files=START) for _ in range(2))
    )

    assert [reward.score for reward in rewards] == [1.0] * 2, [reward.comment for reward in rewards]


async def test_files_that_the_agent_removed_are_gone(judge):
    cases = [{"call": "old:f", "raises": "ModuleNotFoundError"}]

    assert (await judge(PatchScorer(), cases, archive({"calc.py": b""}), own_files=START)).score == 1.0
