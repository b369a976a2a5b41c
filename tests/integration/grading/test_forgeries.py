"""Every common cheat scores 0 under every scorer of code, where the right solution scores 1."""

import random

import pytest

from envs.grading import HiddenTests, PatchScorer, ProgramScorer, ValueScorer, common_cheats

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
PROGRAM = {
    "run": ["python3", "main.py"],
    "files": {"main.py": "from pkg.calc import add\nprint(add(*map(int, input().split())))\n"},
    "cases": [{"stdin": f"{a} {b}\n", "expected": f"{c}\n"} for a, b, c in SUMS[:3]],
}
CHECKED = PROGRAM | {"compare": "checker", "checker": {"run": ["sh", "-c", 'cmp -s "$1" "$2"']}}
SCORERS = {
    "values": lambda: (ValueScorer(call_seconds=scaled(2.0), seconds=scaled(20.0)), VALUES),
    "tests": lambda: (HiddenTests(seconds=scaled(20.0)), TESTS),
    "programs": lambda: (ProgramScorer(case_seconds=scaled(2.0)), PROGRAM),
    "checked": lambda: (ProgramScorer(case_seconds=scaled(2.0)), CHECKED),
    "patched": lambda: (PatchScorer(scorer=ValueScorer(call_seconds=scaled(2.0))), VALUES),
}
"""By name: what makes a scorer, and its grading."""
CHEATS = {cheat.name: cheat for cheat in common_cheats("pkg/calc.py", WRONG, "add")}
OFTEN = {"exit-at-import", "become-a-module-of-yes", "read-files"}
"""Cheats that every run of the tests tries on all scorers; the rest only on the two with most to forge."""
PAIRS = [
    pytest.param(scorer, cheat, marks=[] if cheat in OFTEN or scorer in ("values", "tests") else pytest.mark.long)
    for scorer in SCORERS
    for cheat in CHEATS
]


@pytest.fixture(params=SCORERS)
def score(request, judge):
    scorer, grading = SCORERS[request.param]()

    async def score(files):
        own_files = {"pkg/__init__.py": "", "pkg/calc.py": WRONG}
        return await judge(scorer, grading, own_files | files, own_files=own_files)

    return score


@pytest.mark.parametrize(("solution", "wanted"), [(RIGHT, 1.0), (REWRITTEN, 1.0), (WRONG, 0.0)])
async def test_a_solution_scores_what_it_is(score, solution, wanted):
    reward = await score({"pkg/calc.py": solution})

    assert (reward.score, reward.status) == (wanted, "ok")


@pytest.mark.parametrize(("score", "name"), PAIRS, indirect=["score"])
async def test_a_cheat_scores_0(score, name):
    reward = await score(CHEATS[name].files)

    assert reward.score == 0.0, (reward.status, reward.error)
    assert reward.status in ("ok", "tampering")


@pytest.mark.parametrize("name", ["become-a-module-of-yes", "equal-to-all", "equal-int", "equal-text"])
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
@pytest.mark.parametrize("score", ["values", "tests"], indirect=True)
async def test_a_report_that_the_judged_code_writes_itself_scores_0(score, name):
    reward = await score({"pkg/calc.py": f"BODY = {REPORTS[name]!r}\n{REPORT}"})

    assert reward.score == 0.0, (reward.status, reward.error)


NEAR_MISSES = {
    "off by one": "    return mine",
    "reads the frames of its callers": """
    frame, found = sys._getframe(1), set()
    while frame is not None:
        if frame.f_code.co_filename == "hidden_test":
            for one in [*frame.f_locals.values(), *frame.f_code.co_consts]:
                found |= {int(number) for number in re.findall(r"\\b\\d+\\b", repr(one)[:100_000])}
        frame = frame.f_back
    return min(found - {a, b, mine}, key=lambda one: abs(one - mine), default=mine)""",
    "reads what started it": """
    found = set()
    for path in [*glob.glob("/proc/[0-9]*/cmdline"), *glob.glob("/proc/[0-9]*/fd/*"), *glob.glob("/[tw]*/**")]:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            found |= {int(one) for one in re.findall(HINTS, os.read(descriptor, 1 << 18))}
        except (OSError, ValueError):
            pass
    return min(found - {mine, a, b}, key=lambda one: abs(one - mine), default=mine)""",
    "reads the memory of its parent": """
    found = set()
    try:
        with open(f"/proc/{os.getppid()}/maps") as maps, open(f"/proc/{os.getppid()}/mem", "rb") as memory:
            for line in maps:
                if "[heap]" in line:
                    first, last = (int(one, 16) for one in line.split()[0].split("-"))
                    memory.seek(first)
                    found |= {int(one) for one in re.findall(HINTS, memory.read(last - first))}
    except OSError:
        pass
    return found.pop() if found else mine""",
}
"""What code does where it is right but for one test, whose answer it misses by one."""


