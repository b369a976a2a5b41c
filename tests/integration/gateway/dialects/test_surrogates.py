"""A lone surrogate, half of a character: requests with one are answered, and what is stored of them can be shown."""

import json

import aiohttp
import anthropic
import msgspec
import pytest

from agent_layer.store.reading.display import show_step

HALF, MENDED = "cut \ud83d", "cut \ufffd"
SCHEMA = {"type": "object", "description": HALF, "properties": {HALF: {"type": "string"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"x": HALF})}}
BODIES = {
    "chat/completions": [
        {"messages": [{"role": "user", "content": HALF}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": HALF}], HALF: HALF}], "user": HALF},
        {
            "messages": [
                {"role": "assistant", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": HALF},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
        },
        {"messages": [{"role": "user", "content": "x"}], "stop": [HALF], "chat_template_kwargs": {HALF: HALF}},
    ],
    "responses": [
        {"input": HALF, "instructions": HALF, "metadata": {HALF: HALF}},
        {
            "input": [
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": json.dumps({"x": HALF})},
                {"type": "function_call_output", "call_id": "c", "output": HALF},
                {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": HALF},
                {"type": "reasoning", "summary": [], "encrypted_content": HALF},
            ],
            "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
        },
    ],
    "messages": [
        {"messages": [{"role": "user", "content": HALF}], "system": HALF},
        {
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"x": HALF}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": HALF}]},
            ],
            "tools": [{"name": "f", "description": HALF, "input_schema": SCHEMA}],
        },
    ],
}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("dialect", BODIES)
async def test_a_request_with_half_a_character_is_answered_and_can_be_shown(gateway, dialect, is_streamed):
    gateway.engine.script = lambda _: "fine"
    opened = await gateway.open()
    headers = {"Authorization": f"Bearer {opened['api_key']}", "Content-Type": "application/json"}
    url = f"{gateway.url}/r/{opened['trajectory_id']}/v1/{dialect}"

    for body in BODIES[dialect]:
        text = json.dumps({"model": "m", "max_tokens": 9, "stream": is_streamed, **body})
        assert "\\ud83d" in text
        async with aiohttp.ClientSession() as session, session.post(url, data=text, headers=headers) as reply:
            assert reply.status == 200, await reply.text()
            assert "fine" in await reply.text()

    trajectory = gateway.log.trajectory(opened["trajectory_id"])
    for step in trajectory.steps:
        assert (step.status, step.capture_level) == ("ok", "tokens")
        assert "not_applied:lone_surrogates" in step.findings
        assert b"\xef\xbf\xbd" in msgspec.json.encode(show_step(trajectory, step))


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_tool_call_with_half_a_character_reaches_an_sdk_and_comes_back_exactly(gateway, clients, is_streamed):
    gateway.engine.script = lambda prompt: {"tool_calls": [CALL]} if len(prompt.messages) == 1 else "done"
    opened = await gateway.open()
    (_, client) = await clients(opened)
    messages = [{"role": "user", "content": "go"}]
    fields = {"model": "m", "max_tokens": 9, "tools": [{"name": "f", "input_schema": {"type": "object"}}]}

    for _ in range(2):
        if is_streamed:
            async with client.messages.stream(messages=messages, **fields) as stream:
                message = await stream.get_final_message()
        else:
            message = await client.messages.create(messages=messages, **fields)
        messages.append({"role": "assistant", "content": message.content})
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "ok"}]})

    used = messages[1]["content"][0]
    assert isinstance(used, anthropic.types.ToolUseBlock)
    assert used.input == {"x": MENDED}
    assert gateway.engine.calls[1].body["messages"][1]["tool_calls"] == [CALL]
    assert [step.findings for step in gateway.log.trajectory(opened["trajectory_id"]).steps] == [[], []]
