"""Tests of a repository in real boxes: their verdict is of a shared judge, and canaries find the plain cheats."""

from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from agent_layer.schema import SHARED_JUDGE
from envs.grading import PatchScorer, RepositoryTests, common_cheats

from ...waiting import scaled
from .conftest import SPEC, mark_long

PACKAGES = str(Path(find_spec("pytest").origin).parents[1])
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(PACKAGES.startswith("/tmp/"), reason="no sandbox can mount an installation below /tmp"),
]

WRONG = "def add(a, b):\n    return a - b\n\ndef double(a):\n    return 2 * a\n"
RIGHT = WRONG.replace("a - b", "a + b")
TESTS = """
import unittest
import pytest
from pkg.calc import add, double

@pytest.mark.parametrize("a", [1, 2])
def test_add(a):
    assert add(a, 3) == a + 3

class TestDouble(unittest.TestCase):
    def test_double(self):
        self.assertEqual(double(2), 4)
"""
GRADING = {
    "fail_to_pass": ["tests/test_calc.py::test_add[1]", "tests/test_calc.py::test_add[2]"],
    "pass_to_pass": ["tests/test_calc.py::TestDouble::test_double"],
    "files": {"tests/test_calc.py": TESTS},
}
WITH_PYTEST = msgspec.structs.replace(
    SPEC, workdir="/attempt", mounts=[PACKAGES], env={"PYTHONPATH": PACKAGES, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
)


@pytest.fixture
def scorer():
    return RepositoryTests(spec=WITH_PYTEST, seconds=scaled(60.0))


@pytest.fixture
def score(judge, scorer):
    async def score(files, grading=GRADING, **options):
        own_files = {"pkg/__init__.py": "", "pkg/calc.py": WRONG}
        return await judge(scorer, grading, files, own_files=own_files, **options)

    return score


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (RIGHT, 1.0),
        (RIGHT.replace("2 * a", "3 * a"), 0.0),
        pytest.param(WRONG, 0.0, marks=pytest.mark.long),
        pytest.param("def add(:", 0.0, marks=pytest.mark.long),
    ],
)
async def test_all_tests_of_both_lists_must_pass(score, source, wanted):
    reward = await score({"pkg/calc.py": source})

    assert (reward.score, reward.status, reward.judge) == (wanted, "ok", "shared"), reward.comment or reward.error


NOT_PASSED = {
    "skipped": "import pytest\n@pytest.mark.skip\ndef test_x():\n    pass\n",
    "skips itself": "import pytest\ndef test_x():\n    pytest.skip()\n",
    "missing": "def test_other():\n    pass\n",
    "expected to fail": "import pytest\n@pytest.mark.xfail\ndef test_x():\n    assert False\n",
    "expected to fail, and passes": "import pytest\n@pytest.mark.xfail\ndef test_x():\n    pass\n",
    "breaks its set-up": "import pytest\n@pytest.fixture\ndef f():\n    assert False\ndef test_x(f):\n    pass\n",
    "breaks its tear-down": (
        "import pytest\n@pytest.fixture\ndef f():\n    yield\n    assert False\ndef test_x(f):\n    pass\n"
    ),
    "is interrupted in its tear-down": (
        "import pytest\n@pytest.fixture\ndef f():\n    yield\n    raise KeyboardInterrupt\ndef test_x(f):\n    pass\n"
    ),
    "crashes": "import os\ndef test_x():\n    os.abort()\n",
    "exits": "import os\ndef test_x():\n    os._exit(0)\n",
    "is no Python": "def test_x(:\n",
}


@pytest.mark.parametrize("name", mark_long(NOT_PASSED, "skipped", "crashes", "breaks its tear-down"))
async def test_what_has_not_passed_does_not_count(score, name):
    grading = {"fail_to_pass": ["test_a.py::test_x"], "files": {"test_a.py": NOT_PASSED[name]}}

    reward = await score({}, grading)

    assert (reward.score, reward.status) == (0.0, "ok"), reward.error


async def test_settings_and_fixtures_of_the_repository_apply(score):
    files = {
        "setup.cfg": "[tool:pytest]\naddopts = -x --strict-markers --ff\npython_functions = check_*\n",
        "tests/conftest.py": "import pytest\n@pytest.fixture\ndef three():\n    return 3\n",
        "tests/test_a.py": "def check_x(three):\n    assert three == 3\n",
    }

    reward = await score({}, {"fail_to_pass": ["tests/test_a.py::check_x"], "files": files})

    assert reward.score == 1.0, reward.comment or reward.error


