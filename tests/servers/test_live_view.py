"""A step is found soon after its end, while its rollout still runs: a second later on local objects, two on S3.

A recorder and a shipper with the settings that users have, not those of the other tests; the median of several counts,
if need be of later ones, because machines that run tests are busy with other things too. The seconds are those of a
calm machine.
"""

import time
from statistics import median

import pytest

from agent_layer.recorder import open_recorder
from agent_layer.recorder.shipping import ensure_shipper
from agent_layer.schema.rollout import AttemptStarted
from agent_layer.schema.step import Action, StepPart
from agent_layer.settings import Settings
from agent_layer.store import open_store

from ..waiting import scaled

NUM_STEPS, MAX_STEPS = 7, 28
S3_ROLL_SECONDS = 1.0
"""What ARCHITECTURE.md advises for S3, so that objects are not too small."""
MAX_SECONDS = {"directory": 1.0, "s3": 2.0}
DEFAULTS = ("log_roll_seconds", "ship_poll_seconds")


@pytest.fixture
def usual_settings(objects_settings):
    """Where this test's store is, and all else as users have it."""
    usual = {name: Settings.model_fields[name].default for name in DEFAULTS}
    if (objects_settings.objects_url or "").startswith("s3:"):
        usual["log_roll_seconds"] = S3_ROLL_SECONDS
    return objects_settings.model_copy(update=usual)


def test_a_step_is_found_soon_after_its_end(usual_settings, wait_until):
    kind = "s3" if (usual_settings.objects_url or "").startswith("s3:") else "directory"
    recorder, store = open_recorder(usual_settings), open_store(usual_settings)
    own = {"trajectory_id": "r.0-0", "run": "r"}
    recorder.append(AttemptStarted(**own, rollout_id="r.0", attempt=0, task_id="t", started_at=time.time()))
    ensure_shipper(usual_settings)
    wait_until(lambda: store.query(run="r").items)  # from now on a shipper runs
    took = []
    for number in range(MAX_STEPS):
        part = {**own, "call_id": str(number), "source": "gateway"}
        recorder.append(StepPart(**part, phase="start", at=time.time()))
        action = Action(message={"role": "assistant", "content": str(number)})
        recorder.append(StepPart(**part, phase="end", at=time.time(), status="ok", actions=[action]))
        ended = time.monotonic()
        wait_until(lambda number=number: is_ended(store, number))
        took.append(time.monotonic() - ended)
        if number + 1 >= NUM_STEPS and median(took[-NUM_STEPS:]) <= scaled(MAX_SECONDS[kind]):
            break

    print(f"{kind}: {[round(seconds, 2) for seconds in took]} s")  # noqa: T201  # figures for who looks
    assert store.row("r.0-0").status == "running"
    assert median(took[-NUM_STEPS:]) <= scaled(MAX_SECONDS[kind]), took


def is_ended(store, number: int) -> bool:
    """Whether the step is found with its answer, in the way a reader finds it."""
    if not store.query(run="r", step=number, status="running").items:
        return False
    return store.step("r.0-0", number).status == "ok"
