"""An answer that is cut off by a switch of weights goes on from its token ids, and nobody but the record can tell."""

import asyncio
import threading
from pathlib import Path

import pytest

from agent_layer.local.scripted.script import END, id_of, logprob_of

NUM_WORDS = 40
NUM_TOKENS = NUM_WORDS + 1
LIMIT = {"max_tokens": 100}
COUNTED = " ".join(f"w{index}" for index in range(NUM_WORDS))


def tell_weights(asked):
    """Each word, when it is drawn, names the weights that are loaded."""
    return (Path(asked.weights()).name for _ in range(NUM_WORDS))


def count(_):
    return COUNTED


@pytest.fixture
def house(cutting_house):
    cutting_house.engine.script = tell_weights
    return cutting_house


@pytest.fixture
def switch(switch):
    """As everywhere, while the engine falls silent until it has new weights: no answer ends before it is cut off."""

    async def switch_in_silence(house, version, before=lambda: None):
        seconds, house.engine.token_seconds = house.engine.token_seconds, 60.0

        def speak_again():
            house.engine.token_seconds = seconds
            before()

        await switch(house, version, speak_again)

    return switch_in_silence


def sampled(house):
    return sum(len(call.token_ids[0]) for call in house.engine.calls)


def text_of(answer):
    if isinstance(answer, dict):
        return answer["choices"][0]["message"]["content"]
    return "".join(choice["delta"].get("content") or "" for chunk in answer for choice in chunk["choices"])


def versions_of(action):
    """Which version sampled each token, as the record tells."""
    return [version for version, number in action.policy_versions for _ in range(number)]


def check_index_complete(action, *versions):
    """Every token is there once, with its log-probability and the version whose weights said it."""
    told = versions_of(action)
    assert sorted(set(told)) == list(versions)
    assert list(action.response_token_ids) == [id_of(str(version)) for version in told[:-1]] + [id_of(END)]
    assert list(action.logprobs) == pytest.approx([logprob_of(one) for one in action.response_token_ids])
    assert len(told) == NUM_TOKENS
    assert action.finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_goes_on_under_new_weights(house, until, stream, switch):
    opened = await house.open()

    calling = asyncio.create_task(house.chat(opened, "go", stream=stream, **LIMIT))
    await until(lambda: sampled(house) > 5)
    await switch(house, 1)
    status, answer = await calling

    step = house.step(opened)
    assert (status, step.status, isinstance(answer, list)) == (200, "ok", stream)
    check_index_complete(step.action, 0, 1)
    assert text_of(answer) == step.action.message["content"] == " ".join(map(str, versions_of(step.action)[:-1]))
    assert step.findings == ["continued"]
    assert step.capture_level == "tokens"
    assert step.usage.response_tokens == NUM_TOKENS


@pytest.mark.parametrize("stream", [False, True])
async def test_the_client_reads_one_uninterrupted_answer(house, until, stream, switch):
    house.engine.script = count
    opened = await house.open()
    asked = {"stream": stream, "return_token_ids": True, "logprobs": True, **LIMIT}
    asked |= {"stream_options": {"include_usage": True}} if stream else {}

    _, plain = await house.chat(opened, "go", **asked)
    calling = asyncio.create_task(house.chat(opened, "go", **asked))
    await until(lambda: sampled(house) > NUM_TOKENS + 5)
    await switch(house, 1)
    _, answer = await calling

    assert "continued" in house.step(opened).findings
    assert text_of(answer) == text_of(plain) == COUNTED
    if stream:
        assert answer[-1]["usage"] == plain[-1]["usage"]
        assert shape_of(answer) == shape_of(plain)
    else:
        without_bytes(answer)
        assert answer["usage"] == plain["usage"]
        assert answer["prompt_token_ids"] == plain["prompt_token_ids"]
        assert answer["choices"] == plain["choices"]


def shape_of(chunks):
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


async def test_the_rest_is_asked_for_with_the_same_sampling_and_a_smaller_limit(house, until, switch):
    opened = await house.open()
    fields = {"temperature": 0.5, "top_p": 0.9, "max_completion_tokens": 100}

    calling = asyncio.create_task(house.chat(opened, "go", **fields))
    await until(lambda: sampled(house) > 5)
    await switch(house, 1)
    await calling

    chat, rest = house.engine.calls
    step = house.step(opened)
    num_before = step.action.policy_versions[0][1]
    assert rest.body["prompt"] == chat.prompt_token_ids + list(step.action.response_token_ids[:num_before])
    assert (rest.body["temperature"], rest.body["top_p"], rest.body["max_tokens"]) == (0.5, 0.9, 100 - num_before)
    assert list(step.prompt.delta) == chat.prompt_token_ids


async def test_two_switches_in_one_answer(house, until, switch):
    opened = await house.open()

    calling = asyncio.create_task(house.chat(opened, "go", stream=True, **LIMIT))
    for version in (1, 2):
        await until(lambda wanted=5 * version: sampled(house) > wanted)
        await switch(house, version)
    await calling

    action = house.step(opened).action
    assert [version for version, _ in action.policy_versions] == [0, 1, 2]
    check_index_complete(action, 0, 1, 2)


