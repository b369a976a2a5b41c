"""One conversation is one record, whichever official client held it, whole or streamed."""

import base64
import json

import pytest

import tracer
from agent_layer.engines import NEUTRAL_SAMPLING
from agent_layer.local.scripted.script import token_logprob
from agent_layer.schema.messages import resolve
from agent_layer.schema.record import Logprobs

DIALECTS = ["completions", "responses", "linked responses", "referring responses", "messages", "google"]
CALLS = [("c1", ' {"b":2,\n "a": 40.0}'), ("c2", '{"a": 1, "b": 2}')]
CALLING = {
    "content": "adding",
    "reasoning": "let me add",
    "tool_calls": [
        {"id": name, "type": "function", "function": {"name": "add", "arguments": text}} for name, text in CALLS
    ],
}


def script(prompt):
    """Answer with reasoning, a word and two tool calls; then with the sum."""
    if prompt.messages[-1]["role"] == "tool":
        return {"reasoning": "done", "content": f"the sums are {prompt.messages[-2]['content']} and {prompt.text}"}
    return CALLING


async def converse(talk):
    for question in ("first", "second"):
        text, calls = await talk.ask(question)
        assert (text, list(calls.values())) == ("adding", [{"a": 40, "b": 2}, {"a": 1, "b": 2}])
        text, calls = await talk.give(dict(zip(calls, ("42", "3"), strict=True)))
        assert (text, calls) == ("the sums are 42 and 3", {})


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_conversation_with_tools(gateway, talks, dialect, is_streamed):
    tracer.instrument()
    gateway.engine.script = script
    opened = await gateway.open()

    with tracer.testing.capture() as captured:
        async with tracer.rollout(task="t"):
            await converse(await talks(opened, dialect, is_streamed=is_streamed))

    trajectory = gateway.log.trajectory(opened["trajectory_id"])
    assert len(trajectory.steps) == len(gateway.engine.calls) == 4
    for step, seen in zip(trajectory.steps, gateway.engine.calls, strict=True):
        assert list(step.prompt_token_ids) == seen.prompt_token_ids
        assert list(step.action.response_token_ids) == seen.token_ids[0]
        assert step.action.logprobs == Logprobs([token_logprob(one) for one in seen.token_ids[0]])
        assert (step.capture_level, step.status) == ("tokens", "ok")
        assert set(step.findings) <= {"unreproducible:tools.strict"}  # some SDKs ask for strict tools by themselves
    first, *others = trajectory.steps
    assert [step.parent_call for step in others] == [step.call_id for step in trajectory.steps[:-1]]
    assert [step.prompt.parent_call for step in others] == [step.call_id for step in trajectory.steps[:-1]]
    assert first.action.message == {"role": "assistant", **CALLING}
    spoken = [resolve(trajectory.contents, one) for one in trajectory.steps[-1].state.messages]
    assert [plain(message) for message in spoken] == expected()
    (tool,) = resolve(trajectory.contents, first.state.tools)
    assert (tool["function"]["name"], tool["function"]["parameters"]["type"]) == ("add", "object")
    check_traced(trajectory, captured.trajectory, dialect, is_streamed=is_streamed)


def check_traced(recorded, seen, dialect, *, is_streamed):
    """Check that the tracer, which saw the same calls in the client, recorded what the gateway did."""
    lacking = ["not_recorded:previous_answers"] if dialect == "linked responses" else []
    lacking += ["not_recorded:items.item_reference"] if dialect == "referring responses" else []
    is_counted = not (dialect == "completions" and is_streamed)  # only the gateway asks for it
    for number, (step, traced) in enumerate(zip(recorded.steps, seen.steps, strict=True)):
        assert traced.action.finish_reason == ("tool_calls" if "tool_calls" in step.action.message else "stop")
        assert (traced.status, traced.findings) == ("ok", lacking if number else [])
        assert traced.usage == (step.usage if is_counted else None)
        assert traced.sampling_asked == step.sampling_asked
        assert respelled(traced.action.message) == respelled(step.action.message)
        assert resolve(seen.contents, traced.state.tools) == resolve(recorded.contents, step.state.tools)
        if not lacking:
            spoken = [respelled(resolve(recorded.contents, name)) for name in step.state.messages]
            assert [respelled(resolve(seen.contents, name)) for name in traced.state.messages] == spoken


