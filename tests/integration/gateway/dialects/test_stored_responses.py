"""Responses that are read again, deleted, compacted: each within its rollout."""

import itertools
import json

import openai
import pytest

from agent_layer.translation import seal_reasoning

WORDS = "a long instruction " * 40
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.fixture
async def rollout(gateway):
    return await gateway.open()


@pytest.fixture
async def client(clients, rollout):
    return (await clients(rollout))[0]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stored_response_is_read_as_it_was_answered(client, stream):
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}, "description": WORDS, "strict": False}
    fields = {"model": "m", "input": "hello", "instructions": WORDS, "tools": [tool], "metadata": {"a": "b"}}
    if stream:
        async with client.responses.stream(**fields) as events:
            answered = await events.get_final_response()
    else:
        answered = await client.responses.create(**fields)

    read = await client.responses.retrieve(answered.id)

    parsed = {"output": {"__all__": {"content": {"__all__": {"parsed"}}, "parsed_arguments": True}}}
    assert read.model_dump(exclude_unset=True) == answered.model_dump(exclude_unset=True, exclude=parsed)
    assert read.instructions == WORDS


async def test_input_items_are_what_the_model_read(client):
    first = await client.responses.create(model="m", input="one")
    second = await client.responses.create(
        model="m",
        input=[{"role": "user", "content": [{"type": "input_text", "text": "two"}]}],
        previous_response_id=first.id,
    )

    listed = [item async for item in await client.responses.input_items.list(second.id, order="asc", limit=2)]
    newest = await client.responses.input_items.list(second.id, limit=1)
    least = await client.responses.input_items.list(second.id, limit=0)

    assert [(item.role, item.content[0].type, item.content[0].text) for item in listed] == [
        ("user", "input_text", "one"),
        ("assistant", "output_text", "you said: one"),
        ("user", "input_text", "two"),
    ]
    assert len({item.id for item in listed}) == 3
    assert (newest.data[0].id, newest.has_more) == (listed[-1].id, True)
    assert least.data == newest.data  # an empty page would be followed by the same


async def test_a_deleted_response_is_gone_but_what_continued_it_goes_on(client):
    first = await client.responses.create(model="m", input="one")
    second = await client.responses.create(model="m", input="two", previous_response_id=first.id)

    await client.responses.delete(first.id)

    for method in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError, match="not remembered"):
            await method(first.id)
    with pytest.raises(openai.NotFoundError, match="send the conversation"):
        await client.responses.create(model="m", input="x", previous_response_id=first.id)
    third = await client.responses.create(model="m", input="three", previous_response_id=second.id)
    assert third.output_text == "you said: three"


async def test_no_other_rollout_and_no_name_of_the_memory_finds_a_response(gateway, clients, client):
    stored = await client.responses.create(model="m", input="one")
    hidden = await client.responses.create(model="m", input="one", store=False)
    (other, _), item = await clients(await gateway.open()), stored.output[0].id

    for asking, name in [(other, stored.id), (client, hidden.id), (client, item), (client, "x/shown")]:
        for method in (asking.responses.retrieve, asking.responses.delete, asking.responses.input_items.list):
            with pytest.raises(openai.NotFoundError):
                await method(name)


async def test_methods_need_the_rollouts_key(gateway, rollout, client):
    stored = await client.responses.create(model="m", input="one")
    other = await gateway.open()
    paths = [f"responses/{stored.id}", f"responses/{stored.id}/input_items", "responses/compact"]
    for method, path, key in itertools.product(("GET", "DELETE", "POST"), paths, ("", other["api_key"])):
        async with gateway.session.request(
            method, f"{rollout['base_url']}/{path}", headers={"Authorization": f"Bearer {key}"}
        ) as reply:
            assert reply.status == 401, (method, path)


async def test_tokens_of_an_input_are_counted(client):
    counted = await client.responses.input_tokens.count(model="m", input="one two")
    answered = await client.responses.create(model="m", input="one two")
    assert counted.input_tokens == answered.usage.input_tokens


async def test_a_compaction_is_a_side_call_and_its_summary_is_read(gateway, rollout, client):
    gateway.engine.script = lambda prompt: "the SUMMARY" if "Summarise" in str(prompt.body["messages"][-1]) else "fine"
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
    first = await client.responses.create(model="m", input="the task", instructions="be brief", tools=[tool])

    raw = client.responses.with_raw_response
    answered = await raw.compact(model="m", previous_response_id=first.id, instructions="be brief")
    compacted, history = answered.parse(), json.loads(answered.text)["output"]
    after = await client.responses.create(
        model="m", input=[*history, {"role": "user", "content": "go on"}], instructions="be brief", tools=[tool]
    )

    assert compacted.object == "response.compaction"
    assert [item["type"] for item in history] == ["message", "compaction"]
    assert history[0]["content"] == [{"type": "input_text", "text": "the task"}]
    assert history[1]["encrypted_content"] == seal_reasoning("the SUMMARY")
    assert after.output_text == "fine"
    prompt = gateway.engine.calls[-1].body["messages"]
    assert [one["role"] for one in prompt] == ["system", "user", "user", "user"]
    assert "the SUMMARY" in prompt[2]["content"]
    steps = gateway.log.trajectory(rollout["trajectory_id"]).steps
    assert [step.role for step in steps] == ["policy", "aux", "policy"]
    assert "side_call:compact" in steps[1].findings
    assert compacted.usage.output_tokens == 3


PARTS = [
    {"type": "input_text", "text": "read this"},
    {"type": "input_image", "image_url": "data:image/png;base64,eA==", "detail": "high"},
    {"type": "input_file", "filename": "f.txt", "file_data": "data:text/plain;base64,eA=="},
]


async def test_a_compaction_keeps_all_that_the_user_showed(client):
    compacted = await client.responses.compact(model="m", input=[{"role": "user", "content": PARTS}])
    assert [part.model_dump(exclude_unset=True) for part in compacted.output[0].content] == PARTS


@pytest.mark.parametrize("answer", [{"content": ""}, {"reasoning": "hm", "content": " "}, {"tool_calls": [CALL]}])
async def test_a_compaction_without_a_summary_replaces_nothing(gateway, client, answer):
    gateway.engine.script = lambda _: {"content": None, **answer}
    with pytest.raises(openai.InternalServerError, match="expected a text of the model"):
        await client.with_options(max_retries=0).responses.compact(model="m", input="the task")


async def test_a_compaction_of_another_party_is_refused(client):
    item = {"type": "compaction", "encrypted_content": "gAAAA"}
    with pytest.raises(openai.BadRequestError, match="send the conversation itself"):
        await client.responses.create(model="m", input=[item])
