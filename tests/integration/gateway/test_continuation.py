"""An answer cut off by a weight switch continues from its token ids; only the record shows the cut."""

import asyncio
import threading
from pathlib import Path

import pytest

from agent_layer.local.scripted.script import END, token_logprob, word_token_id

from ...waiting import scaled

NUM_WORDS = 40
NUM_TOKENS = NUM_WORDS + 1
LIMIT = {"max_tokens": 100}
COUNTED = " ".join(f"w{index}" for index in range(NUM_WORDS))


def tell_weights(prompt):
    """Each word, when it is drawn, names the weights that are loaded."""
    return (Path(prompt.weights()).name for _ in range(NUM_WORDS))


def count(_):
    return COUNTED


@pytest.fixture
def gateway(preempting_gateway):
    preempting_gateway.engine.script, preempting_gateway.engine.token_seconds = tell_weights, 0.005
    return preempting_gateway


@pytest.fixture
def switch(switch):
    """As everywhere, while the engine falls silent until it has new weights: no answer ends before it is cut off."""

    async def switch_in_silence(gateway, version, before=lambda: None):
        seconds, gateway.engine.token_seconds = gateway.engine.token_seconds, 60.0

        def speak_again():
            gateway.engine.token_seconds = seconds
            before()

        await switch(gateway, version, speak_again)

    return switch_in_silence


def sampled(gateway):
    return sum(len(call.token_ids[0]) for call in gateway.engine.calls)


def read_text(answer):
    if isinstance(answer, dict):
        return answer["choices"][0]["message"]["content"]
    return "".join(choice["delta"].get("content") or "" for chunk in answer for choice in chunk["choices"])


def list_versions(action):
    """Return the version that sampled each token, from the record."""
    return [version for version, number in action.policy_versions for _ in range(number)]


def check_index_complete(action, *versions):
    """Every token appears once, with its log-probability and the version that sampled it."""
    answer = list_versions(action)
    assert sorted(set(answer)) == list(versions)
    assert list(action.response_token_ids) == [word_token_id(str(version)) for version in answer[:-1]] + [
        word_token_id(END)
    ]
    assert list(action.logprobs) == pytest.approx([token_logprob(one) for one in action.response_token_ids])
    assert len(answer) == NUM_TOKENS
    assert action.finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_goes_on_under_new_weights(gateway, until, stream, switch):
    opened = await gateway.open()

    calling = asyncio.create_task(gateway.chat(opened, "go", stream=stream, **LIMIT))
    await until(lambda: sampled(gateway) > 5)
    await switch(gateway, 1)
    status, answer = await calling

    step = gateway.step(opened)
    assert (status, step.status, isinstance(answer, list)) == (200, "ok", stream)
    check_index_complete(step.action, 0, 1)
    assert read_text(answer) == step.action.message["content"] == " ".join(map(str, list_versions(step.action)[:-1]))
    assert step.findings == ["continued"]
    assert step.capture_level == "tokens"
    assert step.usage.response_tokens == NUM_TOKENS


@pytest.mark.parametrize("stream", [False, True])
async def test_the_client_reads_one_uninterrupted_answer(gateway, until, stream, switch):
    gateway.engine.script = count
    opened = await gateway.open()
    fields = {"stream": stream, "return_token_ids": True, "logprobs": True, **LIMIT}
    fields |= {"stream_options": {"include_usage": True}} if stream else {}

    _, plain = await gateway.chat(opened, "go", **fields)
    calling = asyncio.create_task(gateway.chat(opened, "go", **fields))
    await until(lambda: sampled(gateway) > NUM_TOKENS + 5)
    await switch(gateway, 1)
    _, answer = await calling

    assert "continued" in gateway.step(opened).findings
    assert read_text(answer) == read_text(plain) == COUNTED
    if stream:
        assert answer[-1]["usage"] == plain[-1]["usage"]
        assert describe_shape(answer) == describe_shape(plain)
    else:
        without_bytes(answer)
        assert answer["usage"] == plain["usage"]
        assert answer["prompt_token_ids"] == plain["prompt_token_ids"]
        assert answer["choices"] == plain["choices"]


