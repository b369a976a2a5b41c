"""Edges of the gateway: counts, media, streams and side calls, as the clients of every dialect see them."""

import pytest

from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve

from ...waiting import within

HELLO = [{"role": "user", "content": "hi"}]
BODIES = {
    "chat/completions": {"model": "m", "messages": HELLO},
    "responses": {"model": "m", "input": "hi"},
    "messages": {"model": "m", "max_tokens": 9, "messages": HELLO},
}
COUNT = "messages/count_tokens"


def show(address):
    """Bodies with an image, by path."""
    openai = [{"type": "image_url", "image_url": {"url": address}}]
    anthropic = [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": address}}]}]
    result = [{"type": "tool_result", "tool_use_id": "t", "content": anthropic[0]["content"]}]
    given = [{"type": "input_image", "image_url": address}]
    return [
        ("chat/completions", {"model": "m", "messages": [{"role": "user", "content": openai}]}),
        ("messages", {"model": "m", "max_tokens": 9, "messages": anthropic}),
        ("messages", {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": result}]}),
        (COUNT, {"model": "m", "messages": anthropic}),
        ("responses", {"model": "m", "input": [{"role": "user", "content": given}]}),
        ("responses", {"model": "m", "input": [{"type": "function_call_output", "call_id": "c", "output": given}]}),
    ]


async def ask(gateway, opened, path, body, key=None):
    return await gateway.post(f"/r/{opened['trajectory_id']}/v1/{path}", body, key=key or opened["api_key"])


async def test_an_image_that_lies_elsewhere_is_refused_for_a_rollouts_key_in_every_dialect(gateway):
    opened = await gateway.open()

    for address in ("http://10.0.0.1/x.png", "https://x.example/x.png", "file:///etc/passwd"):
        for path, body in show(address):
            status, answer = await ask(gateway, opened, path, body)
            assert (status, answer["error"]["code"]) == (400, "remote_media"), (path, answer)
            assert "AGENT_LAYER_MEDIA_DOMAINS" in answer["error"]["message"]

    assert gateway.engine.calls == []
    assert gateway.log.parts() == []
    assert [(await ask(gateway, opened, *one, key="operator-key"))[0] for one in show("https://x.example/y")] == [
        200
    ] * 6
    assert [(await ask(gateway, opened, *one))[0] for one in show("data:image/png;base64,aGk=")] == [200] * 6


async def test_a_setting_names_domains_whose_images_engines_may_fetch(settings, run_gateway):
    allowed = {"api_key": "operator-key", "media_domains": "x.example, *.cdn.example"}
    async with run_gateway(settings.model_copy(update=allowed)) as gateway:
        opened = await gateway.open()
        for address, expected in (
            ("https://X.example/y", 200),
            ("https://a.cdn.example/y", 200),
            ("http://y.example", 400),
        ):
            assert {(await ask(gateway, opened, *one))[0] for one in show(address)} == {expected}


async def test_nothing_is_counted_for_a_closed_rollout(gateway):
    opened = await gateway.open()
    await gateway.post(f"/rollouts/{opened['rollout_id']}/end", {})

    status, answer = await ask(gateway, opened, COUNT, BODIES["messages"])

    assert (status, answer["error"]["details"]["error_code"]) == (410, "rollout_closed")


async def test_a_count_is_refused_at_once_where_no_engine_reads_the_prompt(settings, run_gateway):
    async with serve(ScriptedEngine(model="theirs")) as other:
        external = {"policy_url": other.url, "model": "theirs", "api_key": "operator-key"}
        async with run_gateway(settings.model_copy(update=external)) as gateway:
            opened = await gateway.open(split="eval")
            async with within(20, "a refusal: no call waits for an engine that is not there"):
                status, answer = await ask(gateway, opened, COUNT, BODIES["messages"])

    assert (status, answer["error"]["details"]["error_code"]) == (400, "no_token_count")


async def test_streams_are_neither_stored_nor_held_back_by_proxies(gateway):
    opened = await gateway.open()
    for path, body in BODIES.items():
        for repeated in ("first", "again"):
            headers = {"Authorization": f"Bearer {opened['api_key']}", "idempotency-key": path}
            url = f"{opened['base_url']}/{path}"
            async with gateway.session.post(url, json=body | {"stream": True}, headers=headers) as reply:
                found = [reply.headers.get(name) for name in ("content-type", "cache-control", "x-accel-buffering")]
                assert found == ["text/event-stream", "no-cache", "no"], (path, repeated)
                await reply.read()
    assert len(gateway.engine.calls) == len(BODIES)


async def test_a_number_of_answers_that_none_gives_leaves_the_engine_well(gateway):
    opened = await gateway.open()
    for n in (-1, 0, 10**12, True):
        for path, body in BODIES.items():
            assert (await ask(gateway, opened, path, body | {"n": n}))[0] == 400
    opening, _ = await gateway.post("/rollouts", {"task_id": "t", "sampling": {"n": 0}})

    assert opening == 400
    assert gateway.engine.calls == []
    async with gateway.session.get(f"{gateway.url}/engines", headers={"Authorization": "Bearer operator-key"}) as reply:
        assert [engine["is_well"] for engine in await reply.json()] == [True]


TITLE = {"role": "system", "content": "You are a title generator. You output ONLY a thread title."}
SIDE = {
    "model": ({"model": "claude-haiku-4"}, {}),
    "declared": ({"messages": [{"role": "user", "content": "Summarise what the tool did"}]}, {}),
    "titles": ({"messages": [TITLE, *HELLO]}, {}),
    "x-claude-code-request-class": ({}, {"x-claude-code-request-class": "auxiliary"}),
    None: ({}, {"x-agent-layer-role": "aux"}),
}


@pytest.mark.usefixtures("index")
async def test_side_calls_are_stored_and_not_trained_and_do_not_void_a_rollout(settings, run_gateway):
    rules = {"api_key": "operator-key", "models": '{"*haiku*": "aux"}', "side_calls": '["titles"]'}
    guided = {"type": "json_schema", "json_schema": {"name": "t", "schema": {"type": "object"}}}
    async with run_gateway(settings.model_copy(update=rules)) as gateway:
        opened = await gateway.open(
            group_id="g", sampling={"temperature": 1.0}, side_calls=[{"prompt": "summarise what*"}]
        )
        for reason, (change, headers) in SIDE.items():
            body = {"messages": HELLO, "response_format": guided, "temperature": 0.2, "model": "sonnet"} | change
            status, _ = await gateway.post(
                f"/r/{opened['trajectory_id']}/v1/chat/completions", body, key=opened["api_key"], headers=headers
            )
            step = gateway.step(opened)
            assert (status, step.role, step.capture_level, step.status) == (200, "aux", "tokens", "ok"), reason
            assert step.findings == ([f"side_call:{reason}"] if reason else [])
            assert step.sampling_applied["temperature"] == 0.2
        await gateway.chat(opened, "the task")

        policy = gateway.step(opened)
        await gateway.post(f"/rollouts/{opened['rollout_id']}/end", {"reward": 1.0})
        trajectory = gateway.log.trajectory(opened["trajectory_id"])

    assert policy.role == "policy"
    assert not [one for one in policy.findings if one.startswith("side_call")]
    assert (trajectory.outcome.status, trajectory.outcome.error, trajectory.reward) == ("completed", None, 1.0)


@pytest.mark.parametrize("path", BODIES)
async def test_sub_agents_have_the_names_that_their_agent_sends(gateway, path):
    opened = await gateway.open()
    named = [
        ({"x-claude-code-agent-id": "a7"}, "a7"),
        ({"x-openai-subagent": "collab_spawn", "thread-id": "t1", "x-codex-parent-thread-id": "t0"}, "collab_spawn/t1"),
        ({"x-parent-session-id": "ses_a", "x-session-id": "ses_b"}, "ses_b"),
        ({"x-claude-code-agent-id": "a7", "x-agent-layer-agent": "mine"}, "mine"),
        ({}, None),
    ]
    for headers, _ in named:
        at = f"/r/{opened['trajectory_id']}/v1/{path}"
        await gateway.post(at, BODIES[path], key=opened["api_key"], headers=headers)

    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert [step.agent for step in steps] == [name for _, name in named]
    assert {step.role for step in steps} == {"policy"}
