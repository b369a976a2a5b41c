"""The scripted engine keeps the promises that the gateway relies on."""

import json

import aiohttp
import pytest

from agent_layer.engines.control import EngineControl
from agent_layer.errors import EngineError
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.script import render_prompt, word_token_id
from agent_layer.local.scripted.serving import serve, serve_in_thread

TOKENS = {"return_token_ids": True, "logprobs": True}
TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1, "b":2}'}}


async def ask(engine, messages, **more):
    body = {"model": engine.model, "messages": messages, **TOKENS, **more}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{engine.url}/v1/chat/completions", json=body) as reply,
    ):
        return await reply.json() if not body.get("stream") else chunks_of(await reply.text())


def chunks_of(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


async def test_the_next_prompt_begins_with_this_prompt_and_answer():
    messages = [{"role": "user", "content": "add 1 and 2"}]
    async with serve(ScriptedEngine(script=lambda _: {"content": "so be it", "tool_calls": [TOOL_CALL]})) as engine:
        first = await ask(engine, messages)
        message = first["choices"][0]["message"]
        second = await ask(engine, [*messages, message, {"role": "tool", "content": "3", "tool_call_id": "c1"}])

    sequence = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    assert message["tool_calls"] == [TOOL_CALL]
    assert second["prompt_token_ids"][: len(sequence)] == sequence


async def test_a_stream_says_the_same_as_a_whole_answer():
    messages = [{"role": "user", "content": "hello"}]
    async with serve(ScriptedEngine()) as engine:
        whole = await ask(engine, messages, n=2)
        chunks = await ask(engine, messages, n=2, stream=True)

    assert chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    for told in whole["choices"]:
        mine = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == told["index"]]
        assert [one for choice in mine for one in choice.get("token_ids", [])] == told["token_ids"]
        assert "".join(choice["delta"].get("content", "") for choice in mine) == told["message"]["content"]
        assert mine[-1]["finish_reason"] == "stop"


def test_weights_are_loaded_between_calls(tmp_path):
    with serve_in_thread(ScriptedEngine(script=lambda asked: asked.weights())) as engine:
        EngineControl(engine.url).load(tmp_path / "7")

    assert engine.weights == str(tmp_path / "7")
    assert engine.controls == {"pause": 1, "reload_weights": 1, "reset_prefix_cache": 1, "resume": 1}


def test_a_probe_names_the_model():
    with serve_in_thread(ScriptedEngine(model="tiny")) as engine:
        assert EngineControl(engine.url).probe().model == "tiny"


def test_an_engine_without_token_ids_is_refused_in_one_sentence():
    with serve_in_thread(ScriptedEngine(token_ids=False)) as engine, pytest.raises(EngineError, match="token ids"):
        EngineControl(engine.url).probe()


async def test_its_ids_can_be_recomputed():
    messages = [{"role": "user", "content": "hello"}]
    async with serve(ScriptedEngine()) as engine:
        answer = await ask(engine, messages)

    assert answer["prompt_token_ids"] == [word_token_id(word) for word in render_prompt(messages)]
    assert answer["choices"][0]["token_ids"] == [word_token_id(word) for word in ("you", "said:", "hello", "<end>")]
