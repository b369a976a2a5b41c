"""Six made-up runs with a fault: the page's first sentence names it. Two without: the page says that all is right."""

from functools import cache

import pytest

from agent_layer.health import progress_path, read_progress
from agent_layer.health.checks import CHECKS

from ...faults import FAULT_FROM, FAULTS, NUM_STEPS, RUN, make_run
from ...viewing import Viewed


@pytest.fixture(scope="module")
def run_with(module_settings):
    """``run_with("fork-storm")``: a made-up run with this fault, which is made once."""

    @cache
    def make(fault):
        own = {"dir": module_settings.dir / fault, "namespace": f"{module_settings.namespace}-{fault}"}
        settings = module_settings.model_copy(update=own)
        return Viewed(make_run(fault, settings, seed=list(FAULTS).index(fault)), settings)

    return make


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_sentence_names_the_fault(run_with, fault):
    viewed = run_with(fault)

    answer = viewed.get(f"/api/v1/runs/{RUN}")

    health, alarm = answer["health"], FAULTS[fault]
    assert len(answer["steps"]["step"]) == NUM_STEPS
    assert viewed.get(f"/api/v1/runs/{RUN}/updates")["items"]
    if alarm is None:
        assert (health["level"], health["findings"]) == ("ok", [])
        assert health["sentence"].startswith("Nothing is wrong")
    else:
        assert health["findings"][0]["name"] == alarm
        assert health["sentence"].startswith(next(one.title for one in CHECKS if one.name == alarm))
        assert {line["run"]: line["health"] for line in viewed.get("/api/v1/runs")["items"]}[RUN] in ("warn", "stop")


def test_wrong_weights_name_the_engine_and_lead_to_the_update_they_began_with(run_with):
    viewed = run_with("wrong-weights")

    (gap,) = [one for one in viewed.get(f"/api/v1/runs/{RUN}")["health"]["findings"] if one["name"] == "logprob_gap"]
    assert (gap["subject"], gap["since_step"], gap["view"]) == ("http://10.0.0.12:8000", FAULT_FROM, "update")
    update = viewed.get(f"/api/v1/runs/{RUN}/updates/{FAULT_FROM + 1}")
    assert update["findings"][0]["name"] == "logprob_gap"
    assert update["gap_by_engine"]["http://10.0.0.12:8000"] > 1.0 > update["gap_by_engine"]["http://10.0.0.11:8000"]


def test_an_update_tells_what_it_did_not_learn_from(run_with):
    viewed = run_with("healthy")

    dead = {one.step: one.num_dead_groups for one in read_progress(progress_path(viewed.settings, RUN))}
    attributes = {step: viewed.get(f"/api/v1/runs/{RUN}/updates/{step}")["not_learned"] for step in dead}
    assert {step: [int(sentence.split()[0]) for sentence in found] for step, found in attributes.items()} == {
        step: [num] if num else [] for step, num in dead.items()
    }
    assert any(dead.values())
    assert all("equal rewards" in sentence for found in attributes.values() for sentence in found)
