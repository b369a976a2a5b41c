"""Responses on a socket, asked by OpenAI's own client and by hand."""

import json
from contextlib import AsyncExitStack

import aiohttp
import openai
import pytest
import websockets.asyncio.client as websockets

from agent_layer.gateway.calls.pipeline import Calls

from ....waiting import scaled, within
from ..conftest import OPERATOR

MESSAGE = {"type": "response.create", "model": "m"}


@pytest.fixture
async def rollout(gateway):
    return await gateway.open()


@pytest.fixture
async def connect(gateway, rollout):
    """``await connect()``: a socket of the rollout, as any client opens it."""
    opened = []

    async def open_socket(opening=None, path="/responses", **headers):
        opening = opening or rollout
        headers = {"Authorization": f"Bearer {opening['api_key']}", **headers}
        opened.append(await gateway.session.ws_connect(f"{opening['base_url']}{path}", headers=headers))
        return opened[-1]

    yield open_socket
    for socket in opened:
        await socket.close()


async def read_events(socket):
    """Return the events of one answer."""
    events = []
    while not events or events[-1]["type"] not in ("response.completed", "response.failed", "error"):
        events.append(json.loads(await socket.receive_str(timeout=scaled(10.0))))
    return events


async def ask(socket, *texts, **fields):
    await socket.send_json({**MESSAGE, "input": [{"role": "user", "content": text} for text in texts], **fields})
    return await read_events(socket)


def read_text(events):
    (item,) = events[-1]["response"]["output"]
    return item["content"][0]["text"]


def shape(events):
    return [event["type"] for event in events]


@pytest.mark.parametrize("store", [True, False, None])
async def test_a_conversation_on_one_socket_is_one_row_as_by_http(gateway, rollout, connect, store):
    socket, fields = await connect(), {"instructions": "be brief"} | ({} if store is None else {"store": store})

    first = await ask(socket, "one", **fields)
    second = await ask(socket, "two", previous_response_id=first[-1]["response"]["id"], **fields)
    third = await ask(socket, "three", previous_response_id=second[-1]["response"]["id"], **fields)

    assert [read_text(events) for events in (first, second, third)] == [
        "you said: one",
        "you said: two",
        "you said: three",
    ]
    steps = gateway.log.trajectory(rollout["trajectory_id"]).steps
    assert [(step.status, step.capture_level, len(step.state.messages)) for step in steps] == [
        ("ok", "tokens", 2),
        ("ok", "tokens", 4),
        ("ok", "tokens", 6),
    ]
    assert [step.parent_call is not None for step in steps[1:]] == [True, True]


async def test_the_events_are_those_of_a_stream_one_in_a_frame(gateway, rollout, connect):
    by_socket = await ask(await connect(), "hello")
    async with gateway.session.post(
        f"{rollout['base_url']}/responses",
        json={"model": "m", "input": [{"role": "user", "content": "hello"}], "stream": True},
        headers={"Authorization": f"Bearer {rollout['api_key']}"},
    ) as reply:
        lines = [line[6:] for line in (await reply.text()).splitlines() if line.startswith("data: ")]

    assert shape(by_socket) == shape(map(json.loads, lines))
    assert [event["sequence_number"] for event in by_socket] == list(range(len(by_socket)))


async def test_openais_client_talks_and_reads_tool_calls(gateway, rollout):
    gateway.engine.script = lambda prompt: (
        {"content": None, "tool_calls": [CALL]} if prompt.turn == 0 else "done with it"
    )
    async with (
        openai.AsyncOpenAI(base_url=rollout["base_url"], api_key=rollout["api_key"]) as client,
        client.responses.connect() as connection,
    ):
        await connection.response.create(model="m", input="begin", tools=[TOOL], store=False)
        called = await read_openai(connection)
        output = {"type": "function_call_output", "call_id": called.output[0].call_id, "output": "found"}
        await connection.response.create(
            model="m", input=[output], tools=[TOOL], store=False, previous_response_id=called.id
        )
        done = await read_openai(connection)

    assert (called.output[0].arguments, done.output_text) == ('{"word": "x"}', "done with it")
    assert [step.status for step in gateway.log.trajectory(rollout["trajectory_id"]).steps] == ["ok", "ok"]


CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"word": "x"}'}}
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}


