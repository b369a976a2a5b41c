"""A program that a worker starts finds the rollout that it was started for."""

import os
import subprocess
import sys

import pytest

import tracer
from agent_layer.errors import BackPressureError, BadInputError
from agent_layer.settings import Settings
from agent_layer.settings.environment import read_inheritance
from tracer.testing import capture
from tracer.transport.inheritance import rollout_from_environment

NAMED = {
    "AGENT_LAYER_ROLLOUT": "r.1",
    "AGENT_LAYER_ATTEMPT": "2",
    "OPENAI_BASE_URL": "http://127.0.0.1:1/r/r.1-2/v1",
    "OPENAI_API_KEY": "rk-mine",
    "TRACEPARENT": f"00-{'a' * 32}-{'b' * 16}-01",
}


@pytest.fixture
def inherited_environment(monkeypatch):
    for name, value in NAMED.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.mark.usefixtures("inherited_environment")
def test_the_rollout_is_the_one_that_the_environment_names():
    rollout = rollout_from_environment(Settings(run="run"))

    assert (rollout.trajectory_id, rollout.run, rollout.trace_id) == ("r.1-2", "run", "a" * 32)
    assert (rollout.base_url, rollout.api_key) == (NAMED["OPENAI_BASE_URL"], "rk-mine")


def test_a_process_of_its_own_is_in_no_rollout():
    assert read_inheritance() is None
    assert rollout_from_environment(Settings(run="run")) is None


@pytest.mark.parametrize(
    ("name", "value"), [("AGENT_LAYER_ATTEMPT", "two"), ("OPENAI_BASE_URL", ""), ("AGENT_LAYER_ROLLOUT", "a b")]
)
def test_half_of_it_is_said_in_one_sentence(inherited_environment, name, value):
    inherited_environment.setenv(name, value)

    with pytest.raises(BadInputError, match="AGENT_LAYER_ROLLOUT"):
        rollout_from_environment(Settings(run="run"))


CHILD = """
import threading
import tracer

tracer.init()
seen = [tracer.current().trajectory_id]
thread = threading.Thread(target=lambda: seen.append(tracer.current().trajectory_id))
thread.start()
thread.join()
with tracer.rollout(task="t") as rollout:
    seen.append(rollout.trajectory_id)
    seen.append(tracer.inject({})["x-agent-layer-rollout"])
tracer.state(registry="empty")
print(*seen, tracer.flush().lost)
"""


def test_a_child_is_in_its_rollout_everywhere_and_writes_no_log(tmp_path):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_LAYER_")}

    ran = subprocess.run(
        [sys.executable, "-c", CHILD], cwd=tmp_path, env=variables | NAMED, capture_output=True, text=True, check=False
    )

    assert (ran.stdout.split(), ran.stderr) == (["r.1-2"] * 4 + ["0"], "")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_given_up_does_not_hide_the_error_of_the_block():
    def give_up():
        raise BackPressureError("full")

    def run(error):
        with tracer.rollout("t", rollout_id="r") as rollout:
            rollout.unfinished["c"] = give_up
            if error:
                raise error

    with capture():
        with pytest.raises(ValueError, match="mine") as raised:
            run(ValueError("mine"))
        with pytest.raises(BackPressureError):
            run(None)

    assert raised.value.__notes__ == ["rollout r could not be ended either: full"]
