"""The kit passes an honest recorder that is not ours, and finds each fault of a dishonest one."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from agent_layer.cli.main import main
from agent_layer.conformance import CHECKS, list_rows, load_adapter, run_checks
from agent_layer.conformance.engine import KitEngine
from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.infra import append_line, free_port
from agent_layer.local.scripted.serving import serve, serve_in_thread


class Recorder:
    """A proxy for chat completions that records answers, with faults by name."""

    def __init__(self, *faults):
        self.faults, self.records, self.cache = set(faults), [], {}
        self.engine_url = self.url = ""
        self.on_record = lambda _: None

    def app(self):
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/v1/chat/completions", self.handle)
        return app

    async def handle(self, request):
        question = await request.json()
        key = json.dumps(question)
        if "cache" in self.faults and key in self.cache:
            return web.json_response(self.cache[key])
        answering = asyncio.create_task(self.answer(request, question, key))
        if "deaf" in self.faults:
            return await asyncio.shield(answering)
        return await answering

    async def answer(self, request, question, key):
        body = {**question, "return_token_ids": True, "logprobs": True}
        if "forgetful" in self.faults:
            body.pop("temperature", None)
        async with aiohttp.ClientSession() as client:
            try:
                async with client.post(f"{self.engine_url}/v1/chat/completions", json=body) as reply:
                    if question.get("stream") and reply.status == 200:
                        return await self.pass_on(request, reply, question)
                    answer, status = json.loads(await reply.read()), reply.status
            except aiohttp.ClientError as error:
                return web.json_response({"error": {"message": str(error)}}, status=502)
        if status != 200:
            return web.json_response({"detail": "no"} if "shapeless" in self.faults else answer, status=status)
        for choice in answer["choices"] or ():
            self.record(question, answer["prompt_token_ids"], choice, choice["message"], choice["logprobs"])
            if "trimming" in self.faults:
                choice["message"]["content"] = choice["message"]["content"].replace("\0", "")
        self.cache[key] = answer
        return web.json_response(answer)

    async def pass_on(self, request, reply, question):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        events, is_broken = [], False
        try:
            async for line in reply.content:
                if line.startswith(b"data: {"):
                    events.append(json.loads(line[6:]))
                await response.write(line)
        except aiohttp.ClientError:
            is_broken = True
            if "closing" in self.faults:
                await response.write(b"data: [DONE]\n\n")
        is_whole = not is_broken and not any("error" in one for one in events)
        if is_whole or "hopeful" in self.faults:
            self.record_stream(question, events)
        return response

    def record_stream(self, question, events):
        pieces = [(event, choice) for event in events for choice in event["choices"] or ()]
        for index in sorted({choice["index"] for _, choice in pieces}):
            mine = [choice for _, choice in pieces if choice["index"] == index]
            calls = [
                dict(one, function=dict(one["function"])) for c in mine for one in c["delta"].get("tool_calls") or ()
            ]
            joined = {}
            for call in calls:
                if call["index"] in joined:
                    joined[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
                else:
                    joined[call["index"]] = call
            message = {
                "content": "".join(one["delta"].get("content") or "" for one in mine),
                "tool_calls": [*joined.values()],
            }
            whole = {
                "token_ids": [one for choice in mine for one in choice.get("token_ids") or ()],
                "finish_reason": mine[-1]["finish_reason"],
            }
            logprobs = {
                "content": [one for choice in mine for one in (choice.get("logprobs") or {"content": ()})["content"]]
            }
            prompts = [event["prompt_token_ids"] for event in events if "prompt_token_ids" in event]
            self.record(question, prompts[0], whole, message, logprobs)

    def record(self, question, prompt, choice, message, logprobs):
        ids = choice["token_ids"]
        record = {
            "messages": question["messages"],
            "message": dict(message),
            "prompt_token_ids": prompt[1:] if "short prompt" in self.faults else prompt,
            "response_token_ids": ids[:-1] if "short" in self.faults else ids,
            "logprobs": [one["logprob"] - ("shifted" in self.faults) for one in logprobs["content"]],
            "finish_reason": "stop" if "stop" in self.faults else choice["finish_reason"],
        }
        self.on_record(record)
        if "lossy" not in self.faults:
            self.records += [record, record] if "twice" in self.faults else [record]


FAULTS = {
    "cache": ("equal in a row", "whole"),
    "deaf": ("cancel", "whole"),
    "shapeless": ("retry after 503", "whole"),
    "forgetful": ("sampling", "whole"),
    "trimming": ("unicode", "whole"),
    "closing": ("broken connection", "streamed"),
    "hopeful": ("broken connection", "streamed"),
    "short": ("text", "streamed"),
    "short prompt": ("conversation", "whole"),
    "shifted": ("text", "whole"),
    "stop": ("length", "whole"),
    "twice": ("tool", "streamed"),
    "lossy": ("interleaved agents", "whole"),
}
"""Fault to the check that must find it."""


@asynccontextmanager
async def recording(*faults):
    kit, recorder = KitEngine("policy"), Recorder(*faults)
    async with serve(kit.engine), serve(recorder):
        recorder.engine_url = kit.engine.url
        yield kit, recorder


async def ask(kit, recorder, rows, read="records"):
    adapter = load_adapter(None, f"{recorder.url}/v1", "none")
    adapter._read = (lambda: recorder.records) if read == "records" else None
    return await run_checks(kit, adapter, rows, model="policy")


async def test_an_honest_recorder_passes_in_its_dialect():
    async with recording() as (kit, recorder):
        results = await ask(kit, recorder, list_rows())

    chat = [one for one in results if one.dialect == "chat"]
    assert [one for one in chat if one.result != "pass"] == []
    assert {what for one in chat for what in one.not_claimed} == {"Idempotency-Key"}
    others = [one for one in results if one.dialect != "chat"]
    assert {(one.result, *one.not_claimed) for one in others} == {("not claimed", "dialect")}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_found(fault, monkeypatch):
    monkeypatch.setattr(
        "agent_layer.conformance.session._PATIENCE", 0.2
    )  # the deaf one never ends a call whose client is gone
    check, style = FAULTS[fault]
    async with recording(fault) as (kit, recorder):
        results = await ask(kit, recorder, list_rows(["chat"], ["text", check]))

    (found,) = [one for one in results if (one.check, one.style) == (check, style)]
    assert found.result == "fail"
    assert found.expected != found.got


async def test_without_records_only_the_clients_side_is_judged():
    async with recording("lossy") as (kit, recorder):
        results = await ask(kit, recorder, list_rows(["chat"], ["text"]), read=None)

    assert [(one.result, one.not_claimed) for one in results] == [("pass", ["record"])] * 2


async def test_a_check_that_the_endpoint_does_not_promise_is_left_out():
    async with recording("forgetful") as (kit, recorder):
        adapter = load_adapter(None, f"{recorder.url}/v1", "none")
        rows = list_rows(["chat"], ["sampling"])
        results = await run_checks(kit, adapter, rows, model="policy", without=["sampling"])

    assert {(one.result, *one.not_claimed) for one in results} == {("not claimed", "check")}


@pytest.fixture
def command_line(monkeypatch):
    """``command_line(*arguments)``: run it and return its exit status."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["agent-layer", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code

    return run