async def read_openai(connection):
    async with within(10.0, "a whole answer"):
        async for event in connection:
            assert event.type != "error", event
            if event.type == "response.completed":
                return event.response
    raise AssertionError


async def test_a_warm_up_asks_no_engine_and_is_continued(gateway, connect):
    socket = await connect()
    warm = await ask(socket, "hello", instructions="be brief", generate=False, store=False)
    assert (shape(warm)[-1], warm[-1]["response"]["output"], gateway.engine.calls) == ("response.completed", [], [])

    answer = await ask(socket, previous_response_id=warm[-1]["response"]["id"], instructions="be brief", store=False)

    assert read_text(answer) == "you said: hello"
    assert [one["role"] for one in gateway.engine.calls[0].body["messages"]] == ["system", "user"]


async def test_what_is_not_stored_is_continued_on_its_socket_alone(gateway, rollout, connect):
    mine, other = await connect(), await connect()
    kept, stored = [(await ask(mine, "hello", store=store))[-1]["response"]["id"] for store in (False, True)]

    for socket, before, code in [
        (mine, kept, None),
        (other, kept, CODE),
        (other, stored, None),
        (mine, "resp_0", CODE),
    ]:
        last = (await ask(socket, "on", previous_response_id=before))[-1]
        assert (last.get("error") or {}).get("code") == code, (socket is mine, before)
        assert last["type"] == ("error" if code else "response.completed")
        assert last.get("status") == (400 if code else None)
    status, _ = await gateway.post(
        f"/r/{rollout['trajectory_id']}/v1/responses", {"model": "m", "input": "on", "previous_response_id": kept}
    )
    assert status == 404


CODE = "previous_response_not_found"


async def test_no_other_name_of_the_memory_is_a_response_and_the_socket_goes_on(gateway, rollout, connect):
    socket = await connect()
    response = (await ask(socket, "hello"))[-1]["response"]

    for before in (response["output"][0]["id"], f"{response['id']}/shown", f"{response['id']}/conversation", "x/y"):
        for fields in ({}, {"generate": False}):
            last = (await ask(socket, "on", previous_response_id=before, **fields))[-1]
            assert (last["status"], last["error"]["code"]) == (400, CODE), before
        body = {"model": "m", "input": "on", "previous_response_id": before}
        status, _ = await gateway.post(f"/r/{rollout['trajectory_id']}/v1/responses", body)
        assert status == 404, before
    assert read_text(await ask(socket, "on", previous_response_id=response["id"])) == "you said: on"


async def test_a_text_that_is_no_unicode_is_mended_as_by_http(gateway, rollout, connect):
    assert read_text(await ask(await connect(), "a\ud800b")) == "you said: a�b"
    assert "not_applied:lone_surrogates" in gateway.step(rollout).findings


async def test_a_socket_is_not_idle_while_an_answer_is_due(settings, run_gateway):
    async with run_gateway(settings.model_copy(update={"api_key": OPERATOR, "idle_seconds": 0.1})) as gateway:
        opened, gateway.engine.token_seconds = await gateway.open(), 0.05
        gateway.engine.script = lambda _: "word " * 20
        key = {"Authorization": f"Bearer {opened['api_key']}"}
        async with gateway.session.ws_connect(f"{opened['base_url']}/responses", headers=key) as socket:
            events = await ask(socket, "hello")
            closed = await socket.receive(timeout=scaled(10.0))

    assert (shape(events)[-1], closed.type) == ("response.completed", aiohttp.WSMsgType.CLOSE)


async def test_streams_of_one_socket_go_side_by_side_and_each_in_its_order(gateway, connect, hold, until):
    socket, go_on = await connect(), hold(gateway.engine)
    for stream_id, text in [("a", "a1"), ("b", "b1"), ("a", "a2"), (None, "c1")]:
        named = {} if stream_id is None else {"stream_id": stream_id}
        await socket.send_json({**MESSAGE, "input": text, **named})
    await until(lambda: gateway.engine.num_running == 3)
    begun = [call.body["messages"][-1]["content"] for call in gateway.engine.calls]
    go_on.set()

    events = [event for _ in range(4) for event in await read_events(socket)]

    assert sorted(begun) == ["a1", "b1", "c1"]
    answers = {}
    for event in events:
        if event["type"] == "response.completed":
            answers.setdefault(event.get("stream_id"), []).append(event["response"]["output"][0]["content"][0]["text"])
    assert answers == {"a": ["you said: a1", "you said: a2"], "b": ["you said: b1"], None: ["you said: c1"]}


