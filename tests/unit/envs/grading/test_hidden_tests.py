"""Hidden tests with twins: gradings that could be guessed are refused."""

import random

import pytest

from agent_layer.errors import BadInputError
from agent_layer.schema.sandbox import ExecResult
from envs.grading.hidden_tests import HiddenTests, _judge as judge_results, _read_results as read_results, read_tests
from envs.grading.plain import ForgedJsonError
from envs.registry import hash_scorer


def make_test(index, right=None, wrong=None):
    right = index if right is None else right
    return {
        "code": f"assert f({index}) == EXPECTED",
        "right": str(right),
        "wrong": [str(one) for one in ([index + 1, index - 1] if wrong is None else wrong)],
    }


def make_grading(tests, num_tests=20):
    return {"tests": [tests(index) for index in range(num_tests)]}


@pytest.mark.parametrize(
    ("grading", "reason"),
    [
        (None, "holds no tests"),
        (make_grading(make_test, 19), "fewest"),
        (make_grading(lambda index: make_test(index) | {"code": "assert f()"}), "no EXPECTED"),
        (make_grading(lambda index: make_test(index, wrong=[index, index + 1])), "right and wrong"),
        (make_grading(lambda index: make_test(index) | {"code": "assert EXPECTED ="}), "no Python"),
        (make_grading(lambda index: make_test(index) | {"code": "pass\n  pass # EXPECTED"}), "no Python"),
        (make_grading(lambda index: make_test(index, wrong=[index + 1, index + 2])), "every wrong number is larger"),
        (make_grading(lambda index: make_test(index, wrong=[index - 1, index - 2])), "every wrong number is smaller"),
        (make_grading(lambda index: make_test(index, right=True, wrong=[False])), "is right in"),
        (make_grading(lambda index: make_test(index, right=f"'{index}'", wrong=["None", "1"])), "is right in 0"),
        (make_grading(lambda index: make_test(index, wrong=[index + 1])), "a trap needs two different"),
        (make_grading(lambda index: make_test(index, wrong=[index + 1, index + 1])), "a trap needs two different"),
    ],
)
def test_what_can_be_guessed_or_read_from_the_text_is_refused(grading, reason):
    with pytest.raises(BadInputError, match=reason):
        read_tests(grading, "t")


def test_booleans_will_do_when_both_are_right_as_often():
    grading = make_grading(lambda index: make_test(index, right=index % 2 == 0, wrong=[index % 2 == 1]))

    assert len(read_tests(grading, "t").tests) == 20


def test_names_order_and_twins_differ_in_each_run():
    tests = read_tests(make_grading(make_test), "t").tests
    scorer = HiddenTests(rng=random.Random(7))

    (pairs, text), (other_pairs, other_text) = scorer._render(tests, set()), scorer._render(tests, set())

    names = {name for pair in pairs for name in (pair.real, pair.twin)}
    assert len(names) == 40
    assert names.isdisjoint({name for pair in other_pairs for name in (pair.real, pair.twin)})
    assert text != other_text
    assert text.count("def ") == 40


def test_every_test_is_real_in_one_run_and_a_trap_in_the_other():
    scorer, tests = HiddenTests(rng=random.Random(7)), read_tests(make_grading(make_test), "t").tests

    first, second = scorer._draw_traps(tests)

    assert (len(first), len(second), first | second) == (10, 10, set(range(20)))
    pairs, text = scorer._render(tests, first)
    assert [index for index, pair in enumerate(pairs) if pair.is_trap] == sorted(first)
    assert [index for index in range(20) if f"f({index}) == ({index})" not in text] == sorted(first)


def test_another_source_of_randomness_is_the_same_scorer():
    assert hash_scorer(HiddenTests(rng=random.Random(1))) == hash_scorer(HiddenTests())
    assert hash_scorer(HiddenTests(seconds=1)) != hash_scorer(HiddenTests())


@pytest.mark.parametrize(
    ("change", "status", "score"),
    [
        (lambda results: results, "ok", 1.0),
        (lambda results: results[:-1], "ok", 0.0),
        (lambda _: [], "ok", 0.0),
        (lambda results: [(name, "failed") for name, _ in results], "ok", 0.0),
        (lambda results: [(name, "error" if one == "failed" else one) for name, one in results], "ok", 0.0),
        (lambda results: [(name, "passed") for name, _ in results], "tampering", None),
        (lambda results: [*results, ("test_of_mine", "passed")], "tampering", None),
        (lambda results: [*results, results[0]], "tampering", None),
    ],
)
def test_only_the_exact_pattern_scores_1(change, status, score):
    pairs, _ = HiddenTests()._render(read_tests(make_grading(make_test), "t").tests, set(range(10)))
    results = [
        one for pair in pairs for one in ((pair.real, "failed" if pair.is_trap else "passed"), (pair.twin, "failed"))
    ]

    verdict = judge_results(pairs, change(results), "reward", ExecResult(status="exited"))

    assert (verdict.status, verdict.scores.get("reward")) == (status, score)


def test_ending_the_run_with_success_is_a_forgery_and_a_crash_is_not():
    with pytest.raises(ForgedJsonError):
        read_results(ExecResult(status="exited", exit_code=0))
    with pytest.raises(ForgedJsonError):
        read_results(ExecResult(status="exited", exit_code=0, stdout=b'{"results": 1}'))

    assert read_results(ExecResult(status="exited", exit_code=1)) == []
    assert read_results(ExecResult(status="signalled", signal=11, stdout=b"{")) == []
