"""What the gateway needs of an engine, asked of each kind: a scripted one that answers as that kind does.

vLLM itself is asked by ``tests/job``. SGLang's bodies follow its source; see ``sglang_like``.
"""

import asyncio
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from agent_layer.cli.services.doctor import diagnose
from agent_layer.engines import KINDS, join_engine, open_engine_registry
from agent_layer.engines.control import EngineControl
from agent_layer.engines.join import register_engine as probe_and_register
from agent_layer.errors import EngineError
from agent_layer.gateway.dialects.chat import ENGINE_FIELDS
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.script import END, token_logprob, word_token_id
from agent_layer.local.scripted.serving import serve

from ...waiting import scaled
from .conftest import OPERATOR
from .sglang_like import READS, SglangLike

MAKES = {"vllm": ScriptedEngine, "sglang": SglangLike}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
ANSWERS = (
    {"content": "so be it"},
    {"reasoning": "let me see", "content": "so be it"},
    {"reasoning": "let me see", "content": "wait", "tool_calls": [CALL, {**CALL, "id": "c2"}]},
    {"content": ""},
)
QUESTIONS = {
    "chat/completions": {"messages": [{"role": "user", "content": "go"}]},
    "messages": {"messages": [{"role": "user", "content": "go"}], "max_tokens": 64},
    "responses": {"input": "go"},
}
BOTH = pytest.mark.parametrize("stream", [False, True])


@pytest.fixture(params=MAKES)
def kind(request):
    return KINDS[request.param]


@pytest.fixture
def engine(kind):
    return MAKES[kind.name]()


@pytest.fixture
def register_engine(register_engine, kind):
    return partial(register_engine, kind=kind.name)


async def ask(gateway, opened, path, body):
    headers = {"Authorization": f"Bearer {opened['api_key']}", "x-api-key": opened["api_key"]}
    async with gateway.session.post(f"{opened['base_url']}/{path}", json=body, headers=headers) as reply:
        return reply.status, await reply.text()


def load(gateway, directory):
    return gateway.registry.control(gateway.engine.url).load(directory)


async def switch(gateway, version, directory):
    seconds = scaled(30.0)
    loaded = partial(load, gateway, directory)
    await asyncio.to_thread(gateway.registry.switch, gateway.engine.url, version, str(directory), loaded, seconds)


async def test_a_probe_names_model_place_and_kind(engine, kind):
    async with serve(engine):
        report = await asyncio.to_thread(EngineControl(engine.url).probe)

    assert (report.kind, report.model) == (kind.name, "scripted")
    assert report.location == {"vllm": "scripted", "sglang": "/models/first"}[kind.name]


async def test_an_engine_without_ids_is_refused_with_what_to_do(engine, kind):
    engine.token_ids = False
    async with serve(engine):
        with pytest.raises(EngineError, match="training needs token ids") as refused:
            await asyncio.to_thread(EngineControl(engine.url).probe)

    assert "prompt_token_ids" in str(refused.value)
    assert kind.remedy in str(refused.value)


async def test_a_registered_engine_is_of_the_kind_that_answers_now(engine, kind, settings, redis):
    engine.context_tokens = 64
    async with serve(engine):
        known = await asyncio.to_thread(probe_and_register, settings, redis, engine.url)
        assert known.kind == kind.name
        assert known.logprobs_mode == (kind.logprobs_mode or settings.logprobs_mode)
        assert await asyncio.to_thread(EngineControl(engine.url).read_context_tokens) == 64
        registry, other = open_engine_registry(settings, redis), next(one for one in KINDS if one != kind.name)
        registry.register(msgspec.structs.replace(known, kind=other))  # what served at this address before
        assert (await asyncio.to_thread(probe_and_register, settings, redis, engine.url)).kind == kind.name
        assert registry.read(engine.url).kind == kind.name


@BOTH
@pytest.mark.parametrize("path", QUESTIONS)
async def test_what_was_sampled_is_recorded_as_the_engine_knows_it(gateway, path, stream):
    for answer in ANSWERS:
        gateway.engine.script = lambda _, answer=answer: answer
        opened = await gateway.open()

        status, text = await ask(gateway, opened, path, {"model": "m", **QUESTIONS[path], "stream": stream})

        call, step = gateway.engine.calls[-1], gateway.step(opened)
        sampled = call.token_ids[0]
        assert status == 200, text
        assert (step.capture_level, step.status, step.findings) == ("tokens", "ok", [])
        assert list(step.prompt_token_ids) == call.prompt_token_ids
        assert list(step.action.response_token_ids) == sampled
        assert list(step.action.logprobs) == pytest.approx([token_logprob(one) for one in sampled])
        assert step.action.message.get("content") in (answer["content"], None)
        assert (step.action.message.get("tool_calls") or []) == answer.get("tool_calls", [])
        assert str(sampled[-1]) not in text  # of the record's values, the client sees none


