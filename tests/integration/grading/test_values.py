"""Data-only scorer in real boxes: what is right scores 1, and nothing else does."""

import asyncio

import pytest

from envs.grading import ValueScorer

from ...waiting import scaled, within

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEAN = """
def mean(numbers):
    print("computing")
    if not numbers:
        raise ValueError("empty")
    return sum(numbers) / len(numbers)


def order(items):
    items.sort()


class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        return self.items.pop()
"""
CASES = [
    {"call": "stats:mean", "args": [[1, 2, 3, 4]], "expected": 2.5},
    {"call": "stats:mean", "kwargs": {"numbers": [0.1, 0.2]}, "expected": 0.15, "tolerance": 1e-9},
    {"call": "stats:mean", "args": [[]], "raises": "ValueError"},
    {"call": "stats:order", "args": [[3, 1, 2]], "mutates": True, "expected": [None, [1, 2, 3]]},
    {"call": "stats:Stack", "then": [["push", [5]], ["pop", []], ["items", None]], "expected": [None, 5, []]},
]


@pytest.mark.parametrize("scorer", [ValueScorer(), ValueScorer(isolated=True)])
async def test_right_code_scores_1_though_it_prints(judge, scorer):
    assert (await judge(scorer, CASES, {"stats.py": MEAN})).score == 1.0


async def test_wrong_code_scores_0_or_its_share(judge):
    wrong = MEAN.replace("items.sort()", "return sorted(items)")

    whole = await judge(ValueScorer(), CASES, {"stats.py": wrong})
    share = await judge(ValueScorer(partial=True), CASES, {"stats.py": wrong})

    assert (whole.score, whole.status, share.score) == (0.0, "ok", 0.8)
    assert '"found":"[[1, 2, 3], [3, 1, 2]]"' in whole.comment


@pytest.mark.parametrize(
    "files",
    [{}, {"stats.py": "def mean(:"}, {"stats.py": "import os; os._exit(0)"}, {"stats.py": "while True: pass"}],
)
async def test_code_that_gives_no_answer_scores_0(judge, files):
    reward = await judge(ValueScorer(call_seconds=0.5), CASES, files)

    assert (reward.score, reward.status) == (0.0, "ok")


async def test_slow_code_scores_0_before_its_scorer_is_too_slow(judge):
    slow = "import time\n\ndef f():\n    time.sleep(0.4)\n"
    scorer = ValueScorer(isolated=True, call_seconds=0.5, seconds=1.0)

    reward = await judge(scorer, [{"call": "slow:f", "expected": None}] * 40, {"slow.py": slow}, seconds=scaled(10))

    assert (reward.score, reward.status) == (0.0, "ok")


async def test_an_answer_that_no_file_can_hold_scores_0(judge):
    grading = [{"call": "answer:f", "expected": 1}]

    reward = await judge(ValueScorer(answer_path="answer.py"), grading, result="\ud800")

    assert (reward.score, reward.status) == (0.0, "ok")


async def test_a_forged_answer_with_a_lone_surrogate_is_tampering(judge):
    forged = """
import os
BODY = b'{"\\\\ud800": 1}'
def f():
    for descriptor in range(3, 40):
        try:
            os.write(descriptor, b"%08d" % len(BODY) + BODY)
        except OSError:
            pass
    os._exit(0)
"""

    reward = await judge(ValueScorer(), [{"call": "forged:f", "expected": 1}], {"forged.py": forged})

    assert (reward.score, reward.status) == (0.0, "tampering")


async def test_a_check_sees_plain_values(judge, write_module):
    write_module("value_checks", "def is_sorted(arguments, value): return value == (sorted(arguments[0]), None)\n")
    case = {"call": "own:sort", "args": [[2, 1]], "check": "value_checks:is_sorted"}

    assert (await judge(ValueScorer(), [case], {"own.py": "def sort(x): return sorted(x), None"})).score == 1.0
    assert (await judge(ValueScorer(), [case], {"own.py": "def sort(x): return sorted(x)"})).score == 0.0


async def test_a_check_that_raises_fails_the_case_and_the_evidence_names_its_error(judge, write_module):
    write_module("broken_checks", "def holds(arguments, value): return value['key'] == 1\n")

    reward = await judge(
        ValueScorer(), [{"call": "own:f", "check": "broken_checks:holds"}], {"own.py": "def f(): return 1"}
    )

    assert reward.score == 0.0
    assert "the check raised TypeError" in (reward.comment or "")


async def test_what_the_agent_returned_is_judged_with_the_files_of_task_and_grading(judge):
    grading = {"cases": [{"call": "answer:f", "expected": [1, 3]}], "files": {"kept.py": "B = 3\n"}}
    answer = "import given, kept\n\ndef f():\n    return [given.A, kept.B]\n"

    reward = await judge(
        ValueScorer(answer_path="answer.py"),
        grading,
        {"kept.py": "B = 2\n"},
        result=answer,
        own_files={"given.py": "A = 1\n"},
    )

    assert reward.score == 1.0


@pytest.mark.parametrize(
    "grading",
    [
        None,
        [],
        [{"call": "f", "expected": 1}],
        [{"call": "m:f"}],
        [{"call": "m:f", "expected": 1, "raises": "E"}],
        [{"call": "m:f", "expect": 1}],
    ],
)
async def test_a_grading_of_another_form_is_null(judge, grading):
    reward = await judge(ValueScorer(), grading, {})

    assert (reward.score, reward.status) == (None, "verifier_error")
    assert "correct it" in reward.error