@pytest.mark.parametrize("path", ["messages", "responses"])
async def test_translated_answers_go_on_too(house, until, path, switch):
    opened = await house.open()
    url = f"/r/{opened['trajectory_id']}/v1/{path}"
    asked = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "go"}]}
    if path == "responses":
        asked = {"model": "m", "max_output_tokens": 100, "input": "go"}

    calling = asyncio.create_task(house.post(url, asked, key=opened["api_key"]))
    await until(lambda: sampled(house) > 5)
    await switch(house, 1)
    status, answer = await calling

    assert status == 200, answer
    check_index_complete(house.step(opened).action, 0, 1)


async def test_a_call_that_was_cut_before_its_first_token_is_asked_anew(house, until, switch):
    house.engine.prefill_seconds = 60.0
    opened = await house.open()

    calling = asyncio.create_task(house.chat(opened, "go", stream=True, **LIMIT))
    await until(lambda: house.engine.num_running)
    await switch(house, 1, lambda: setattr(house.engine, "prefill_seconds", 0.0))
    _, chunks = await calling

    step = house.step(opened)
    check_index_complete(step.action, 1)
    assert [call.body["stream"] for call in house.engine.calls] == [True, True]
    assert shape_of(chunks)["roles"] == ["assistant"]
    assert step.findings == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_during_the_wait_ends_its_call(house, until, stream, switch):
    opened = await house.open()
    is_loading, may_serve = threading.Event(), threading.Event()

    def wait():
        is_loading.set()
        assert may_serve.wait(60)

    calling = asyncio.create_task(house.chat(opened, "go", stream=stream, **LIMIT))
    await until(lambda: sampled(house) > 5)
    switching = asyncio.create_task(switch(house, 1, wait))
    await until(is_loading.is_set)
    calling.cancel()
    await until(lambda: house.log.parts("end"))
    may_serve.set()
    await switching

    step = house.step(opened)
    assert step.status == "aborted"
    assert len(house.engine.calls) == 1
    if stream:
        ((version, number),) = step.action.policy_versions
        assert (version, number) == (0, len(step.action.response_token_ids))


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_fails_at_the_rest_ends_the_call_with_an_error(house, until, stream, switch):
    opened = await house.open()

    calling = asyncio.create_task(house.chat(opened, "go", stream=stream, **LIMIT))
    await until(lambda: sampled(house) > 5)
    chat = house.engine.calls.pop()  # so that the engine knows no chat that it could go on with
    await switch(house, 1)
    status, answer = await calling

    step = house.step(opened)
    assert status == (200 if stream else 502)
    assert "error" in (answer[-1] if stream else answer)
    assert step.status == "error"
    assert "rest of an answer" in step.error
    if stream:
        ((version, number),) = step.action.policy_versions
        assert (version, number) == (0, len(step.action.response_token_ids))
        assert list(step.action.response_token_ids) == chat.token_ids[0][:number]


async def test_tokens_of_engines_that_mean_something_else_are_not_put_together(house, until, switch):
    opened = await house.open()

    def change():
        house.board.redis.hset(house.board.keys.engine(house.engine.url), "logprobs_mode", "raw")

    calling = asyncio.create_task(house.chat(opened, "go", **LIMIT))
    await until(lambda: sampled(house) > 5)
    await switch(house, 1, change)
    status, answer = await calling

    assert status == 502
    assert "kind of log-probabilities" in answer["error"]["message"]
    assert len(house.engine.calls) == 1


async def test_places_are_given_back_once(house, until, switch):
    opened = await house.open()

    calling = [asyncio.create_task(house.chat(opened, f"go {index}", **LIMIT)) for index in range(4)]
    await until(lambda: sampled(house) > 20)
    await switch(house, 1)
    await asyncio.gather(*calling)

    await switch(house, 2)  # nothing holds it up
    assert house.engine.num_running == 0


async def test_switches_under_load(house, until, switch):
    house.engine.token_seconds = 0.005
    rollouts = [await house.open() for _ in range(8)]
    is_over = asyncio.Event()

    async def talk(opened, stream):
        while not is_over.is_set():
            assert (await house.chat(opened, "go", stream=stream, **LIMIT))[0] == 200

    talking = [asyncio.create_task(talk(opened, index % 2 == 0)) for index, opened in enumerate(rollouts)]
    for version in (1, 2, 3):
        num_calls = len(house.engine.calls)
        await until(lambda num_calls=num_calls: len(house.engine.calls) > num_calls + 8)
        await switch(house, version)
    is_over.set()
    await asyncio.gather(*talking)

    actions = [part.actions[0] for part in house.log.parts("end")]
    assert {version for action in actions for version, _ in action.policy_versions} == {0, 1, 2, 3}
    for action in actions:
        check_index_complete(action, *sorted({version for version, _ in action.policy_versions}))
