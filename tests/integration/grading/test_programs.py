"""Programs of any language in real boxes: right output scores 1, and nothing else does."""

import shutil

import pytest

from envs.grading import ProgramScorer

from ...waiting import scaled
from .conftest import mark_long

pytestmark = pytest.mark.asyncio(loop_scope="module")

CASES = [{"stdin": f"{a} {b}\n", "expected": f"{a + b}\n"} for a, b in [(1, 2), (30, 12), (-5, 5)]]
PYTHON = {"run": ["python3", "main.py"], "cases": CASES}
ADD = "print(sum(map(int, input().split())))\n"
LANGUAGES = {
    "python3": ("main.py", ADD, PYTHON),
    "sh": ("main.sh", "read a b\necho $((a + b))\n", {"run": ["sh", "main.sh"], "cases": CASES}),
    "gcc": (
        "main.c",
        '#include <stdio.h>\nint main(void) { int a, b; scanf("%d %d", &a, &b); printf("%d\\n", a + b); }\n',
        {"build": ["gcc", "-o", "main", "main.c"], "run": ["./main"], "cases": CASES},
    ),
    "node": (
        "main.js",
        "const [a, b] = require('fs').readFileSync(0, 'utf8').split(' ').map(Number); console.log(a + b);\n",
        {"run": ["node", "--jitless", "main.js"], "cases": CASES},
    ),
}


@pytest.fixture
def scorer():
    return ProgramScorer(case_seconds=scaled(5.0), seconds=scaled(60.0))


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_program_of_any_language_is_judged(judge, scorer, language):
    if shutil.which(language) is None:
        pytest.skip(f"this machine has no {language}")
    path, source, grading = LANGUAGES[language]

    right = await judge(scorer, grading, {path: source})
    wrong = await judge(scorer, grading, {path: source.replace("+", "-").replace("sum", "max")})

    assert (right.score, right.status) == (1.0, "ok"), right.comment or right.error
    assert (wrong.score, wrong.status) == (0.0, "ok")


async def test_partial_credit_follows_the_declared_weights(judge):
    cases = [{**case, "weight": weight} for case, weight in zip(CASES, (1, 2, 5), strict=True)]
    source = "a, b = map(int, input().split())\nprint(a + b if b > 3 else 0)\n"

    whole = await judge(ProgramScorer(), PYTHON | {"cases": cases}, {"main.py": source})
    share = await judge(ProgramScorer(partial=True), PYTHON | {"cases": cases}, {"main.py": source})

    assert (whole.score, share.score) == (0.0, 7 / 8)
    assert '"found":"0\\n"' in share.comment


@pytest.mark.parametrize("isolated", [False, True])
async def test_one_case_has_no_effect_on_the_next_where_each_has_a_box(judge, isolated):
    source = "import os, pathlib\nprint(os.path.exists('kept'))\npathlib.Path('kept').touch()\n"
    cases = [{"expected": "False\n"}, {"expected": f"{not isolated}\n"}]

    assert (await judge(ProgramScorer(isolated=isolated), PYTHON | {"cases": cases}, {"main.py": source})).score == 1.0


ENDINGS = {
    "loops": ("while True: pass\n", "took too long"),
    "sleeps": ("import time\ntime.sleep(600)\n", "took too long"),
    "hogs": ("found = []\nwhile True: found.append(bytearray(1 << 20))\n", "memory"),
    "shouts": ("while True: print('x' * 10000)\n", "wrote too much"),
    "raises": ("print(3)\nraise ValueError\n", "exit status 1"),
    "kills itself": ("import os\nos.kill(os.getpid(), 11)\n", "signal 11"),
    "no such file": (None, "exit status 2"),
}


@pytest.mark.parametrize("name", mark_long(ENDINGS, "sleeps", "raises"))
async def test_a_run_that_does_not_end_well_fails_its_case_and_no_other(judge, name):
    source, why = ENDINGS[name]
    cases = [{"args": [word], "expected": "3\n", "seconds": 1.0, "memory_mb": 64} for word in ("bad", "good")]
    grading = PYTHON | {"cases": cases}
    whole = f"import sys\nif sys.argv[1] == 'good':\n    print(3)\n    sys.exit()\n{source}"

    reward = await judge(ProgramScorer(partial=True), grading, {"main.py": whole} if source else {})

    assert (reward.status, reward.score) == ("ok", 0.5 if source else 0.0)
    assert why in reward.comment


