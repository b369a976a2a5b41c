"""A scorer that evaluates answers, itself or in a helper, evaluates formulas and no programs."""

from pathlib import Path

import pytest

from envs.adapters.forked_calls import call_forked


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def _score(text, helper="evaluate"):
    return call_forked("guarded_functions:prepare", {"helper": helper}, text, cpu_seconds=5)


@pytest.mark.parametrize("text", ["4", "[4]", "2 + 2", "0x4", "'four'"])
def test_a_formula_is_evaluated(text):
    assert _score(text).value == 1


@pytest.mark.parametrize(
    "text",
    [
        *("oracle", "(lambda: oracle)()", "[one for one in [4]]", "().__class__ or 4", "f'{oracle}'"),
        *("__import__('os') and 4", "open('/') or 4", "eval('4')", "(four := 4)", "9**9**9**9"),
    ],
)
def test_a_program_is_not(text):
    assert "no formula" in (_score(text).error or "")


@pytest.mark.parametrize("text", ["import os", "four = oracle", "def four(): return 4", "print(4)"])
def test_neither_are_statements(text):
    assert "no formula" in (_score(text, "run").error or "")
