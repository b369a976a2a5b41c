"""What the engine sampled is recorded exactly, and the client gets what it asked for."""

import msgspec
import pytest

from agent_layer.local.scripted.script import token_logprob, word_token_id
from agent_layer.schema.record import Logprobs
from agent_layer.schema.step import Content

from ...waiting import within

TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


def check_exact(steps, seen):
    """Each choice of a call has the ids that the engine saw itself sample."""
    assert len(steps) == len(seen.token_ids)
    for step, ids in zip(steps, seen.token_ids, strict=True):
        assert list(step.prompt_token_ids) == seen.prompt_token_ids
        assert list(step.action.response_token_ids) == ids
        assert step.action.logprobs == Logprobs([token_logprob(one) for one in ids])
        assert step.action.policy_versions == [(0, len(ids))]
        assert (step.capture_level, step.status, step.findings) == ("tokens", "ok", [])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("num_choices", [1, 3])
async def test_ids_and_logprobs_are_the_engines(gateway, stream, num_choices):
    opened = await gateway.open()

    status, _ = await gateway.chat(opened, "hello there", stream=stream, n=num_choices)

    assert status == 200
    check_exact(gateway.log.trajectory(opened["trajectory_id"]).steps, gateway.engine.calls[0])


async def test_a_stream_is_recorded_like_a_whole_answer(gateway):
    gateway.engine.script = lambda _: {"content": "let me see", "tool_calls": [TOOL_CALL]}
    opened = await gateway.open()

    await gateway.chat(opened, "add", tools=TOOLS)
    await gateway.chat(opened, "add", tools=TOOLS, stream=True)

    whole, streamed = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert whole.action == streamed.action
    assert whole.action.message == {"role": "assistant", "content": "let me see", "tool_calls": [TOOL_CALL]}
    assert whole.action.finish_reason == "tool_calls"


async def test_the_client_sees_only_what_it_asked_for(gateway):
    opened = await gateway.open()

    _, plain = await gateway.chat(opened, "hello")
    _, full = await gateway.chat(opened, "hello", logprobs=True, return_token_ids=True)

    assert plain["prompt_token_ids"] is plain["choices"][0]["token_ids"] is plain["choices"][0]["logprobs"] is None
    assert plain["usage"] == full["usage"]
    assert full["prompt_token_ids"] == gateway.engine.calls[1].prompt_token_ids
    assert full["choices"][0]["token_ids"] == gateway.engine.calls[1].token_ids[0]
    assert full["choices"][0]["logprobs"]["content"]


async def test_a_stream_shows_no_ids_that_were_not_asked_for(gateway):
    opened = await gateway.open()

    _, chunks = await gateway.chat(opened, "hello", stream=True)

    assert (
        "".join(choice["delta"].get("content", "") for one in chunks for choice in one["choices"]) == "you said: hello"
    )
    assert all(one.get("prompt_token_ids") is None for one in chunks)
    reported = [choice for one in chunks for choice in one["choices"]]
    assert all(choice.get("token_ids") is choice.get("logprobs") is None for choice in reported)


async def test_agents_may_name_any_model_and_fields_pass_through(gateway):
    opened = await gateway.open(sampling={"temperature": 1.0})

    await gateway.chat(opened, "hello", temperature=0, seed=7, chat_template_kwargs={"deep": [1, "ä"]})

    request = gateway.engine.calls[0].body
    assert (request["model"], request["temperature"], request["seed"]) == ("scripted", 1.0, 7)
    assert request["chat_template_kwargs"] == {"deep": [1, "ä"]}
    step = gateway.step(opened)
    assert step.sampling_asked == {"temperature": 0, "seed": 7, "chat_template_kwargs": {"deep": [1, "ä"]}}
    assert step.sampling_applied["temperature"] == step.temperature == 1.0
    assert (step.model, step.engine, step.logprobs_mode) == ("scripted", gateway.engine.url, "processed")


async def test_messages_are_stored_once_and_give_back_the_conversation(gateway):
    opened = await gateway.open()

    await gateway.chat(opened, "one")
    await gateway.chat(opened, "one", "you said: one", "two")

    contents = gateway.log.of(Content)
    assert len(contents) == len({content.hash for content in contents}) == 3
    bodies = {content.hash: content.body for content in contents}
    assert [bodies[name] for name in gateway.step(opened).state.messages] == [
        b'{"role": "user", "content": "one"}',
        b'{"role": "assistant", "content": "you said: one"}',
        b'{"role": "user", "content": "two"}',
    ]


async def test_a_second_turn_is_stored_as_what_it_adds(gateway):
    opened = await gateway.open()

    await gateway.chat(opened, "one")
    await gateway.chat(opened, "one", "you said: one", "two")

    first, second = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert (second.prompt.parent_call, second.parent_call) == (first.call_id, first.call_id)
    assert list(second.prompt.delta) == [word_token_id(word) for word in ("<user>", "two", "<end>", "<assistant>")]
    assert list(second.prompt_token_ids) == gateway.engine.calls[1].prompt_token_ids
    assert second.conversation == first.conversation == first.call_id


