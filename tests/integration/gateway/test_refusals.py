"""A request that is refused leaves a trace: in the metrics, in the log, and at the rollout that goes on."""

import asyncio
import logging

import pytest
from aiohttp import web

from agent_layer.schema.rollout import Outcome

pytestmark = pytest.mark.usefixtures("index")

HELLO = {"role": "user", "content": "hello"}


@pytest.fixture(autouse=True)
def _log_all(caplog):
    caplog.set_level(logging.INFO, "agent_layer.gateway")


async def end(gateway, opened, **fields):
    status, ended = await gateway.post(f"/rollouts/{opened['rollout_id']}/end", {"reward": 1.0, **fields})
    assert status == 200, ended
    (outcome,) = gateway.log.of(Outcome)
    return ended, outcome


async def test_each_reason_is_counted_logged_and_a_finding(gateway, caplog):
    opened = await gateway.open(limits={"turns": 1})
    body = {"messages": [{"role": 5}]}
    headers = {"Authorization": f"Bearer {opened['api_key']}"}
    for _ in range(2):
        async with gateway.session.post(f"{opened['base_url']}/chat/completions", json=body, headers=headers) as reply:
            assert reply.status == 400
    async with gateway.session.post(f"{opened['base_url']}/batches", json=body, headers=headers) as reply:
        assert reply.status == 404
    await gateway.chat(opened, "hello")
    assert (await gateway.chat(opened, "hello", "you said: hello", "more"))[0] == 429

    _, outcome = await end(gateway, opened)

    assert outcome.findings == ["refused: BadInputError", "refused: not_served"]
    for reason, number in {"BadInputError": 2, "not_served": 1, "rollout_limit": 1}.items():
        assert await gateway.figure(f'refused_requests_total{{reason="{reason}"}}') == number
    lines = [line.message for line in caplog.records if "request refused" in line.message]
    assert len(lines) == 3  # the same within a minute is one
    assert opened["trajectory_id"] in lines[0]


async def test_no_stranger_can_put_a_finding_on_a_rollout(gateway):
    opened = await gateway.open(calls_optional=True)
    for key in ("wrong", "operator-key"):
        headers = {"Authorization": f"Bearer {key}"}
        async with gateway.session.post(f"{opened['base_url']}/batches", headers=headers) as reply:
            assert reply.status in (401, 404)
        async with gateway.session.post(f"{opened['base_url']}/chat/completions", data=b"{", headers=headers) as reply:
            assert reply.status in (400, 401)

    _, outcome = await end(gateway, opened)

    assert outcome.findings == []


async def test_no_key_is_in_the_log(gateway, caplog):
    opened = await gateway.open()
    body = {"messages": [{"role": {opened["api_key"]: "operator-key"}}]}
    headers = {"Authorization": f"Bearer {opened['api_key']}"}
    async with gateway.session.post(f"{opened['base_url']}/chat/completions", json=body, headers=headers) as reply:
        assert reply.status == 400

    assert "request refused" in caplog.text
    assert opened["api_key"] not in caplog.text
    assert "operator-key" not in caplog.text


async def test_a_body_that_cannot_be_unpacked_is_counted_too(gateway):
    headers = {"Content-Encoding": "zstd", "Authorization": "Bearer operator-key"}
    async with gateway.session.post(f"{gateway.url}/rollouts", data=b"x", headers=headers) as reply:
        assert reply.status == 415

    text = await gateway.metrics()
    assert 'refused_requests_total{reason="unsupported_encoding"} 1' in text


async def test_a_rollout_for_training_without_a_call_has_no_reward(gateway):
    opened = await gateway.open()

    ended, outcome = await end(gateway, opened)

    assert (ended["accepted"], ended.get("reward")) == (True, None)
    assert "the policy answered no call" in ended["error"]
    assert (outcome.cause, outcome.findings) == ("user", ["no_policy_call"])


@pytest.mark.parametrize("fields", [{"split": "eval"}, {"calls_optional": True}])
async def test_where_no_call_is_needed_the_reward_counts(gateway, fields):
    opened = await gateway.open(**fields)

    ended, outcome = await end(gateway, opened)

    assert (ended["reward"], ended.get("error"), outcome.findings) == (1.0, None, [])


async def test_a_call_that_a_resume_abandoned_is_no_call(gateway):
    opened = await gateway.open(rollout_id="r")
    _, marked = await gateway.post("/rollouts/r/mark", {})
    await gateway.chat(opened, "hello")
    fields = {"rollout_id": "r", "attempt": 0, "resume": {"calls": marked["calls"], "seconds": 0.0}}
    status, opened = await gateway.post("/rollouts", {"task_id": "t", **fields})
    assert status == 200, opened

    ended, _ = await end(gateway, opened)

    assert ended.get("reward") is None


async def test_an_answer_that_is_cut_off_is_the_policys_own(gateway, until):
    """A policy that never stops is at fault: its rollout is not without a call."""
    gateway.engine.token_seconds = 60
    opened = await gateway.open()
    calling = asyncio.create_task(gateway.chat(opened, "hello"))
    await until(lambda: gateway.engine.num_running)

    _, closed = await gateway.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0, "abort": True})
    await calling

    assert (closed["started"], closed["policy_calls"]) == (1, 1)


async def test_a_call_that_failed_is_none(gateway):
    def fail(_):
        raise web.HTTPBadRequest

    gateway.engine.script = fail
    opened = await gateway.open()
    assert (await gateway.chat(opened, "hello"))[0] == 400

    _, closed = await gateway.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0})

    assert (closed["started"], closed["policy_calls"]) == (1, 0)


@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses", "models/m:generateContent"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_without_a_tool_parser_is_named_with_the_remedy(gateway, path, stream):
    gateway.engine.parses_tools = False
    opened = await gateway.open(limits={"turns": 1})
    schema = {"type": "object", "properties": {}}
    function = {"name": "add", "parameters": schema}
    fields = {
        "chat/completions": {"messages": [HELLO], "tools": [{"type": "function", "function": function}]},
        "messages": {"messages": [HELLO], "tools": [{"name": "add", "input_schema": schema}], "max_tokens": 8},
        "responses": {"input": "hello", "tools": [{"type": "function", **function}]},
        "models/m:generateContent": {
            "contents": [{"parts": [{"text": "hello"}]}],
            "tools": [{"functionDeclarations": [function]}],
        },
    }[path]

    url = opened["base_url"].removeprefix(gateway.url)
    if stream:
        path = path.replace(":generate", ":streamGenerate")
    status, answer = await gateway.post(f"{url}/{path}", {"model": "m", "stream": stream, **fields}, opened["api_key"])
    status_without, _ = await gateway.chat(opened, "hello")

    assert (status, status_without) == (400, 200), "it spends no turn of the policy"
    assert "--tool-parser NAME" in answer["error"]["message"]
    assert read_code(answer["error"]) == "tool_parser_missing"


def read_code(error):
    return error["details"][0]["reason"] if isinstance(error.get("details"), list) else error["code"]
