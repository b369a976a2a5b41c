"""Whatever goes wrong, an official client raises its own class, with our sentence inside."""

import anthropic
import openai
import pytest
from aiohttp import web

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.refusals import read_engine_error

HELLO = [{"role": "user", "content": "hi"}]
ASKS = {
    "completions": lambda clients, **more: clients[0].chat.completions.create(model="m", messages=HELLO, **more),
    "responses": lambda clients, **more: clients[0].responses.create(model="m", input="hi", **more),
    "messages": lambda clients, **more: clients[1].messages.create(model="m", max_tokens=9, messages=HELLO, **more),
}
KINDS = {"completions": openai, "responses": openai, "messages": anthropic}


@pytest.fixture(params=ASKS)
def dialect(request):
    return request.param


async def test_a_wrong_key(gateway, clients, dialect):
    opened = await gateway.open()

    with pytest.raises(KINDS[dialect].AuthenticationError, match="this key is not the rollout's"):
        await ASKS[dialect](await clients(opened, api_key="rk-wrong"))


async def test_a_used_up_budget_is_not_tried_again(gateway, clients, dialect):
    opened = await gateway.open(limits={"turns": 1})
    found = await clients(opened, max_retries=5)
    await ASKS[dialect](found)

    with pytest.raises(KINDS[dialect].RateLimitError, match="limit of 1 model calls is used up") as raised:
        await ASKS[dialect](found)

    body = raised.value.body
    assert (body["error"] if dialect == "messages" else body)["code"] == "rollout_limit"
    assert len(gateway.engine.calls) == 1


async def test_what_cannot_be_read(gateway, clients, dialect):
    opened = await gateway.open()

    with pytest.raises(KINDS[dialect].BadRequestError, match="request: expected"):
        await ASKS[dialect](await clients(opened), extra_body={"messages": 3, "input": 3})


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_refusal_of_the_engine(gateway, clients, dialect, is_streamed):
    def refuse(_):
        raise BadInputError("the prompt is too long")

    gateway.engine.script = refuse
    opened = await gateway.open()

    with pytest.raises(KINDS[dialect].BadRequestError, match="the prompt is too long"):
        await ASKS[dialect](await clients(opened), stream=is_streamed)

    assert gateway.step(opened).status == "error"


@pytest.mark.parametrize("message", ['{"message": "broken"}', "<html>broken</html>"])
async def test_an_engine_that_speaks_otherwise(gateway, clients, dialect, message, monkeypatch):
    async def fail(*_):
        return web.Response(status=400, text=message, content_type="text/html")

    monkeypatch.setattr(gateway.engine, "_answer", fail)
    opened = await gateway.open()

    with pytest.raises(KINDS[dialect].BadRequestError, match="broken"):
        await ASKS[dialect](await clients(opened))


async def test_an_answer_that_breaks_off_ends_with_an_error(gateway, clients, dialect):
    gateway.engine.script = lambda _: {
        "content": "so far",
        "error": {"message": "out of memory", "type": "InternalError"},
    }
    opened = await gateway.open()
    stream = await ASKS[dialect](await clients(opened), stream=True)

    seen = []
    if dialect == "responses":
        seen = [event async for event in stream]
        assert [event.type for event in seen[-2:]] == ["error", "response.failed"]
        assert seen[-2].message == seen[-1].response.error.message == "out of memory"
    else:
        with pytest.raises(KINDS[dialect].APIError, match="out of memory"):
            seen += [event async for event in stream]

    step = gateway.step(opened)
    assert (step.status, step.action.message["content"]) == ("error", "so far")


async def test_an_engine_that_is_gone(gateway, clients, dialect):
    def break_down(_):
        raise web.HTTPInternalServerError

    gateway.engine.script = break_down
    opened = await gateway.open()

    with pytest.raises(KINDS[dialect].InternalServerError):
        await ASKS[dialect](await clients(opened))

    assert gateway.step(opened).status == "error"


async def test_an_unknown_response_is_said_to_be_unknown(gateway, clients):
    opened, other = await gateway.open(), await gateway.open()
    (mine, _), (theirs, _) = await clients(opened), await clients(other)
    answer = await theirs.responses.create(model="m", input="hi")

    with pytest.raises(openai.NotFoundError, match="send the conversation as input"):
        await mine.responses.create(model="m", input="hi", previous_response_id=answer.id)


async def test_an_unknown_item_is_said_to_be_unknown(gateway, clients):
    opened, other = await gateway.open(), await gateway.open()
    (mine, _), (theirs, _) = await clients(opened), await clients(other)
    answer = await theirs.responses.create(model="m", input="hi")
    named = {"type": "item_reference", "id": answer.output[0].id}

    with pytest.raises(openai.NotFoundError, match="send the item itself"):
        await mine.responses.create(model="m", input=[named, *HELLO])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error":{"message":"m","type":"t","code":400}}', ("t", "m")),
        (b'{"object":"error","message":"m"}', ("engine_error", "m")),
        (b'{"error":"m"}', ("engine_error", "m")),
        (b"[1]", ("engine_error", "[1]")),
        (b"{}", ("engine_error", "{}")),
    ],
)
def test_sentences_of_engines(body, expected):
    assert read_engine_error(body) == expected