@pytest.mark.parametrize(("fault", "status"), [((), 0), (("short",), 1)])
def test_the_command_reports_each_check_and_ends_in_1_if_one_fails(fault, status, tmp_path, capsys, command_line):
    recorder, port = Recorder(*fault), free_port()
    recorder.engine_url = f"http://127.0.0.1:{port}"
    lines = tmp_path / "records.jsonl"
    recorder.on_record = lambda record: append_line(lines, record)
    with serve_in_thread(recorder):
        command = ["conformance", f"{recorder.url}/v1", "--engine-port", str(port), "--records", str(lines)]
        command += ["--check", "text", "--dialect", "chat"]
        assert command_line(*command) == status
        drawn = capsys.readouterr().out
        assert command_line(*command, "--format", "jsonl") == status

    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    result = "fail" if status else "pass"
    assert [(one["style"], one["result"]) for one in found] == [("whole", result), ("streamed", result)]
    assert f"2 checks: {2 - 2 * status} passed, {2 * status} failed, 0 not claimed" in drawn
    assert ("text, chat whole: token ids in the record: expected 5: " in drawn) == bool(status)


def test_the_list_has_each_check_with_its_promise(capsys, command_line):
    assert command_line("conformance", "--list", "--format", "jsonl") == 0

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["name"] for row in rows] == [check.name for check in CHECKS]
    assert all(row["question"].endswith(".") and row["promise"].endswith(".") for row in rows)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--dialect", "bedrock"], "--dialect bedrock: expected one of chat, messages, responses, google"),
        (["--check", "nothing"], "--check nothing: expected one of text, "),
        (["--records", "my:adapter"], "expected URL beside --records"),
        (["http://127.0.0.1:1/v1", "--wait", "0"], "http://127.0.0.1:1/v1: expected an endpoint"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(options, sentence, capsys, command_line):
    assert command_line("conformance", *options) == 2

    assert sentence in capsys.readouterr().err


@pytest.mark.long
def test_without_a_url_a_gateway_of_ours_is_started(capsys, command_line):
    assert command_line("conformance", "--check", "text", "--check", "cancel") == 0

    assert "16 checks: 16 passed, 0 failed, 0 not claimed" in capsys.readouterr().out


def test_records_are_read_from_a_file(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"message": {"content": "half of \\ud83d"}, "finish_reason": "stop", "other": 1}\n')
    (record,) = load_adapter(str(path), "http://x/v1", "none").read_records()
    assert (record.message["content"], record.finish_reason, record.status) == ("half of \ud83d", "stop", "ok")

    path.write_text('{"response_token_ids": ["one"]}\n')
    with pytest.raises(CorruptRecordError, match=r"response_token_ids.*docs/conformance.md"):
        list(load_adapter(str(path), "http://x/v1", "none").read_records())


@pytest.mark.parametrize("place", ["no_such_module:read", "json:no_such_function", "json:JSONEncoder"])
def test_an_adapter_that_cannot_be_used_is_named(place):
    with pytest.raises((BadInputError, TypeError), match=r"--records|JSONEncoder"):
        load_adapter(place, "http://x/v1", "none")
