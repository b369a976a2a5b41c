"""Six made-up runs with a fault: the page's first sentence names it. Two without: the page says that all is right."""

import asyncio

import pytest
from aiohttp.test_utils import TestClient, TestServer

from agent_layer.health import ALARMS, progress_path, read_progress
from agent_layer.view import build_view_app
from agent_layer.view.reads import Source

from ...faults import FAULT_FROM, FAULTS, NUM_STEPS, RUN, make_run


def ask(settings, store, path):
    async def ask():
        async with TestClient(TestServer(build_view_app(Source(settings, store)))) as client:
            answer = await client.get(f"/api/v1/{path}")
            assert answer.status == 200, await answer.text()
            return await answer.json()

    return asyncio.run(ask())


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_sentence_names_the_fault(settings, fault):
    store = make_run(fault, settings, seed=list(FAULTS).index(fault))

    answer = ask(settings, store, f"runs/{RUN}")

    health, alarm = answer["health"], FAULTS[fault]
    assert len(answer["steps"]["step"]) == NUM_STEPS
    assert ask(settings, store, f"runs/{RUN}/updates")["items"]
    if alarm is None:
        assert (health["level"], health["findings"]) == ("ok", [])
        assert health["sentence"].startswith("Nothing is wrong")
    else:
        assert health["findings"][0]["name"] == alarm
        assert health["sentence"].startswith(next(one.title for one in ALARMS if one.name == alarm))
        assert {line["run"]: line["health"] for line in ask(settings, store, "runs")["items"]}[RUN] in ("warn", "stop")


def test_wrong_weights_name_the_engine_and_lead_to_the_update_they_began_with(settings):
    store = make_run("wrong-weights", settings)

    (gap,) = [one for one in ask(settings, store, f"runs/{RUN}")["health"]["findings"] if one["name"] == "logprob_gap"]
    assert (gap["subject"], gap["since_step"], gap["view"]) == ("http://10.0.0.12:8000", FAULT_FROM, "update")
    update = ask(settings, store, f"runs/{RUN}/updates/{FAULT_FROM + 1}")
    assert update["findings"][0]["name"] == "logprob_gap"
    assert update["gap_by_engine"]["http://10.0.0.12:8000"] > 1.0 > update["gap_by_engine"]["http://10.0.0.11:8000"]


def test_an_update_tells_what_it_did_not_learn_from(settings):
    store = make_run("healthy", settings)

    dead = {one.step: one.num_dead_groups for one in read_progress(progress_path(settings, RUN))}
    told = {step: ask(settings, store, f"runs/{RUN}/updates/{step}")["not_learned"] for step in dead}
    assert {step: [int(sentence.split()[0]) for sentence in found] for step, found in told.items()} == {
        step: [num] if num else [] for step, num in dead.items()
    }
    assert any(dead.values())
    assert all("equal rewards" in sentence for found in told.values() for sentence in found)