async def test_a_changed_history_is_a_prefix_break(gateway):
    opened = await gateway.open()

    await gateway.chat(opened, "one")
    await gateway.chat(opened, "one", "I never said that", "two")

    second = gateway.step(opened)
    assert second.prompt.parent_call is None
    assert second.findings == ["prefix_break:edited_history"]
    assert list(second.prompt_token_ids) == gateway.engine.calls[1].prompt_token_ids


async def test_agents_that_take_turns_are_not_a_break(gateway):
    opened = await gateway.open()

    for message in (["a"], ["b"], ["a", "you said: a", "a2"], ["b", "you said: b", "b2"]):
        await gateway.chat(opened, *message)

    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert [step.findings for step in steps] == [[], [], [], []]
    assert [step.prompt.parent_call for step in steps] == [None, None, steps[0].call_id, steps[1].call_id]
    assert len({step.conversation for step in steps}) == 2


async def test_best_of_two_continues_the_one_that_was_chosen(gateway):
    gateway.engine.script = lambda _: f"answer {len(gateway.engine.calls)}"
    opened = await gateway.open()

    await gateway.chat(opened, "go")
    await gateway.chat(opened, "go")
    await gateway.chat(opened, "go", "answer 1", "on")

    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert steps[2].prompt.parent_call == steps[2].parent_call == steps[0].call_id
    assert steps[2].findings == []


async def test_an_abandoned_stream_is_an_aborted_step(gateway, until):
    gateway.engine.token_seconds = 0.02
    gateway.engine.script = lambda _: " ".join(f"word-{index}" for index in range(500))
    opened = await gateway.open()

    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
    headers = {"Authorization": f"Bearer {opened['api_key']}"}
    async with gateway.session.post(f"{opened['base_url']}/chat/completions", json=body, headers=headers) as reply:
        await reply.content.readuntil(b"word-3")
        reply.close()
    await until(lambda: gateway.log.parts("end") and not gateway.engine.num_running)

    step = gateway.step(opened)
    assert step.status == "aborted"
    assert not gateway.engine.calls[0].finished
    assert list(step.action.response_token_ids) == gateway.engine.calls[0].token_ids[0][: step.usage.response_tokens]


async def test_a_stream_that_lacks_a_choice_is_an_aborted_step(gateway, monkeypatch):
    monkeypatch.setattr("agent_layer.local.scripted.engine._num_choices", lambda _: 1)
    opened = await gateway.open(sampling={"n": 2})

    await gateway.chat(opened, "hello", stream=True)

    assert gateway.step(opened).status == "aborted"


async def test_without_ids_a_step_is_text(gateway):
    gateway.engine.token_ids = False
    opened = await gateway.open()

    await gateway.chat(opened, "hello")

    step = gateway.step(opened)
    assert step.capture_level == "logprobs"
    assert step.findings == ["no_token_ids"]
    assert step.action.response_token_ids is step.prompt is None


async def test_an_engines_refusal_reaches_the_client_and_the_record(gateway):
    gateway.registry.register(msgspec.structs.replace(gateway.registry.read(gateway.engine.url), model="gone"))
    opened = await gateway.open()
    while opened["model"] != "gone":
        opened = await gateway.open()

    status, answer = await gateway.chat(opened, "hello")

    assert status == 404
    assert "does not exist" in answer["error"]["message"]
    assert gateway.step(opened).status == "error"
    assert "does not exist" in gateway.step(opened).error


async def test_the_trace_of_the_caller_is_kept(gateway):
    opened = await gateway.open()

    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await gateway.chat(opened, "x", headers={"traceparent": traceparent, "x-agent-layer-agent": "judge"})

    step = gateway.step(opened)
    assert (step.trace_id, step.span_id) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert step.agent == "judge"


@pytest.mark.parametrize(
    ("fields", "headers", "findings"),
    [
        ({"temperature": 0.7}, {}, ["raw_logprobs"]),
        ({"temperature": 1.0}, {}, []),
        ({}, {}, []),
        ({"temperature": 0.7}, {"x-agent-layer-role": "aux"}, []),
    ],
    ids=str,
)
async def test_raw_logprobs_at_another_temperature_than_1_are_a_finding(gateway, fields, headers, findings):
    gateway.registry.redis.hset(gateway.registry.keys.engine(gateway.engine.url), "logprobs_mode", "raw")
    opened = await gateway.open()

    async with within(60, "a call that is recorded with the engine's kind of log-probabilities"):
        await gateway.chat(opened, "hi", headers=headers, **fields)
        while gateway.step(opened).logprobs_mode != "raw":  # until the gateway has read the registry
            await gateway.chat(opened, "hi", headers=headers, **fields)

    assert gateway.step(opened).findings == findings
