"""What the settings say of dropped reasoning and hosted tools holds at the gateway's addresses, and steps name it."""

import pytest

from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread

from ..conftest import OPERATOR

HI = {"role": "user", "content": "hi"}
DROPPED = {"role": "assistant", "content": "look"}
HOSTED = {
    "chat/completions": None,
    "messages": {"messages": [HI], "max_tokens": 9, "tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    "responses": {"input": "hi", "tools": [{"type": "web_search"}], "tool_choice": "auto"},
}


async def ask(gateway, opened, dialect, body):
    return await gateway.post(f"/r/{opened['trajectory_id']}/v1/{dialect}", {"model": "m", **body}, opened["api_key"])


@pytest.mark.parametrize(
    ("settings_now", "findings", "status"),
    [
        ({}, ["prefix_break:dropped_reasoning"], 200),
        ({"dropped_reasoning": "restore", "hosted_tools": "refuse"}, ["restored:reasoning"], 400),
    ],
)
async def test_settings_for_agents_as_they_ship(settings, run_gateway, settings_now, findings, status):
    own = settings.model_copy(
        update={"api_key": OPERATOR, "gateway_seconds": 1.0, "close_seconds": 0.2, **settings_now}
    )
    async with run_gateway(own) as gateway:
        gateway.engine.script = lambda _: {"reasoning": "hm", "content": "look"}
        for dialect, hosted in HOSTED.items():
            opened = await gateway.open()
            name, more = ("input", {}) if dialect == "responses" else ("messages", {"max_tokens": 9})
            await ask(gateway, opened, dialect, {name: [HI], **more})
            await ask(gateway, opened, dialect, {name: [HI, DROPPED, HI], **more})

            first, second = gateway.log.trajectory(opened["trajectory_id"]).steps
            assert (first.findings, second.findings) == ([], findings)
            assert (second.prompt.parent_call == first.call_id) == ("restored:reasoning" in findings)
            if hosted is not None:
                found, _ = await ask(gateway, opened, dialect, hosted)
                assert found == status
                if status == 200:
                    (kind,) = [tool["type"] for tool in hosted["tools"]]
                    assert gateway.step(opened).findings == [f"not_applied:tools.{kind}"]
                    assert not {"tools", "tool_choice"} & gateway.engine.calls[-1].body.keys()


async def test_judges_read_no_reasoning_that_the_agent_did_not_send(settings, run_gateway):
    with serve_in_thread(ScriptedEngine(script=lambda _: "right", model="judge")) as judge:
        rules = {"models": '{"judge": "judge"}', "provider_url": judge.url, "dropped_reasoning": "restore"}
        async with run_gateway(settings.model_copy(update={"api_key": OPERATOR, **rules})) as gateway:
            gateway.engine.script = lambda _: {"reasoning": "hm", "content": "look"}
            opened = await gateway.open()
            question = ("hi", "look", "is it right?")
            await gateway.chat(opened, "hi")
            await gateway.chat(opened, *question, model="judge")
            await gateway.chat(opened, *question, headers={"x-agent-layer-role": "aux"})
            await gateway.chat(opened, *question)

    read = [call.body["messages"][1] for call in (*judge.calls, *gateway.engine.calls[1:])]
    assert read == [DROPPED, DROPPED, {**DROPPED, "reasoning": "hm"}]
