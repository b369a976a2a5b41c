"""The scripted engine keeps the promises that the gateway relies on."""

import gc
import json
import socket
from contextlib import suppress
from threading import Thread
from urllib.parse import urlsplit

import aiohttp
import pytest

from agent_layer.engines.control import EngineControl
from agent_layer.errors import BadInputError, EngineError
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.script import load_script, render_prompt, word_token_id
from agent_layer.local.scripted.serving import serve, serve_in_thread

from ...waiting import join, scaled, wait_until

TOKENS = {"return_token_ids": True, "logprobs": True}
TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1, "b":2}'}}


async def ask(engine, messages, **more):
    body = {"model": engine.model, "messages": messages, **TOKENS, **more}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{engine.url}/v1/chat/completions", json=body) as reply,
    ):
        return read_chunks(await reply.text()) if reply.content_type == "text/event-stream" else await reply.json()


def read_chunks(text):
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
    for answer in whole["choices"]:
        mine = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == answer["index"]]
        assert [one for choice in mine for one in choice.get("token_ids", [])] == answer["token_ids"]
        assert "".join(choice["delta"].get("content", "") for choice in mine) == answer["message"]["content"]
        assert mine[-1]["finish_reason"] == "stop"


def test_weights_are_loaded_between_calls(tmp_path):
    with serve_in_thread(ScriptedEngine(script=lambda prompt: prompt.weights())) as engine:
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


def stop_midway(_):
    yield "one"
    raise KeyError("two")


BAD_SCRIPTS = {
    "raises": (lambda _: {}["key"], "KeyError: 'key' in line"),
    "number": (lambda _: 84, "expected a text, a message or words one by one, found 84"),
    "nothing": (lambda _: None, "found None"),
    "content": (lambda _: {"content": 84}, "expected text or words at content, found 84"),
    "arguments": (
        lambda _: {"tool_calls": [{"id": "c", "function": {"name": "add", "arguments": {"a": 1}}}]},
        "expected JSON text at tool_calls[].function.arguments (json.dumps makes it), found {'a': 1}",
    ),
    "unnamed": (lambda _: {"tool_calls": [{"id": "c"}]}, "expected a name at tool_calls[].function.name, found None"),
    "no words": (lambda _: iter([1, 2]), "expected words as text, found 1"),
    "midway": (stop_midway, "KeyError: 'two' in line"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", BAD_SCRIPTS)
async def test_what_a_script_did_wrong_is_in_the_answer(name, stream):
    script, reply = BAD_SCRIPTS[name]
    async with serve(ScriptedEngine(script=script)) as engine:
        answer = await ask(engine, [{"role": "user", "content": "hello"}], stream=stream)

    *_, last = answer if isinstance(answer, list) and answer else [answer]
    assert reply in last["error"]["message"]
    assert last["error"]["message"].startswith("script ")


@pytest.mark.parametrize("text", ["import json\n1 / 0\n", "import json\njson.loads('x')\n", "import json\nif\n"])
def test_a_script_file_that_cannot_be_loaded_is_named_with_its_line(tmp_path, text):
    place = tmp_path / "script.py"
    place.write_text(text)

    with pytest.raises(BadInputError, match=r"Error: .* in line 2 of .*script\.py; correct the file"):
        load_script(f"{place}:answer")


def test_a_connection_that_comes_while_the_engine_stops_is_closed():
    def knock(port, connections):
        with suppress(OSError):
            while True:
                connections.append(socket.create_connection(("127.0.0.1", port), timeout=scaled(60)))

    for _ in range(3):
        connections = []
        with serve_in_thread(ScriptedEngine()) as engine:
            knocking = Thread(target=knock, args=[urlsplit(engine.url).port, connections])
            knocking.start()
            wait_until(connections.copy)
        join(knocking)
        for connection in connections:
            connection.close()
    gc.collect()  # an open one would warn, which is an error