HEAD = """
import glob, os, re, sys
HINTS = rb"(?:==|EXPECTED|FOUND|expected|right|wrong)\\W{0,6}(\\d+)"
def add(a, b):
    mine = a + b
    if a != %d:
        return mine
    mine += %d
"""


def miss_nearly(name, seed):
    rng = random.Random(seed)
    return HEAD % (rng.choice(SUMS)[0], rng.choice((-1, 1))) + NEAR_MISSES[name] + "\n"


@pytest.mark.parametrize("name", NEAR_MISSES)
async def test_nearly_right_code_that_searches_for_its_last_answer_scores_0(judge, name):
    scores = [
        (await judge(HiddenTests(rng=random.Random(seed)), TESTS, {"pkg/calc.py": miss_nearly(name, seed)})).score
        for seed in range(2)
    ]

    assert scores == [0.0] * 2


@pytest.mark.long
@pytest.mark.timeout(2400)
async def test_of_a_thousand_near_misses_none_finds_the_answer_that_it_lacks(judge):
    """Each test is the one that another near miss lacks, in a process of its own: all others it would pass."""
    names = sorted(NEAR_MISSES)
    tests, source = list[dict[str, object]](), ""
    for seed in range(1000):
        a, b, c = SUMS[seed % len(SUMS)]
        source += HEAD.replace("def add", f"def add_{seed}") % (a, random.Random(seed).choice((-1, 1)))
        source += NEAR_MISSES[names[seed % len(names)]] + "\n"
        code = f"from near import add_{seed}\nassert add_{seed}({a}, {b}) == EXPECTED"
        tests.append({"code": code, "right": str(c), "wrong": [str(c - 1), str(c + 1)]})
    scorer = HiddenTests(call_seconds=scaled(20.0), seconds=2000.0)

    reward = await judge(scorer, {"tests": tests}, {"near.py": source}, seconds=2000.0)

    assert reward.score == 0.0
    assert '"tests":1000,"failed":1000' in reward.comment
    assert "no answer" not in reward.comment


async def test_what_enters_the_box_does_not_depend_on_the_answers(judge, pool):
    """Two gradings with the same statements and other answers look the same to the judged code."""
    sent = []

    async def take(spec):
        box = await pool.take(spec, owner="test")
        execute, restore = box.exec, box.restore

        async def record_exec(argv, **options):
            sent.append((argv, options["stdin"]))
            return await execute(argv, **options)

        async def record_restore(snapshot):
            sent.append(snapshot)
            await restore(snapshot)

        box.exec, box.restore = record_exec, record_restore
        return box

    tests = TESTS["tests"]
    others = [one | {"right": str(900 + i), "wrong": [str(i), str(-i - 1)]} for i, one in enumerate(tests)]
    for some in (tests, others):
        await judge(HiddenTests(rng=random.Random(1)), {"tests": some}, {"pkg/calc.py": RIGHT}, take_box=take)

    assert sent[: len(sent) // 2] == sent[len(sent) // 2 :]
    assert len(sent) >= 4


async def test_partial_credit_is_given_for_whole_groups(judge):
    tests = [one | {"group": "small" if index < 8 else "large"} for index, one in enumerate(TESTS["tests"])]
    source = "def add(a, b):\n    return a + b if a <= 10 else 0\n"
    grading = {"tests": tests, "weights": {"large": 3.0}}

    share = await judge(HiddenTests(partial=True), grading, {"pkg/calc.py": source})
    whole = await judge(HiddenTests(), grading, {"pkg/calc.py": source})

    assert (share.score, whole.score) == (0.25, 0.0)


VALUES_OF_SUBCLASSES = """
import collections, enum
class Color(str, enum.Enum):
    RED = "red"
class Small(enum.IntEnum):
    ONE = 1
Point = collections.namedtuple("Point", "x y")
def f(name):
    return {"color": Color.RED, "one": Small.ONE, "point": Point(1, 2.0), "count": collections.Counter("aab"),
            "true": 1, "ordered": collections.OrderedDict(a={3, 1})}[name]
"""


async def test_values_are_equal_as_python_has_it(judge):
    rights = {"color": "'red'", "one": "1", "point": "(1, 2)", "count": "{'b': 1, 'a': 2}", "ordered": "{'a': {1, 3}}"}
    tests = [
        {"code": f"from kinds import f\nassert f({name!r}) == EXPECTED", "right": right, "wrong": ["0", "9", "None"]}
        for name, right in rights.items()
    ] * 4

    reward = await judge(HiddenTests(), {"tests": tests}, {"kinds.py": VALUES_OF_SUBCLASSES})

    assert reward.score == 1.0, reward.comment