def describe_shape(chunks):
    """What a client adds up."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    entries = [entry["logprob"] for choice in choices for entry in (choice.get("logprobs") or {}).get("content") or ()]
    return {
        "ids": [one for choice in choices for one in choice.get("token_ids") or ()],
        "logprobs": entries,
        "heads": {(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in chunks},
        "prompts": [chunk["prompt_token_ids"] for chunk in chunks if "prompt_token_ids" in chunk],
        "roles": [choice["delta"]["role"] for choice in choices if "role" in choice["delta"]],
        "endings": [choice["finish_reason"] for choice in choices if choice["finish_reason"]],
    }


def without_bytes(answer):
    for entry in answer["choices"][0]["logprobs"]["content"]:
        entry.pop("bytes", None)


async def test_the_rest_is_asked_for_with_the_same_sampling_and_a_smaller_limit(gateway, until, switch):
    opened = await gateway.open(split="eval")
    fields = {"temperature": 0.5, "top_p": 0.9, "max_completion_tokens": 100}

    calling = asyncio.create_task(gateway.chat(opened, "go", **fields))
    await until(lambda: sampled(gateway) > 5)
    await switch(gateway, 1)
    await calling

    chat, rest = gateway.engine.calls
    step = gateway.step(opened)
    num_before = step.action.policy_versions[0][1]
    assert rest.body["prompt"] == chat.prompt_token_ids + list(step.action.response_token_ids[:num_before])
    assert (rest.body["temperature"], rest.body["top_p"], rest.body["max_tokens"]) == (0.5, 0.9, 100 - num_before)
    assert list(step.prompt.delta) == chat.prompt_token_ids


async def test_two_switches_in_one_answer(gateway, until, switch):
    opened = await gateway.open()

    calling = asyncio.create_task(gateway.chat(opened, "go", stream=True, **LIMIT))
    for version in (1, 2):
        await until(lambda wanted=5 * version: sampled(gateway) > wanted)
        await switch(gateway, version)
    await calling

    action = gateway.step(opened).action
    assert [version for version, _ in action.policy_versions] == [0, 1, 2]
    check_index_complete(action, 0, 1, 2)


@pytest.mark.parametrize("path", ["messages", "responses"])
async def test_translated_answers_go_on_too(gateway, until, path, switch):
    opened = await gateway.open()
    url = f"/r/{opened['trajectory_id']}/v1/{path}"
    fields = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "go"}]}
    if path == "responses":
        fields = {"model": "m", "max_output_tokens": 100, "input": "go"}

    calling = asyncio.create_task(gateway.post(url, fields, key=opened["api_key"]))
    await until(lambda: sampled(gateway) > 5)
    await switch(gateway, 1)
    status, answer = await calling

    assert status == 200, answer
    check_index_complete(gateway.step(opened).action, 0, 1)


async def test_a_call_that_was_cut_before_its_first_token_is_asked_anew(gateway, until, switch):
    gateway.engine.prefill_seconds = 60.0
    opened = await gateway.open()

    calling = asyncio.create_task(gateway.chat(opened, "go", stream=True, **LIMIT))
    await until(lambda: gateway.engine.num_running)
    await switch(gateway, 1, lambda: setattr(gateway.engine, "prefill_seconds", 0.0))
    _, chunks = await calling

    step = gateway.step(opened)
    check_index_complete(step.action, 1)
    assert [call.body["stream"] for call in gateway.engine.calls] == [True, True]
    assert describe_shape(chunks)["roles"] == ["assistant"]
    assert step.findings == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_during_the_wait_ends_its_call(gateway, until, stream, switch):
    opened = await gateway.open()
    is_loading, may_serve = threading.Event(), threading.Event()

    def wait():
        is_loading.set()
        assert may_serve.wait(scaled(60))

    calling = asyncio.create_task(gateway.chat(opened, "go", stream=stream, **LIMIT))
    await until(lambda: sampled(gateway) > 5)
    switching = asyncio.create_task(switch(gateway, 1, wait))
    await until(is_loading.is_set)
    calling.cancel()
    await until(lambda: gateway.log.parts("end"))
    may_serve.set()
    await switching

    step = gateway.step(opened)
    assert step.status == "aborted"
    assert len(gateway.engine.calls) == 1
    if stream:
        ((version, number),) = step.action.policy_versions
        assert (version, number) == (0, len(step.action.response_token_ids))


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_fails_at_the_rest_ends_the_call_with_an_error(gateway, until, stream, switch):
    opened = await gateway.open()

    calling = asyncio.create_task(gateway.chat(opened, "go", stream=stream, **LIMIT))
    await until(lambda: sampled(gateway) > 5)
    chat = gateway.engine.calls.pop()  # so that the engine knows no chat to continue
    await switch(gateway, 1)
    status, answer = await calling

    step = gateway.step(opened)
    assert status == (200 if stream else 502)
    assert "error" in (answer[-1] if stream else answer)
    assert step.status == "error"
    assert "rest of an answer" in step.error
    if stream:
        ((version, number),) = step.action.policy_versions
        assert (version, number) == (0, len(step.action.response_token_ids))
        assert list(step.action.response_token_ids) == chat.token_ids[0][:number]


async def test_tokens_of_engines_that_mean_something_else_are_not_put_together(gateway, until, switch):
    opened = await gateway.open()

    def change():
        gateway.registry.redis.hset(gateway.registry.keys.engine(gateway.engine.url), "logprobs_mode", "raw")

    calling = asyncio.create_task(gateway.chat(opened, "go", **LIMIT))
    await until(lambda: sampled(gateway) > 5)
    await switch(gateway, 1, change)
    status, answer = await calling

    assert status == 502
    assert "kind of log-probabilities" in answer["error"]["message"]
    assert len(gateway.engine.calls) == 1


async def test_places_are_given_back_once(gateway, until, switch):
    opened = await gateway.open()

    calling = [asyncio.create_task(gateway.chat(opened, f"go {index}", **LIMIT)) for index in range(4)]
    await until(lambda: sampled(gateway) > 20)
    await switch(gateway, 1)
    await asyncio.gather(*calling)

    await switch(gateway, 2)  # nothing holds it up
    assert gateway.engine.num_running == 0


async def test_switches_under_load(gateway, until, switch):
    rollouts = [await gateway.open() for _ in range(8)]
    is_over = asyncio.Event()

    async def talk(opened, stream):
        while not is_over.is_set():
            assert (await gateway.chat(opened, "go", stream=stream, **LIMIT))[0] == 200

    talking = [asyncio.create_task(talk(opened, index % 2 == 0)) for index, opened in enumerate(rollouts)]
    for version in (1, 2, 3):
        num_calls = len(gateway.engine.calls)
        await until(lambda num_calls=num_calls: len(gateway.engine.calls) > num_calls + 8)
        await switch(gateway, version)
    is_over.set()
    await asyncio.gather(*talking)

    actions = [part.actions[0] for part in gateway.log.parts("end")]
    assert {version for action in actions for version, _ in action.policy_versions} == {0, 1, 2, 3}
    for action in actions:
        check_index_complete(action, *sorted({version for version, _ in action.policy_versions}))
