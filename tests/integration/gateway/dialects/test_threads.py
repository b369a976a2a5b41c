"""Anthropic's threads: its clients send only what is new, and the model reads the whole conversation."""

import anthropic
import pytest

from agent_layer.schema.messages import resolve

HELLO = [{"role": "user", "content": "first"}]


@anthropic.beta_async_tool
async def add(a: int, b: int) -> str:
    """Return the sum."""
    return str(a + b)


def script(prompt):
    """Call the tool until its result is there, with the spaces of this model."""
    if prompt.messages[-1]["role"] == "tool":
        return {"reasoning": "done", "content": f"the sum is {prompt.text}"}
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": ' {"b":2,\n "a": 40}'}}
    return {"reasoning": "let me add", "content": "adding", "tool_calls": [call]}


async def run_tools(client, is_streamed):
    """Hold a conversation with the official tool runner; return its last text."""
    fields = {"model": "m", "max_tokens": 99, "system": "be brief", "messages": HELLO, "tools": [add]}
    if not is_streamed:
        runner = client.beta.messages.tool_runner(**fields)
        return (await runner.until_done()).content[-1].text
    last = None
    async for stream in client.beta.messages.tool_runner(**fields, stream=True):
        last = await stream.get_final_message()
    return last.content[-1].text


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_the_model_reads_the_whole_conversation_of_a_tool_runner(gateway, clients, is_streamed):
    gateway.engine.script = script
    opened = await gateway.open()
    (_, client) = await clients(opened)

    assert await run_tools(client, is_streamed) == "the sum is 42"

    first, second = gateway.engine.calls
    assert [message["role"] for message in second.body["messages"]] == ["system", "user", "assistant", "tool"]
    assert "thread" not in first.body
    assert second.body["tools"] == first.body["tools"]
    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert [step.findings for step in steps] == [[], []]
    assert steps[1].prompt.parent_call == steps[0].call_id
    assert list(steps[1].prompt_token_ids) == second.prompt_token_ids


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_forgotten_thread_is_sent_again_by_the_sdk(gateway, clients, is_streamed, monkeypatch):
    monkeypatch.setattr("agent_layer.gateway.dialects.base.LRUCache.find", lambda *_: None)
    gateway.engine.script = script
    opened = await gateway.open()
    (_, client) = await clients(opened)

    assert await run_tools(client, is_streamed) == "the sum is 42"

    second = gateway.engine.calls[1].body
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
    assert len(second["tools"]) == 1


async def test_each_answer_of_a_thread_can_be_continued(gateway, clients):
    gateway.engine.script = lambda prompt: f"heard {prompt.text}"
    opened = await gateway.open()
    (_, client) = await clients(opened)

    async def ask(text, **thread):
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}
        return await client.beta.messages.create(**body, thread=thread)

    first = await ask("one", type="create")
    second = await ask("two", type="continue", previous_message_id=first.id)
    await ask("three", type="continue", previous_message_id=second.id)
    await ask("other", type="continue", previous_message_id=first.id)

    texts = [[message["content"] for message in call.body["messages"]] for call in gateway.engine.calls]
    assert texts[2] == ["one", "heard one", "two", "heard two", "three"]
    assert texts[3] == ["one", "heard one", "other"]


async def test_what_a_thread_keeps_cannot_be_changed_and_others_threads_are_unknown(gateway, clients):
    opened, other = await gateway.open(), await gateway.open()
    (_, mine), (_, theirs) = await clients(opened), await clients(other)
    fields = {"model": "m", "max_tokens": 9, "messages": HELLO}
    answer = await mine.beta.messages.create(**fields, thread={"type": "create"})
    continued = {"type": "continue", "previous_message_id": answer.id}

    with pytest.raises(anthropic.BadRequestError, match="keep system and tools"):
        await mine.beta.messages.create(**fields, system="be long", thread=continued)
    with pytest.raises(anthropic.NotFoundError, match="send the whole conversation") as raised:
        await theirs.beta.messages.create(**fields, thread=continued)
    assert raised.value.error_code == "thread_not_found"


async def test_a_field_that_nothing_applies_is_a_finding(gateway, clients):
    opened = await gateway.open()
    (of_openai, of_anthropic) = await clients(opened)
    management = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    more = {"context_management": management, "compaction": {"type": "x"}, "top_k": 3, "inference_geo": "eu"}

    await of_anthropic.messages.create(model="m", max_tokens=9, messages=HELLO, extra_body=more)
    await of_openai.responses.create(model="m", input="hi", truncation="auto", extra_body={"sorcery": 1})
    await of_openai.responses.create(model="m", input="hi", truncation="disabled", store=False)

    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert [step.findings for step in steps] == [
        ["not_applied:compaction", "not_applied:context_management", "unreproducible:top_k"],
        ["not_applied:sorcery", "not_applied:truncation"],
        [],
    ]
    assert resolve(gateway.log.trajectory(opened["trajectory_id"]).contents, steps[0].state.messages[0])
