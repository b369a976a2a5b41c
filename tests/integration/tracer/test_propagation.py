"""A process started inside a rollout continues it."""

import json
import os
import subprocess
import sys

import tracer
from agent_layer.recorder.log import open_recorder
from agent_layer.store import open_store
from tracer.session import Session, use_session
from tracer.testing import capture

JOINING = "import tracer; tracer.init(); tracer.reward(1.0, name='of-child')"
EXTRACTING = """
import os, tracer
with tracer.extract(os.environ) as rollout:
    rollout.reward(2.0, name="of-sibling")
"""


HEEDING = """
import json, sys, tracer
with tracer.extract(json.loads(sys.argv[1])) as rollout:
    rollout.reward(3.0, name="of-server")
"""


def test_children_go_on_with_the_rollout_and_record_beside_their_parent(settings, wait_until):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AGENT_LAYER_", "OPENAI"))}
    with use_session(Session(settings=settings, sink=open_recorder(settings))):
        with tracer.rollout(task="t") as rollout:
            answer = tracer.inject(dict(environment))
            subprocess.run([sys.executable, "-c", JOINING], env=answer, check=True)
            subprocess.run([sys.executable, "-c", EXTRACTING], env=answer, check=True)
            headers, elsewhere = json.dumps(tracer.inject({})), environment | settings.environment()
            subprocess.run([sys.executable, "-c", HEEDING, headers], env=elsewhere, check=True)
        tracer.flush()

    def rewards():
        return open_store(settings).get(rollout.trajectory_id).rewards

    wait_until(lambda: len(rewards()) >= 3)
    assert {reward.name: reward.score for reward in rewards()} == {"of-child": 1.0, "of-sibling": 2.0, "of-server": 3.0}


def test_an_environment_names_the_rollouts_own_address_and_key_and_headers_do_not():
    with capture() as captured, tracer.rollout(task="t"):
        mine = tracer.Rollout(
            trajectory_id="r-0",
            rollout_id="r",
            attempt=0,
            run="r",
            sink=captured,
            base_url="http://127.0.0.1:9/r/r-0/v1",
            api_key="key-of-r",
        )
        with tracer.enter_rollout(mine):
            environment, headers = tracer.inject({"PATH": "/bin"}), tracer.inject({"accept": "*/*"})
        with tracer.extract(environment) as found:
            assert (found.trajectory_id, found.base_url, found.api_key) == ("r-0", mine.base_url, "key-of-r")

    assert environment["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:9/r/r-0"
    assert "AGENT_LAYER_API_KEY" not in environment
    assert "key-of-r" not in headers.values()


def test_an_address_of_somebody_elses_model_is_not_taken_for_the_rollouts(settings):
    variables = {"PATH": "/bin", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "own"}
    with use_session(Session(settings=settings, sink=open_recorder(settings))), tracer.rollout(task="t"):
        answer = tracer.inject(variables)
        with tracer.extract(answer) as found:
            assert found.base_url is None
    assert answer["OPENAI_API_KEY"] == "own"
