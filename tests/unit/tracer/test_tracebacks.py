"""A failed attempt keeps where its agent failed: the agent's own frames, bounded, without values and keys."""

import importlib
import json
import sys

import pytest

import tracer
from agent_layer.cli.ui.queue_text import shorten_error
from agent_layer.cli.ui.trajectory_text import describe_trajectory
from agent_layer.schema.wire.gateway_api import KEY_PREFIX
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.reading.display import show_trajectory
from envs.failures import classify_failure
from tracer.core import describe_traceback

AGENT = """
import asyncio
import json

import openai

PRICES = {"apple": 1}


def look(fruit):
    secret = "a value that stays here"
    return PRICES[fruit]


def caused(_):
    try:
        json.loads("{")
    except ValueError as error:
        raise RuntimeError("no prices") from error


def deep(left):
    return deep(left)


def several(_):
    raise ExceptionGroup("both", [ValueError("one"), KeyError("two")])


def far(_):
    with openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="k", max_retries=0) as client:
        client.models.list()


def long(_):
    raise ValueError("x" * 100_000)


def keyed(key):
    raise ValueError(f"refused {key}")


class Mute(Exception):
    def __str__(self):
        raise ValueError("no text")


def mute(_):
    raise Mute
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    directory = tmp_path_factory.mktemp("agent")
    (directory / "fruit_agent.py").write_text(AGENT)
    sys.path.insert(0, str(directory))
    yield importlib.import_module("fruit_agent")
    sys.path.remove(str(directory))
    del sys.modules["fruit_agent"]


def fail(function, argument="plum"):
    try:
        function(argument)
    except Exception as error:  # noqa: BLE001 - the error itself is what the test is about
        return describe_traceback(error)


def test_a_traceback_has_the_lines_of_the_agent(agent):
    found = fail(agent.look)

    assert "fruit_agent.py" in found
    assert "return PRICES[fruit]" in found
    assert found.endswith("KeyError: 'plum'")
    assert "a value that stays here" not in found


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("caused", ["json.loads", "JSONDecodeError", "direct cause", "RuntimeError: no prices"]),
        ("deep", ["return deep(left)", "RecursionError"]),
        ("several", ["ExceptionGroup: both", "ValueError: one", "KeyError: 'two'"]),
        ("far", ["client.models.list()", "APIConnectionError"]),
        ("mute", ["raise Mute"]),
    ],
)
def test_errors_of_every_form_have_one(agent, name, parts):
    found = fail(getattr(agent, name))

    assert [part for part in parts if part not in found] == []
    assert found.count("site-packages") <= 3  # the innermost frame of each error of a chain
    assert len(found) < 4_100


def test_it_is_bounded_and_has_no_keys(agent):
    key = f"{KEY_PREFIX}{'k' * 40}"

    assert "raise ValueError" in fail(agent.long)
    assert len(fail(agent.long)) < 4_100
    assert describe_traceback(ValueError("never raised")) is None
    assert KEY_PREFIX + "k" not in fail(agent.keyed, key)


def test_an_attempt_of_the_tracer_keeps_and_shows_it(agent):
    with tracer.testing.capture() as captured, pytest.raises(KeyError), tracer.rollout(task="t"):
        agent.look("plum")

    whole = captured.trajectory
    assert "return PRICES[fruit]" in whole.outcome.traceback
    shown = show_trajectory(TrajectoryRow(trajectory_id=whole.trajectory_id), whole)
    text = "\n".join(line for block in describe_trajectory(shown) for line in block.lines)
    assert "return PRICES[fruit]" in text
    assert json.dumps(shown["outcome"]["traceback"])


def test_tables_show_the_error_alone(agent):
    for name in ("look", "several"):
        ending = _classify(getattr(agent, name))
        line = shorten_error(f"user: {ending.error}\n{ending.traceback}")
        assert line == " ".join(f"user: {ending.error}".split())


def _classify(function):
    with pytest.raises(Exception) as raised:  # noqa: PT011 - any of them
        function("plum")
    return classify_failure(raised.value)