async def test_memory_is_limited_for_each_case(judge):
    source = "kept = bytearray(96 << 20)\nprint(len(kept) >> 20)\n"
    cases = [{"expected": "96\n", "memory_mb": memory_mb} for memory_mb in (200, 48, 210)]

    reward = await judge(ProgramScorer(partial=True), PYTHON | {"cases": cases}, {"main.py": source})

    assert reward.score == pytest.approx(2 / 3), reward.comment


async def test_a_program_that_cannot_be_built_scores_0_with_what_the_compiler_wrote(judge):
    grading = {"build": ["sh", "-c", "echo broken >&2; exit 3"], "run": ["./main"], "cases": CASES}

    reward = await judge(ProgramScorer(), grading, {"main.c": ""})

    assert (reward.score, reward.status) == (0.0, "ok")
    assert "exit status 3: broken" in reward.comment


CHECKER = """
import os, sys
asked, found, answer = (open(name).read() for name in sys.argv[1:])
assert not os.path.exists("main.py"), "the judged program is not here"
numbers = [int(one) for one in found.split()]
if numbers == [99]: os.kill(os.getpid(), 9)
if numbers == [98]:
    while True: pass
sys.exit(0 if sum(numbers) == int(asked) and answer == "any two" else 1)
"""


@pytest.mark.parametrize(
    ("output", "wanted"),
    [
        *(("3 4", 1.0), ("3 5", 0.0), ("99", 0.0)),
        *(
            pytest.param(output, wanted, marks=pytest.mark.long)
            for output, wanted in (("7", 1.0), ("x", 0.0), ("98", 0.0))
        ),
    ],
)
async def test_a_checker_decides_in_a_box_of_its_own(judge, output, wanted):
    grading = {
        "run": ["python3", "main.py"],
        "compare": "checker",
        "checker": {"run": ["python3", "-I", "check.py"], "files": {"check.py": CHECKER}},
        "cases": [{"stdin": "7", "expected": "any two"}],
    }

    reward = await judge(ProgramScorer(check_seconds=1.0), grading, {"main.py": f"print({output!r})\n"})

    assert (reward.score, reward.status) == (wanted, "ok"), reward.comment


async def test_what_is_expected_is_nowhere_in_the_box(judge):
    source = """
import subprocess
look = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ; find /work /tmp /dev/shm -type f ! -name main.py | xargs -r cat"
print("found" if b"s3cret" in subprocess.run(look, shell=True, capture_output=True).stdout else 3)
"""
    cases = [{"expected": "3\n"}, {"expected": "s3cret\n"}]

    reward = await judge(ProgramScorer(partial=True), PYTHON | {"cases": cases}, {"main.py": source})

    assert reward.score == 0.5, reward.comment


async def test_a_program_that_is_slow_on_purpose_fails_before_its_scorer_is_too_slow(judge):
    cases = [{"expected": ""}] * 40

    reward = await judge(
        ProgramScorer(partial=True, case_seconds=0.5, seconds=1.0),
        PYTHON | {"cases": cases},
        {"main.py": "import time\ntime.sleep(60)\n"},
        seconds=scaled(20),
    )

    assert (reward.score, reward.status) == (0.0, "ok")


@pytest.mark.parametrize(
    "grading",
    [
        None,
        [],
        {"run": [], "cases": CASES},
        {"run": ["x"], "cases": []},
        {"run": ["x"], "cases": [{"stdin": "1"}]},
        {"run": ["x"], "cases": [{"expected": "1", "weight": 0}]},
        {"run": ["x"], "cases": [{"expected": "1", "compare": "checker"}]},
        {"run": ["x"], "cases": [{"expected": "1", "wanted": "1"}]},
    ],
)
async def test_a_grading_of_another_form_is_null(judge, grading):
    reward = await judge(ProgramScorer(), grading, {})

    assert (reward.score, reward.status) == (None, "verifier_error")
    assert "correct it" in reward.error or "add" in reward.error
