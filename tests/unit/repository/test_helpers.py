"""The check of helpers counts those that could stand where they are called, and no others."""

import runpy
from pathlib import Path

import pytest

CHECKER = Path(__file__).parents[3] / ".ci" / "check_helpers.py"
HELPER = 'def _open(path):\n    """Return it."""\n    return path.open()\n\n'


@pytest.fixture(scope="module")
def count():
    checker = runpy.run_path(str(CHECKER))
    return lambda source: [helper.name for helper in checker["find_helpers"](source)]


@pytest.mark.parametrize("call", ["_open(a)", "b = _open(a)", "b: int = _open(a)", "return _open(a)"])
def test_a_helper_with_one_caller_that_is_a_whole_statement_counts(count, call):
    assert count(f"{HELPER}def f(a):\n    {call}\n") == ["_open"]


def test_a_method_and_a_coroutine_count(count):
    source = "class A:\n    async def f(self):\n        await self._g()\n    async def _g(self):\n        pass\n"

    assert count(source) == ["_g"]


@pytest.mark.parametrize(
    "source",
    [
        f"{HELPER}def f(a):\n    _open(a)\n    _open(a)\n",
        f"{HELPER}def f(a):\n    return [_open(a)]\n",
        f"{HELPER}def f(a):\n    return map(_open, a)\n",
        f"@cache\n{HELPER}def f(a):\n    return _open(a)\n",
        "def _open(a):\n    yield a\n\ndef f(a):\n    return _open(a)\n",
        "def _open(a):\n    1\n    2\n    3\n    4\n\ndef f(a):\n    return _open(a)\n",
        "def _open(a):  # kept: the name says more\n    return a\n\ndef f(a):\n    return _open(a)\n",
        "class A(B):\n    def _set(self):\n        super()._set()\n",
        "class A:\n    def _g(self): 1\n    def f(self):\n        self._g()\nclass B(A):\n    def _g(self): 2\n",
        "async def _g():\n    1\n\ndef f():\n    return _g()\n",
        "def open_it(a):\n    return a\n\ndef f(a):\n    return open_it(a)\n",
    ],
)
def test_what_cannot_or_should_not_be_inlined_does_not_count(count, source):
    assert count(source) == []