async def test_equal_questions_on_a_socket_are_as_many_samples(gateway, rollout, connect):
    socket = await connect(**{"idempotency-key": "k", "x-agent-layer-call": "c", "x-stainless-retry-count": "1"})

    ids = [(await ask(socket, "hello"))[-1]["response"]["id"] for _ in range(3)]

    assert len(set(ids)) == len(gateway.engine.calls) == 3
    assert len(gateway.log.trajectory(rollout["trajectory_id"]).steps) == 3


@pytest.mark.parametrize("leave", ["close", "drop"])
async def test_a_client_that_leaves_cuts_its_answer_and_what_waits_is_never_asked(gateway, rollout, until, leave):
    gateway.engine.token_seconds = 0.05
    gateway.engine.script = lambda _: "word " * 400
    key = {"Authorization": f"Bearer {rollout['api_key']}"}
    async with websockets.connect(f"ws{rollout['base_url'][4:]}/responses", additional_headers=key) as socket:
        for text in ("one", "two"):
            await socket.send(json.dumps({**MESSAGE, "input": text}))
        while json.loads(await socket.recv())["type"] != "response.output_text.delta":
            pass
        if leave == "close":
            await socket.close()
        else:
            socket.transport.abort()
        await until(lambda: gateway.log.parts("end"))

    step = gateway.step(rollout)
    assert (step.status, 0 < len(step.action.response_token_ids) < 400) == ("aborted", True)
    await until(lambda: gateway.engine.num_running == 0)
    assert len(gateway.engine.calls) == 1


async def test_a_client_that_leaves_is_no_error_of_the_gateway(gateway, rollout, caplog):
    key = {"Authorization": f"Bearer {rollout['api_key']}"}
    for _ in range(5):
        async with websockets.connect(f"ws{rollout['base_url'][4:]}/responses", additional_headers=key) as socket:
            for number in range(30):
                warm_up = {**MESSAGE, "input": "x" * 20_000, "generate": False, "stream_id": f"{number}"}
                await socket.send(json.dumps(warm_up))
            socket.transport.abort()
    answered = await gateway.open()
    async with gateway.session.ws_connect(
        f"{answered['base_url']}/responses", headers={"Authorization": f"Bearer {answered['api_key']}"}
    ) as socket:
        await ask(socket, "hello")

    assert [record.exc_info for record in caplog.records if record.levelname == "ERROR"] == []


async def test_each_message_asks_whether_the_rollout_is_open(gateway, rollout, connect):
    socket = await connect()
    await ask(socket, "hello")
    await gateway.post(f"/rollouts/{rollout['rollout_id']}/end", {})

    (refused,) = await ask(socket, "more")

    assert (refused["type"], refused["status"], refused["error"]["code"]) == ("error", 410, "rollout_closed")
    assert "end the agent" in refused["message"]


async def test_a_rollout_that_ends_closes_the_socket_of_a_running_answer(gateway, rollout, connect, until):
    gateway.engine.token_seconds = 0.05
    gateway.engine.script = lambda _: "word " * 400
    socket = await connect()
    await socket.send_json({**MESSAGE, "input": "hello"})
    await until(lambda: gateway.engine.num_running == 1)
    await gateway.post(f"/rollouts/{rollout['rollout_id']}/end", {})

    while (message := await socket.receive(timeout=scaled(10.0))).type is aiohttp.WSMsgType.TEXT:
        pass

    assert (message.type, socket.close_code) == (aiohttp.WSMsgType.CLOSE, 1011)


WRONG = [
    ("no json", 400, "invalid_message"),
    ("[1]", 400, "invalid_message"),
    ('{"type": "response.steer"}', 400, "unknown_message"),
    ('{"type": "response.create", "input": 7}', 400, "BadInputError"),
    ('{"type": "response.create", "input": "x", "background": true}', 400, "BadInputError"),
    ('{"type": "response.create", "input": "x", "conversation": "c"}', 400, "BadInputError"),
    (json.dumps({**MESSAGE, "input": "x", "stream_id": "s" * 257}), 400, "stream_id_too_long"),
]