RAISES = [{"call": "fine:f", "raises": "KeyError"}]
CONTRADICTIONS = {
    "both forms": {"value": 1, "raised": "KeyError"},
    "both forms, the other order": {"raised": "KeyError", "value": None},
    "an exception of no name": {"raised": None},
    "an exception that is a value": {"raised": {"value": "KeyError"}},
    "a value and no exception": {"value": 1, "raised": None},
    "a member beside the value": {"value": 1, "right": True},
    "a member beside the exception": {"raised": "KeyError", "why": ""},
    "no member": {},
    "a list": [["raised", "KeyError"]],
    "a text": "KeyError",
}


@pytest.mark.parametrize("case", [RAISES, [{"call": "fine:f", "expected": 1}]], ids=["raises", "expected"])
@pytest.mark.parametrize("answer", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
async def test_an_answer_that_honest_code_cannot_write_is_tampering(judge, answer, case):
    forged = f"import __main__, json\n__main__._dumps = lambda _: json.dumps({answer!r})\n\ndef f():\n    return 1\n"

    reward = await judge(ValueScorer(), case, {"fine.py": forged})

    assert (reward.score, reward.status) == (0.0, "tampering")


REPORTS = {
    "a member beside the answers": {"answers": ["{}", "{}"], "right": []},
    "no answers": {"answers": []},
    "too few, and none was slow": {"answers": ['{"value": 1}']},
    "too many": {"answers": ['{"value": 1}'] * 3},
    "answers that are no texts": {"answers": [{"value": 1}, {"value": 1}]},
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
async def test_a_report_that_honest_code_cannot_write_is_tampering(judge, report):
    forged = f"import json, os\nbody = json.dumps({report!r}).encode()\n"
    forged += "parent = f'/proc/{os.getppid()}'\n"
    forged += "for n in os.listdir(parent + '/fd'):\n"
    forged += "    if 'pipe' in os.readlink(f'{parent}/fd/{n}') or 'socket' in os.readlink(f'{parent}/fd/{n}'):\n"
    forged += "        open(f'{parent}/fd/{n}', 'wb', 0).write(body)\nos.kill(os.getppid(), 9)\n"

    reward = await judge(ValueScorer(), [{"call": "fine:f", "expected": 1}] * 2, {"fine.py": forged})

    assert reward.score == 0.0


CHECKS = """
import os, time

def equals(arguments, value): return value == arguments[0]

def is_slow(arguments, value):
    while value == "slow": time.sleep(0.01)
    return True

def ends(arguments, value):
    print("a line", flush=True)
    if value == "ends": os._exit(0)
    return True

def exits(arguments, value): raise SystemExit(value)
"""


@pytest.mark.parametrize("check", ["is_slow", "ends"])
async def test_a_check_is_a_no_where_a_value_makes_it_slow_or_end_its_process(judge, write_module, check):
    write_module("own_checks", CHECKS)
    cases = [{"call": "own:f", "args": [word], "check": f"own_checks:{check}"} for word in ("a", "slow", "ends", "b")]
    scorer = ValueScorer(partial=True, check_seconds=0.5, seconds=scaled(600))

    async with within(20, "an answer, for which no check takes all the time that there is"):
        reward = await judge(scorer, cases, {"own.py": "def f(x): return x"}, seconds=scaled(600))

    assert (reward.status, reward.score) == ("ok", 0.25 if check == "is_slow" else 0.5)
    assert "took too long" in reward.comment or "ended its process" in reward.comment


async def test_a_check_that_exits_is_a_no(judge, write_module):
    write_module("own_checks", CHECKS)

    reward = await judge(
        ValueScorer(), [{"call": "own:f", "check": "own_checks:exits"}], {"own.py": "def f(): return 0"}
    )

    assert (reward.status, reward.score) == ("ok", 0.0)


async def test_a_check_blocks_no_attempt_beside_it(judge, write_module):
    write_module("own_checks", CHECKS)
    files = {"own.py": "def f(x): return x"}

    async def judge_word(word):
        case = {"call": "own:f", "args": [word], "check": "own_checks:is_slow"}
        return await judge(ValueScorer(check_seconds=scaled(2.0)), [case], files, seconds=scaled(30))

    found = await asyncio.gather(*map(judge_word, ["slow", *"abcdefg"]))

    assert [reward.score for reward in found] == [0.0, *[1.0] * 7]
    assert {reward.status for reward in found} == {"ok"}


async def test_checks_and_expectations_keep_their_order(judge, write_module):
    write_module("own_checks", CHECKS)
    cases = [
        {"call": "own:f", "args": [1], "expected": 1},
        {"call": "own:f", "args": [2], "check": "own_checks:equals"},
        {"call": "own:f", "args": [3], "raises": "ValueError"},
        {"call": "own:f", "args": [4], "check": "own_checks:equals"},
        {"call": "own:f", "args": [5], "expected": 6},
    ]

    reward = await judge(ValueScorer(partial=True), cases, {"own.py": "def f(x): return x + (x == 4)"})

    assert reward.score == 0.4
    assert '"case":2' in reward.comment
    assert '"case":3' in reward.comment
    assert '"case":4' in reward.comment


@pytest.mark.parametrize("name", ["none_such:check", "own_checks:none_such"])
async def test_a_check_that_cannot_be_imported_is_the_scorers_failure(judge, write_module, name):
    write_module("own_checks", CHECKS)

    reward = await judge(ValueScorer(), [{"call": "own:f", "check": name}], {"own.py": "def f(): return 1"})

    assert (reward.status, reward.score) == ("verifier_error", None)
    assert "none_such" in reward.error