def plain(message):
    """Role and text; of calls their names and exact arguments."""
    calls = [call["function"]["arguments"] for call in message.get("tool_calls") or []]
    return message["role"], message.get("content"), message.get("reasoning"), calls


def expected():
    """The messages of the last prompt."""
    arguments = [text for _, text in CALLS]
    called = ("assistant", "adding", "let me add", arguments)
    results = [("tool", "42", None, []), ("tool", "3", None, [])]
    command = ("assistant", "the sums are 42 and 3", "done", [])
    questions = [("user", text, None, []) for text in ("first", "second")]
    return [("system", "be brief", None, []), questions[0], called, *results, command, questions[1], called, *results]


def respelled(message):
    """The message, its calls by what their arguments say: Messages shows them as objects."""
    calls = [
        (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls") or []
    ]
    return {**message, "tool_calls": calls}


async def test_sampling_is_recorded_as_it_was_asked(gateway, talks):
    opened = await gateway.open(sampling={"temperature": 1.0})

    for dialect in DIALECTS:
        limit = "max_output_tokens" if "responses" in dialect or dialect == "google" else "max_tokens"
        others = {"temperature": 0.0, "seed": 5}
        more = others if dialect == "google" else {"extra_body": others}
        await (await talks(opened, dialect)).ask("hi", **{limit: 7}, **more)

    trajectory = gateway.log.trajectory(opened["trajectory_id"])
    questions = [step.sampling_asked for step in trajectory.steps]
    assert questions[1] == questions[2] == questions[3] == {"max_output_tokens": 7, "temperature": 0.0, "seed": 5}
    assert questions[5] == {"generationConfig": {"maxOutputTokens": 7, "temperature": 0.0, "seed": 5}}
    assert questions[0] == questions[4] == {"max_tokens": 7, "temperature": 0.0, "seed": 5}
    for step, seen in zip(trajectory.steps, gateway.engine.calls, strict=True):
        assert step.sampling_applied == NEUTRAL_SAMPLING | {"max_tokens": 7, "temperature": 1.0, "seed": 5}
        assert (seen.body["max_tokens"], seen.body["temperature"], seen.body["seed"]) == (7, 1.0, 5)


async def test_an_image_is_one_content_in_every_dialect(gateway, clients, google):
    picture = base64.b64encode(bytes(range(256)) * 3).decode()  # with all letters of the alphabet
    url = f"data:image/png;base64,{picture}"
    opened = await gateway.open()
    of_openai, of_anthropic = await clients(opened)
    seen = {"type": "image_url", "image_url": {"url": url}}
    source = {"type": "base64", "media_type": "image/png", "data": picture}

    await of_openai.chat.completions.create(model="m", messages=[{"role": "user", "content": [seen]}])
    shown = {"type": "input_image", "image_url": url}
    await of_openai.responses.create(model="m", input=[{"role": "user", "content": [shown]}])
    block = {"type": "image", "source": source}
    await of_anthropic.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": [block]}])

    part = {"inline_data": {"mime_type": "image/png", "data": base64.b64decode(picture)}}
    await google(opened).aio.models.generate_content(model="m", contents=[part])

    assert [call.body["messages"][0]["content"] for call in gateway.engine.calls] == [[seen]] * 4
    trajectory = gateway.log.trajectory(opened["trajectory_id"])
    assert [json.loads(body) for body in trajectory.contents.values() if picture.encode() in body] == [url]