async def test_a_wrong_message_is_refused_and_the_socket_goes_on(connect):
    socket = await connect()
    for text, status, code in WRONG:
        await socket.send_str(text)
        (event,) = await read_events(socket)
        assert (event["type"], event["status"], event["error"]["code"]) == ("error", status, code), text
    await socket.send_json({"type": "response.processed", "response_id": "resp_1"})
    assert read_text(await ask(socket, "hello")) == "you said: hello"


async def test_a_fault_of_the_gateway_is_that_of_its_message_and_the_others_go_on(
    gateway, connect, hold, until, monkeypatch, caplog
):
    read_question = Calls.read_question

    def fail_at_some(calls, rollout, dialect, body, **options):
        return {}["no such name"] if b"boom" in body else read_question(calls, rollout, dialect, body, **options)

    monkeypatch.setattr(Calls, "read_question", fail_at_some)
    socket, go_on = await connect(), hold(gateway.engine)
    await socket.send_json({**MESSAGE, "input": "hello", "stream_id": "a"})
    await until(lambda: gateway.engine.num_running == 1)
    for fields in ({}, {"generate": False}):
        await socket.send_json({**MESSAGE, "input": "boom", "stream_id": "b", **fields})
        failed = (await read_events(socket))[-1]
        assert (failed["status"], failed["error"]["code"], failed["stream_id"]) == (500, "internal_error", "b")
    go_on.set()

    assert read_text(await read_events(socket)) == "you said: hello"
    assert [record.exc_info[0] for record in caplog.records if record.levelname == "ERROR"] == [KeyError, KeyError]


async def test_a_rollout_has_a_bounded_number_of_sockets(gateway, connect):
    opened = [await connect() for _ in range(16)]
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await connect()
    assert refused.value.status == 429
    await connect(await gateway.open())
    await opened[0].close()

    assert read_text(await ask(await connect(), "hello")) == "you said: hello"


async def test_what_sockets_of_a_rollout_send_is_bounded_together(settings, run_gateway, hold):
    limits = {"api_key": OPERATOR, "max_body_bytes": 40_000}
    async with run_gateway(settings.model_copy(update=limits)) as gateway, AsyncExitStack() as stack:
        opened, go_on = await gateway.open(), hold(gateway.engine)
        key = {"Authorization": f"Bearer {opened['api_key']}"}
        address = f"{opened['base_url']}/responses"
        socket, other, third = [
            await stack.enter_async_context(gateway.session.ws_connect(address, headers=key)) for _ in range(3)
        ]
        message = {**MESSAGE, "input": "x" * 4900}
        for number in range(8):
            await socket.send_json({**message, "stream_id": f"{number}"})
        for number in range(9):
            await other.send_json({**message, "stream_id": f"{number}"})
        (refused,) = await read_events(other)
        await third.send_json({**MESSAGE, "input": "x" * 5001})
        closed = await third.receive(timeout=scaled(10.0))
        go_on.set()
        answers = [shape(await read_events(one))[-1] for one in [socket] * 8 + [other] * 8]
        again = await ask(other, "x" * 4900)

    assert (refused["status"], refused["error"]["code"], refused["stream_id"]) == (429, "too_many_messages", "8")
    assert (
        "of 80000 bytes held by other requests of its rollout; read their answers first" in refused["error"]["message"]
    )
    assert (closed.type, third.close_code) == (aiohttp.WSMsgType.CLOSE, 1009)
    assert {*answers, shape(again)[-1]} == {"response.completed"}


async def test_an_engine_that_fails_is_an_error_of_its_message(gateway, connect):
    socket, works = await connect(), gateway.engine.script
    gateway.engine.script = lambda _: {"content": "x", "error": {"message": "no memory"}}
    assert shape(await ask(socket, "hello"))[-1] == "error"
    assert json.loads(await socket.receive_str())["type"] == "response.failed"
    gateway.engine.script = works
    assert read_text(await ask(socket, "hello")) == "you said: hello"


async def test_a_socket_asks_for_the_key_of_its_rollout(gateway, connect):
    other = await gateway.open()
    for key, path in [("", "/responses"), (other["api_key"], "/responses"), ("", "//responses/")]:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await connect(path=path, Authorization=f"Bearer {key}")
        assert refused.value.status == 401
    assert read_text(await ask(await connect(path="//v1//responses/"), "hello")) == "you said: hello"