FORCES = {
    "hook that passes all": {
        "conftest.py": "def pytest_runtest_makereport(item, call):\n    call.excinfo = None\n",
    },
    "patched runner": {
        "pkg/calc.py": WRONG + "import _pytest.runner as r\nr.check_interactive_exception = lambda *_: False\n"
        "def call(cls, func, when, reraise=None):\n"
        "    return old(cls, func if when == 'collect' else lambda: None, when, reraise)\n"
        "old = r.CallInfo.from_call.__func__\nr.CallInfo.from_call = classmethod(call)\n",
    },
    "values that equal all": {
        "pkg/calc.py": WRONG + "class Yes:\n    __eq__ = lambda *_: True\nadd = double = lambda *_: Yes()\n",
    },
    "hook that leaves out what it does not know": {
        "conftest.py": "def pytest_collection_modifyitems(items):\n"
        "    items[:] = [one for one in items if one.path.name == 'test_calc.py']\n    for one in items:\n"
        "        one.runtest = lambda: None\n",
    },
}


@pytest.mark.parametrize("name", mark_long(FORCES, "hook that passes all", "values that equal all"))
async def test_what_forces_every_test_is_found_by_the_canaries(score, name):
    reward = await score(FORCES[name])

    assert (reward.score, reward.status, reward.judge) == (0.0, "tampering", "shared"), reward.comment


async def test_a_patch_is_judged_by_tests_of_the_repository(judge, scorer):
    patch = "--- a/pkg/calc.py\n+++ b/pkg/calc.py\n@@ -1,3 +1,3 @@\n"
    patch += " def add(a, b):\n-    return a - b\n+    return a + b\n \n"
    outer = PatchScorer(scorer=scorer, submission="answer", spec=WITH_PYTEST)

    reward = await judge(outer, GRADING, result=patch, own_files={"pkg/__init__.py": "", "pkg/calc.py": WRONG})

    assert (reward.score, reward.judge) == (1.0, "shared"), reward.comment or reward.error


@pytest.mark.parametrize(
    "grading",
    [
        None,
        {"fail_to_pass": []},
        {"fail_to_pass": ["test_a"]},
        {"fail_to_pass": ["test_a.py::"]},
        {"fail_to_pass": ["../test_a.py::test_b"]},
        {"fail_to_pass": ["--pyargs::x"]},
    ],
)
async def test_a_grading_of_another_form_is_null(judge, grading):
    reward = await judge(RepositoryTests(), grading, {})

    assert (reward.score, reward.status, reward.judge) == (None, "verifier_error", "shared")
    assert "correct it" in reward.error


KNOWING = {
    "a hook that passes the file that everybody knows": {
        "conftest.py": "def pytest_runtest_makereport(item, call):\n"
        "    if item.path.name == 'test_calc.py':\n        call.excinfo = None\n",
    },
    "a hook that passes what compares with no drawn text": {
        "conftest.py": "import re, inspect\ndef pytest_runtest_makereport(item, call):\n"
        "    text = inspect.getsource(item.function)\n"
        "    if not re.search('[0-9a-f]{32}|sorted\\\\(\\\\[|RuntimeError', text):\n        call.excinfo = None\n",
    },
    "a report that tells the files apart": {
        "pkg/calc.py": WRONG
        + """
import ast, json, os, sys
results = []
for path in sys.argv[1:]:
    result = "passed" if path.endswith("test_calc.py") else "failed"
    for one in ast.parse(open(path).read()).body:
        inner = [(one.name + "::", two) for two in one.body] if isinstance(one, ast.ClassDef) else [("", one)]
        for prefix, test in inner:
            name = getattr(test, "name", "")
            ends = ["[1]", "[2]"] if name == "test_add" else [""]
            results += [[f"{path}::{prefix}{name}{end}", result] for end in ends if name.startswith("test")]
kinds = {int(number): os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")}
first = min(number for number, kind in kinds.items() if number > 2 and ("pipe:" in kind or "socket:" in kind))
os.write(first, json.dumps({"results": results}).encode())
os._exit(0)
"""
    },
}
"""Cheats that are written against this scorer."""


@pytest.mark.parametrize("name", mark_long(KNOWING, "a report that tells the files apart"))
async def test_a_cheat_that_knows_the_canaries_pays_which_is_why_the_judge_is_called_shared(score, name):
    reward = await score(KNOWING[name])

    assert (reward.score, reward.judge) == (1.0, "shared"), reward.error or reward.comment


@pytest.mark.long
async def test_the_share_of_cheats_that_pays_is_the_published_one(score):
    cheats = common_cheats("pkg/calc.py", WRONG, "add")

    paid = [cheat.name for cheat in cheats if (await score(cheat.files)).score != 0.0]

    published = f"{len(paid)} of {len(cheats)} common cheats pay, and {len(KNOWING)} of {len(KNOWING)} that know its"
    assert SHARED_JUDGE.startswith(published)
    assert SHARED_JUDGE in (Path(__file__).parents[3] / "docs" / "how-to" / "score-code.md").read_text()
