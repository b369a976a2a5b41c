"""Calls with values that a policy chose: none disturbs another, and whose fault an end is stays apart."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_layer.errors import AgentFailedError
from envs.adapters import forked_calls
from envs.adapters.forked_calls import call_forked

PREPARE = "forked_functions:prepare"


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def _call(value, *, number=1, **limits):
    return call_forked(PREPARE, {"number": number}, value, **limits)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("raise", "ValueError: no number"),
        ("exit", "SystemExit"),
        ("end", "it ended its process"),
        ("crash", "it ended its process"),
        ("loop", "more than 1 s of CPU time"),
        ("memory", "MemoryError"),
        ("no JSON", "TypeError"),
    ],
)
def test_what_a_value_does_to_its_call_is_a_result_and_disturbs_no_other(value, why):
    result = _call(value, cpu_seconds=1)

    assert why in (result.error or "")
    assert _call("abc", number=4).value == 7


def test_each_call_begins_as_the_first_one():
    assert [_call("calls").value for _ in range(3)] == [1, 1, 1]


def test_a_long_value_arrives_whole_beside_others():
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda length: _call("x" * length).value, range(0, 3_000_000, 200_000)))

    assert found == [1 + length for length in range(0, 3_000_000, 200_000)]


def test_what_the_machine_or_the_request_does_is_no_result():
    with pytest.raises(AgentFailedError, match="answer"):
        _call("sleep", seconds=1)
    with pytest.raises(AgentFailedError, match="KeyError"):
        call_forked(PREPARE, {}, "abc")
    with pytest.raises(AgentFailedError, match="missing_module"):
        call_forked("missing_module:prepare", {}, "abc")


def test_a_warm_process_that_was_killed_is_started_again():
    assert _call("abc").value == 4
    process = forked_calls._warm[os.getpid(), PREPARE].process
    process.kill()
    process.wait()

    assert _call("abc").value == 4


def test_the_call_sees_no_variable_of_its_scorer(monkeypatch):
    monkeypatch.setenv("AGENT_LAYER_API_KEY", "ok-only-for-this-test")

    assert not [name for name in _call("environment").value if name.startswith("AGENT_LAYER")]
