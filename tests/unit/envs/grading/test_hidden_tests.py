"""Hidden tests: gradings whose answers could be guessed are refused, and what enters a box says nothing about them."""

import random
from itertools import product

import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BadInputError
from envs.grading.hidden_tests import HiddenTest, HiddenTests, guess_chance, read_tests
from envs.registry import hash_scorer


def make_test(index, right=None, wrong=None, **fields):
    right = index if right is None else right
    return {
        "code": f"assert f({index}) == EXPECTED",
        "right": str(right),
        "wrong": [str(one) for one in ([index + 1, index - 1] if wrong is None else wrong)],
        **fields,
    }


def make_grading(tests, num_tests=20, **fields):
    return {"tests": [tests(index) for index in range(num_tests)], **fields}


def with_code(code):
    return make_grading(lambda index: make_test(index) | {"code": code})


@pytest.mark.parametrize(
    ("grading", "reason"),
    [
        (None, "holds no tests"),
        (make_grading(make_test, 19), "fewest"),
        (make_grading(lambda index: make_test(index, wrong=[])), "holds no tests"),
        (make_grading(lambda index: make_test(index, wrong=[index, index + 1])), "right and wrong"),
        (make_grading(lambda index: make_test(index, right="Fraction(1, 2)")), "no plain Python literal"),
        (make_grading(lambda index: make_test(index, right="2j")), "no plain Python literal"),
        (make_grading(lambda index: make_test(index, right="{[1]: 2}")), "no plain Python literal"),
        (make_grading(lambda index: make_test(index, wrong=["-" * 9000 + "1"])), "no plain Python literal"),
        (make_grading(lambda index: make_test(index, right="[" * 60 + "]" * 60)), "no plain Python literal"),
        (make_grading(lambda index: make_test(index, wrong=[f"{index}.0"])), "right and wrong"),
        (make_grading(lambda index: make_test(index, wrong=[index + 0.4], tolerance=0.5)), "right and wrong"),
        (
            make_grading(lambda index: make_test(index, right=["1", "1.0", "True"][index % 3], wrong=[5])),
            r"guessed with 2\^0\.0",
        ),
        (make_grading(make_test, weights={"": float("inf")}), "holds no tests"),
        (make_grading(make_test, weights={"": 1e308}), "holds no tests"),
        (with_code("return\nassert f(1) == EXPECTED"), "no Python"),
        (make_grading(lambda index: make_test(index, right=True, wrong=[False])), r"guessed with 2\^0\.0"),
        (make_grading(lambda index: make_test(index, right=index > 3, wrong=[index <= 3])), r"guessed with 2\^-9"),
        (make_grading(lambda index: make_test(index, right=index > 8, wrong=[index <= 8])), r"guessed with 2\^-1"),
        (make_grading(make_test, weights={"other": 2.0}), "no test is in the group 'other'"),
        (with_code("assert f()"), "no EXPECTED"),
        (with_code("assert EXPECTED ="), "no Python"),
        (with_code("pass\n  pass # EXPECTED"), "no Python"),
        (with_code("assert EXPECTED in f(1)"), "only assertion"),
        (with_code("assert f(EXPECTED) == 3"), "only assertion"),
        (with_code("assert f(1) == EXPECTED == 3"), "only assertion"),
        (with_code("assert abs(f(1) - EXPECTED) < 1"), "only assertion"),
        (with_code("assert f(1)\nassert f(1) == EXPECTED"), "only assertion"),
        (with_code("assert f(1) == EXPECTED\nassert EXPECTED"), "only assertion"),
        (with_code("if f(1) == EXPECTED:\n    pass"), "only assertion"),
    ],
)
def test_what_can_be_guessed_or_read_is_refused(grading, reason):
    with pytest.raises(BadInputError, match=reason):
        read_tests(grading, "t")


def test_one_wrong_value_in_several_forms_is_one_guess():
    tests = [HiddenTest(**make_test(index, wrong=["-1", "-1.0", "(-1)"])) for index in range(20)]

    assert guess_chance(tests) == 2.0**-20


def test_booleans_will_do_when_both_are_right_as_often():
    grading = make_grading(lambda index: make_test(index, right=index % 2 == 0, wrong=[index % 2 == 1]))

    assert guess_chance(read_tests(grading, "t").tests) == 2.0**-20


def test_each_group_that_earns_a_credit_must_be_as_hard_to_guess_as_a_whole_set():
    two = make_grading(lambda index: make_test(index, group="ab"[index % 2]), 26)
    uneven = make_grading(lambda index: make_test(index, group="a" if index < 5 else "b"), 26)

    assert len(read_tests(two, "t", partial=True).tests) == 26
    assert len(read_tests(uneven, "t").tests) == 26
    with pytest.raises(BadInputError, match=r"the 5 tests of group 'a' can be guessed with 2\^-7\.9"):
        read_tests(uneven, "t", partial=True)
    with pytest.raises(BadInputError, match="its tests have one"):
        read_tests(make_grading(make_test), "t", partial=True)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=5))
def test_no_blind_guess_beats_the_arithmetic(drawn):
    rows = [make_test(0, right, [right + 1 + other for other in range(number)]) for right, number in drawn]
    tests = [HiddenTest(**row) for row in rows]
    guesses = list(product(*[[test.right, *test.wrong] for test in tests]))
    constants = {test.right for test in tests}

    hits = sum(list(guess) == [test.right for test in tests] for guess in guesses) / len(guesses)
    by_one_answer = max(float(all(test.right == one for test in tests)) for one in constants)

    assert max(hits, by_one_answer) <= guess_chance(tests) * (1 + 1e-9)


def test_another_source_of_randomness_is_the_same_scorer():
    assert hash_scorer(HiddenTests(rng=random.Random(1))) == hash_scorer(HiddenTests())
    assert hash_scorer(HiddenTests(seconds=1)) != hash_scorer(HiddenTests())