@BOTH
async def test_several_choices_and_a_client_that_asks_for_its_tokens(gateway, stream):
    gateway.engine.script = lambda prompt: f"answer {prompt.choice}"
    opened = await gateway.open()
    options = {"n": 2, "return_token_ids": True, "logprobs": True, "stream_options": {"include_usage": True}}

    _, answer = await gateway.chat(opened, "go", stream=stream, **options)

    chunks, (call,) = answer if stream else [answer], gateway.engine.calls
    prompts = [chunk["prompt_token_ids"] for chunk in chunks if chunk.get("prompt_token_ids")]
    assert {tuple(prompt) for prompt in prompts} == {tuple(call.prompt_token_ids)}
    for index, sampled in enumerate(call.token_ids):
        mine = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        assert [one for choice in mine for one in choice.get("token_ids") or ()] == sampled
        logprobs = [one["logprob"] for choice in mine for one in (choice.get("logprobs") or {}).get("content", ())]
        assert logprobs == pytest.approx([token_logprob(one) for one in sampled])
        assert list(gateway.step(opened, index).action.response_token_ids) == sampled
    usage = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    assert [one["completion_tokens"] for one in usage] == [sum(map(len, call.token_ids))]


@BOTH
async def test_each_turn_continues_the_tokens_of_the_one_before(gateway, stream):
    gateway.engine.script = lambda prompt: {"content": "wait", "tool_calls": [CALL]} if prompt.turn < 2 else "done"
    opened, messages = await gateway.open(), [{"role": "user", "content": "go"}]
    body = {"model": "m", "tools": [TOOL], "stream": stream}

    for _ in range(3):
        await ask(gateway, opened, "chat/completions", body | {"messages": messages})
        messages += [
            {"role": "assistant", "content": "wait", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
        ]

    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert [step.findings for step in steps] == [[], [], []]
    for before, step in pairwise(steps):
        assert step.prompt.parent_call == before.call_id
        assert step.prompt.prefix_length == len(before.prompt_token_ids) + len(before.action.response_token_ids)


@BOTH
async def test_new_weights_wait_for_calls_and_leave_nothing_cached(gateway, until, tmp_path, stream):
    gateway.engine.script = lambda prompt: (Path(prompt.weights()).name for _ in range(4))
    gateway.engine.token_seconds, gateway.engine.weights = 0.005, "0"
    opened = await gateway.open()

    for version in (1, 2):
        calling = asyncio.create_task(gateway.chat(opened, f"go {version}", stream=stream))
        await until(lambda: gateway.engine.num_running)
        await switch(gateway, version, tmp_path / str(version))
        assert (await calling)[0] == 200
    await gateway.chat(opened, "go", stream=stream)

    for index, step in enumerate(gateway.log.trajectory(opened["trajectory_id"]).steps):
        assert step.action.policy_versions == [(index, 5)]
        assert set(step.action.response_token_ids) == {word_token_id(str(index)), word_token_id(END)}
    controls = gateway.engine.controls
    assert controls["flush_cache"] + controls["reset_prefix_cache"] == 2


async def test_an_adapter_is_named_by_calls_until_whole_weights_replace_it(gateway, tmp_path):
    adapters = [tmp_path / "1", tmp_path / "2"]
    for adapter in adapters:
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text("{}")
    opened = await gateway.open()

    for version, directory in enumerate([*adapters, tmp_path / "whole", *adapters], 1):
        await switch(gateway, version, directory)
        assert (await gateway.chat(opened, f"go {version}"))[0] == 200
        assert gateway.engine.weights == str(directory)

    named = [call.body["model"] in (gateway.engine.model, "scripted") for call in gateway.engine.calls]
    assert named == [False, False, True, False, False]


async def test_weights_that_it_refuses_are_an_error_with_its_own_words(engine, tmp_path):
    engine.refuses_weights = True
    async with serve(engine):
        with pytest.raises(EngineError, match="should succeed, but answered 40"):
            await asyncio.to_thread(EngineControl(engine.url).load, tmp_path)


@BOTH
async def test_a_client_that_leaves_ends_the_request_at_the_engine(gateway, until, stream):
    gateway.engine.token_seconds = 0.01
    gateway.engine.script = lambda _: "word " * 500
    opened = await gateway.open()

    calling = asyncio.create_task(gateway.chat(opened, "go", stream=stream))
    await until(lambda: gateway.engine.num_running)
    calling.cancel()
    await until(lambda: gateway.log.parts("end") and not gateway.engine.num_running)

    assert gateway.step(opened).status == "aborted"
    assert not gateway.engine.calls[0].finished


@BOTH
async def test_an_answer_that_the_engine_ends_is_not_trained(gateway, stream):
    gateway.engine.script = lambda _: {"content": "half", "finish_reason": "abort"}
    opened = await gateway.open()

    await gateway.chat(opened, "go", stream=stream)

    assert (gateway.step(opened).status, gateway.step(opened).findings) == ("aborted", ["unfinished:abort"])


@BOTH
async def test_an_answer_that_breaks_off_is_an_error(gateway, stream):
    def cut(_, __):
        raise ConnectionResetError

    gateway.engine.rewrite = cut
    opened = await gateway.open()

    status, _ = await gateway.chat(opened, "go", stream=stream)

    assert status == 502
    assert gateway.step(opened).status == "error"


@BOTH
async def test_a_context_that_is_full_has_one_name(gateway, stream):
    gateway.engine.context_tokens = 8
    opened = await gateway.open()

    status, answer = await gateway.chat(opened, "one two three four five six seven eight", stream=stream)

    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")


@BOTH
@pytest.mark.parametrize("wanted", [50, 20])
async def test_a_length_that_does_not_fit_is_lowered(gateway, wanted, stream):
    gateway.engine.context_tokens = 24
    opened = await gateway.open()

    status, _ = await gateway.chat(opened, "one two three four", stream=stream, max_tokens=wanted)

    assert status == 200
    assert gateway.engine.calls[-1].body["max_tokens"] == 24 - len(gateway.engine.calls[-1].prompt_token_ids)


@BOTH
async def test_what_it_ignores_is_not_sent_and_named(gateway, kind, stream):
    opened = await gateway.open(split="eval")
    ignored = dict.fromkeys(kind.unread_fields, 1)

    status, _ = await gateway.chat(opened, "go", stream=stream, **ignored)

    assert status == 200
    assert not kind.unread_fields & gateway.engine.calls[0].body.keys()
    assert set(gateway.step(opened).findings) == {f"not_applied:{name}" for name in kind.unread_fields}
    assert not kind.unread_fields & {name for name, one in gateway.step(opened).sampling_applied.items() if one}


def test_every_field_is_read_or_named():
    """A prefill needs no ``add_generation_prompt`` from SGLang, and a stream is not asked of it."""
    assert ENGINE_FIELDS - KINDS["sglang"].unread_fields - READS == {"add_generation_prompt"}
    assert KINDS["sglang"].unread_fields.isdisjoint(READS)
    assert KINDS["vllm"].unread_fields < ENGINE_FIELDS


@BOTH
async def test_a_probability_of_zero_is_no_log_probability(gateway, stream):
    gateway.engine.script = lambda _: "never said"
    word = word_token_id("never")
    smallest = {"vllm": -9999.0, "sglang": -3.4028234663852886e38}
    plain = gateway.engine._logprobs

    def hide(body, ids):
        found = plain(body, ids)
        for one, token_id in zip(found["content"], ids, strict=True):
            one["logprob"] = smallest["sglang" if isinstance(gateway.engine, SglangLike) else "vllm"]
            one["logprob"] = one["logprob"] if token_id == word else -1.0
        return found

    gateway.engine._logprobs = hide
    opened = await gateway.open()

    await gateway.chat(opened, "go", stream=stream)

    assert gateway.step(opened).findings == ["bad_logprobs"]


async def test_its_load_is_read(gateway, until):
    gateway.engine.cache_usage, gateway.engine.num_waiting = 0.25, 3
    headers = {"Authorization": f"Bearer {OPERATOR}"}

    async def is_read():
        async with gateway.session.get(f"{gateway.url}/engines", headers=headers) as reply:
            (shown,) = await reply.json()
        return (shown["is_well"], shown["cache_usage"], shown["others"]) == (True, 0.25, 3)

    await until(is_read)
    assert not gateway.engine.controls["health"]  # a poll that samples takes longer than polls may


async def test_doctor_says_what_our_knowledge_stands_on(engine, kind, settings):
    async with serve(engine):
        own = settings.model_copy(update={"engine_urls": [engine.url]})
        looks = (one for one in diagnose(own) if one.subject == "engine")
        found = await asyncio.to_thread(next, looks)

    assert found.state == ("note" if kind.evidence else "ok")
    assert engine.url in found.finding
    assert kind.evidence in found.finding


async def test_a_key_is_sent_with_every_request(engine, kind, settings, redis):
    engine.access_key = "engine-key"
    async with serve(engine):
        with pytest.raises(EngineError, match="401"):
            await asyncio.to_thread(join_engine, settings, redis, engine.url)
        report = await asyncio.to_thread(EngineControl(engine.url, access_key="engine-key").probe)

    assert report.kind == kind.name
