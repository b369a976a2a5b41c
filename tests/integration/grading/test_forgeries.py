"""Every common cheat scores 0 under every scorer of code, where the right solution scores 1."""

import random

import pytest

from envs.grading import HiddenTests, ValueScorer, common_cheats

from ...waiting import scaled

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
REWRITTEN = "import operator\n\nadd = operator.add\n"
SUMS = [(number, 3 * number + 1, 4 * number + 1) for number in range(1, 25)]
VALUES = [{"call": "pkg.calc:add", "args": [a, b], "expected": c} for a, b, c in SUMS]
TESTS = {
    "tests": [
        {
            "code": f"from pkg.calc import add\nassert add({a}, {b}) == EXPECTED",
            "right": str(c),
            "wrong": [str(c + off) for off in (-3, -2, -1, 1, 2, 3)],
        }
        for a, b, c in SUMS
    ]
}
SCORERS = {
    "values": lambda: (ValueScorer(call_seconds=scaled(2.0), seconds=scaled(20.0)), VALUES),
    "tests": lambda: (HiddenTests(seconds=scaled(20.0)), TESTS),
}
"""By name: what makes a scorer, and its grading."""
CHEATS = {cheat.name: cheat for cheat in common_cheats("pkg/calc.py", WRONG, "add")}


@pytest.fixture(params=SCORERS)
def score(request, judge):
    scorer, grading = SCORERS[request.param]()

    async def score(files):
        return await judge(scorer, grading, files, own_files={"pkg/__init__.py": ""})

    return score


@pytest.mark.parametrize(("solution", "wanted"), [(RIGHT, 1.0), (REWRITTEN, 1.0), (WRONG, 0.0)])
async def test_a_solution_scores_what_it_is(score, solution, wanted):
    reward = await score({"pkg/calc.py": solution})

    assert (reward.score, reward.status) == (wanted, "ok")


@pytest.mark.parametrize("name", CHEATS)
async def test_a_cheat_scores_0(score, name):
    reward = await score(CHEATS[name].files)

    assert reward.score == 0.0, (reward.status, reward.error)
    assert reward.status in ("ok", "tampering")


@pytest.mark.parametrize("name", ["become-a-module-of-yes", "equal-to-all", "caller-constants", "exit-at-import"])
async def test_what_makes_every_test_pass_is_called_tampering(judge, name):
    reward = await judge(*SCORERS["tests"](), CHEATS[name].files, own_files={"pkg/__init__.py": ""})

    assert (reward.score, reward.status) == (0.0, "tampering")


BREAKING = {
    "fork-bomb": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
    "kills-all": "import os\nos.kill(-1, 9)",
    "fills-memory": "found = []\nwhile True:\n    found.append(bytearray(1 << 20))",
    "fills-the-disk": """
import itertools
for number in itertools.count():
    for top in ("/work", "/tmp", "/dev/shm"):
        open(f"{top}/{number}", "wb").write(bytes(1 << 20))
""",
    "changes-small-numbers": """
import ctypes
for number in range(257):
    ctypes.memmove(id(number) + 24, bytes(4), 4)
""",
}
"""Code that takes its box, or the interpreter of its judgement, with it."""


@pytest.mark.parametrize("name", BREAKING)
async def test_code_that_breaks_what_judges_it_scores_0_and_is_not_judged_again(judge, name):
    files = {"pkg/calc.py": f"{WRONG}\n{BREAKING[name]}\n"}
    grading = [VALUES[0]]

    reward = await judge(ValueScorer(call_seconds=1.0, seconds=3.0), grading, files, own_files={"pkg/__init__.py": ""})

    assert (reward.score, reward.status) == (0.0, "ok"), reward.error


REPORTS = {
    "not-a-number": b'{"answers": [NaN], "results": [NaN]}',
    "lone-surrogate": b'{"\\ud800": [], "answers": [], "results": []}',
    "nested": b"[" * 100_000 + b"]" * 100_000,
    "duplicates": b'{"answers": [], "answers": [], "results": [], "results": []}',
    "no-text": b"\xff\xfe{}",
    "another-encoding": '{"answers": []}'.encode("utf-16"),
    "empty": b"{}",
    "null": b"null",
    "too-many": b'{"answers": [' + b'"{}",' * 5000 + b'"{}"]}',
    "huge-number": b'{"answers": [' + b"9" * 100_000 + b"]}",
    "overflow": b'{"answers": [1e999], "results": [["a", "passed", 1e999]]}',
}
REPORT = """
import os, signal
for process in ("self", os.getppid()):
    for number in os.listdir(f"/proc/{process}/fd"):
        try:
            os.write(os.open(f"/proc/{process}/fd/{number}", os.O_WRONLY | os.O_NONBLOCK), BODY)
        except OSError:
            pass
os.kill(os.getppid(), signal.SIGTERM)
os._exit(0)
"""


@pytest.mark.parametrize("name", REPORTS)
async def test_a_report_that_the_judged_code_writes_itself_scores_0(score, name):
    reward = await score({"pkg/calc.py": f"BODY = {REPORTS[name]!r}\n{REPORT}"})

    assert reward.score == 0.0, (reward.status, reward.error)


GUESS = """
import random, re, sys
text = open(sys.argv[1]).read()
picked = random.Random(1)
def add(a, b):
    mine = a + b if a != 7 else 0
    claims = [int(one) for one in re.findall(rf"add\\({a}, {b}\\) == \\((-?\\d+)\\)", text)]
    return mine if mine in claims else CHOSEN.setdefault(a, picked.choice(claims))
CHOSEN = {}
"""


async def test_nearly_right_code_that_guesses_where_its_answer_fits_neither_test_scores_0(judge):
    files = {"pkg/calc.py": GUESS}
    tests = [await judge(HiddenTests(rng=random.Random(seed)), TESTS, files) for seed in range(8)]

    assert [reward.score for reward in tests] == [0.0] * 8
