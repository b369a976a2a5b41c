"""Canaries of repository tests: they look like the tests beside them, and fail wherever these pass."""

import random

import pytest

from agent_layer.errors import BadInputError
from envs.grading import RepositoryTests
from envs.grading.repository_tests import RepositoryGrading, _spoil_tests as spoil_tests, read_lists


def test_canaries_look_like_the_tests_beside_them_and_differ_in_each_run():
    listed = [f"tests/test_{kind}.py::test_{index}" for kind in "ab" for index in range(3)]
    grading = RepositoryGrading(fail_to_pass=listed)
    runs = [dict(RepositoryTests(rng=random.Random(seed))._plant(grading)) for seed in range(200)]

    for planted in runs:
        assert len({test for tests, _ in planted.values() for test in tests}) == 6
        assert all(path.startswith(("tests/test_a_", "tests/test_b_")) for path in planted)
    assert len({tuple(planted) for planted in runs}) > 150


@pytest.mark.parametrize(
    "test", ["test_a.py", "../test_a.py::f", "/test_a.py::f", "./test_a.py::f", "-x.py::f", "a.rst::a.rst", "a.py::b.f"]
)
def test_what_no_canary_can_stand_beside_is_refused(test):
    with pytest.raises(BadInputError, match="expected tests such as"):
        read_lists({"fail_to_pass": [test]}, "t")


@pytest.mark.parametrize("test", ["a b/test_é.py::test_é[a::b [c]]", "a.py::TestA::test_b", "test_a.py::check_b"])
def test_names_as_pytest_writes_them_are_read(test):
    assert read_lists({"fail_to_pass": [test]}, "t").fail_to_pass == [test]


SPOILED = {
    "def test_x():\n    assert f(1) == 3\n": True,
    "def test_x():\n    value = f(1)\n    assert value\n    assert value == g(3), 'a message'\n": True,
    "@pytest.mark.parametrize('a', [1])\ndef test_x(a):\n    assert f(a) == 3\n": True,
    "async def test_x():\n    assert await f(1) == 3\n": True,
    "def test_x():\n    assert f(1)\n": False,
    "def test_x():\n    if f(1):\n        assert f(1) == 3\n": False,
    "def test_x():\n    if f(1):\n        return\n    assert f(1) == 3\n": False,
    "@pytest.mark.skipif(True)\ndef test_x():\n    assert f(1) == 3\n": False,
    "def test_other():\n    assert f(1) == 3\n": False,
    "def test_x(:": False,
}


@pytest.mark.parametrize(("text", "wanted"), SPOILED.items())
def test_a_test_is_spoiled_only_where_it_fails_whenever_it_passed(text, wanted):
    spoiled, made = spoil_tests(text, {"test_x"}, "s3cret")

    assert spoiled == (["test_x"] if wanted else [])
    assert ("s3cret" in made) is wanted
    assert "test_other" not in made


def test_methods_are_spoiled_and_what_is_around_them_stays():
    text = "import a\nclass TestX(B):\n    size = 3\n    def setUp(self):\n        pass\n    def test_x(self):\n"
    text += "        self.assertEqual(f(1), 3)\n    def test_y(self):\n        pass\n"

    spoiled, made = spoil_tests(text, {"TestX::test_x"}, "s3cret")

    assert spoiled == ["TestX::test_x"]
    assert "self.assertEqual(f(1), 's3cret')" in made
    assert "setUp" in made
    assert "test_y" not in made
