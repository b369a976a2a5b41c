"""Six made-up runs with a fault: the page's first sentence names it. Two without: the page says that all is right."""

import asyncio

import pytest
from aiohttp.test_utils import TestClient, TestServer

from agent_layer.view import build_view_app
from agent_layer.view.reads import Source

from ...faults import FAULTS, NUM_STEPS, RUN, make_run


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
        assert health["sentence"].startswith(alarm)
        assert {line["run"]: line["health"] for line in ask(settings, store, "runs")["items"]}[RUN] in ("warn", "stop")
