"""Doors of the model: every client finds them under every spelling of the address, and no spelling opens another."""

import itertools
import json
import time

import anthropic
import openai
import pytest

from .test_reach import send

HELLO = [{"role": "user", "content": "hi"}]
BASES = ["", "/", "/v1", "/v1/", "//v1", "/v1/v1", "/v1//"]
AZURE_BASES = ["", "/", "/v1", "/openai"]
BODIES = {
    "chat/completions": {"model": "m", "messages": HELLO},
    "responses": {"model": "m", "input": "hi"},
    "messages": {"model": "m", "max_tokens": 9, "messages": HELLO},
}


@pytest.fixture
async def rollout(gateway):
    return await gateway.open()


def address(rollout):
    return rollout["base_url"].removesuffix("/v1")


def openai_client(rollout, base):
    return openai.AsyncOpenAI(base_url=address(rollout) + base, api_key=rollout["api_key"], max_retries=0)


def anthropic_client(rollout, base):
    return anthropic.AsyncAnthropic(base_url=address(rollout) + base, api_key=rollout["api_key"], max_retries=0)


def azure_client(rollout, base, **options):
    options = {"api_version": "2024-10-21", "api_key": rollout["api_key"], "max_retries": 0, **options}
    return openai.AsyncAzureOpenAI(azure_endpoint=address(rollout) + base, **options)


async def ask_openai(client):
    chat = await client.chat.completions.create(model="gpt-4o", messages=HELLO)
    response = await client.responses.create(model="gpt-4o", input="hi")
    return [chat.choices[0].message.content, response.output_text]


async def ask_anthropic(client):
    message = await client.messages.create(model="claude", max_tokens=9, messages=HELLO)
    counted = await client.messages.count_tokens(model="claude", messages=HELLO)
    assert counted.input_tokens > 0
    return [message.content[0].text]


async def test_openais_and_anthropics_clients_need_no_certain_spelling(gateway, rollout):
    async with openai_client(rollout, "") as of_openai, anthropic_client(rollout, "") as of_anthropic:
        for base in BASES:
            clients = [client.with_options(base_url=address(rollout) + base) for client in (of_openai, of_anthropic)]
            answers = [*await ask_openai(clients[0]), *await ask_anthropic(clients[1])]
            models = [(await client.models.list()).data[0].id for client in clients]
            named = [await client.models.retrieve("org/some model") for client in clients]

            assert answers == ["you said: hi"] * 3, base
            assert models == ["scripted"] * 2, base
            assert [one.id for one in named] == ["org/some model"] * 2, base
    levels = [step.capture_level for step in gateway.log.trajectory(rollout["trajectory_id"]).steps]
    assert levels == ["tokens"] * 3 * len(BASES)


async def test_azures_client_finds_the_model_and_opens_it(gateway, rollout):
    by_token = {"azure_ad_token": rollout["api_key"], "api_key": None}
    for base, options in itertools.product(AZURE_BASES, ({}, {"azure_deployment": "mine"}, by_token)):
        async with azure_client(rollout, base, **options) as client:
            answer = await client.chat.completions.create(model="gpt-4o", messages=HELLO)
            stream = await client.chat.completions.create(model="gpt-4o", messages=HELLO, stream=True)
            streamed = "".join([piece.choices[0].delta.content or "" async for piece in stream if piece.choices])

        assert [answer.choices[0].message.content, streamed] == ["you said: hi"] * 2, (base, options)
        assert gateway.step(rollout).capture_level == "tokens"


async def test_azures_newer_addresses_are_openais(rollout):
    async with azure_client(rollout, "") as client, openai_client(rollout, "/openai/v1/") as newer:
        response = await client.responses.create(model="gpt-4o", input="hi")
        assert [response.output_text, *await ask_openai(newer)] == ["you said: hi"] * 3


async def test_a_probe_of_an_address_is_answered_and_reveals_nothing(gateway, rollout):
    bases = [address(rollout), f"{gateway.url}/r/unknown-0", gateway.url]

    answers = set()
    for method, base, path in itertools.product(["GET", "HEAD"], bases, [*BASES, "/openai"]):
        async with gateway.session.request(method, base + path) as reply:
            answers.add((method, reply.status, await reply.text()))

    assert answers == {("HEAD", 200, ""), ("GET", 200, '{"status":"ok"}')}


SPELLINGS = ["/{}", "//{}", "/v1/{}", "/v1/v1/{}", "/v1//{}/", "/openai/v1/{}", "/openai/deployments/a%2Fb/{}"]


async def test_every_spelling_asks_for_the_key_and_is_refused_in_its_dialect(gateway, rollout):
    other, named = await gateway.open(), {"x-agent-layer-rollout": rollout["trajectory_id"]}
    own = f"/r/{rollout['trajectory_id']}"
    for path, spelling in itertools.product(BODIES, SPELLINGS):
        at, body = spelling.format(path), BODIES[path]

        opened = [
            await gateway.post(own + at, body, key=rollout["api_key"]),
            await gateway.post(own + at, body),
            await gateway.post(at, body, headers=named),
        ]
        refused = [
            await gateway.post(own + at, body, key=other["api_key"]),
            await gateway.post(own + at, body, key=""),
            await gateway.post("/r/unknown-0" + at, body, key=rollout["api_key"]),
            await gateway.post(at, body, key=rollout["api_key"], headers=named),
        ]

        assert [status for status, _ in opened] == [200] * 3, at
        assert [status for status, _ in refused] == [401] * 4, at
        assert all(("type" in answer) == (path == "messages") for _, answer in refused), at


NO_DOORS = [
    "/v1/../chat/completions",
    "/v1/./chat/completions",
    "/v1/%2e%2e/chat/completions",
    "/v1%2fchat/completions",
    "/v1/chat%2Fcompletions",
    "/v2/chat/completions",
    "/v1/engines",
    "/v1/rollouts",
    "/openai/health",
    "/v1/chat",
    "/v1/chat/completions/x",
    "/deployments/x",
]


async def test_what_is_no_door_opens_nothing(gateway, rollout):
    for path, below in itertools.product(NO_DOORS, (f"/r/{rollout['trajectory_id']}", "")):
        status = await send(gateway.url, "POST", below + path, {"Authorization": "Bearer operator-key"})
        assert status in (404, 405), below + path
    assert gateway.engine.calls == []


UNSERVED = [
    ("POST", "responses/resp_1/cancel"),
    ("GET", "responses/resp_1/events"),
    ("POST", "rerank"),
    ("POST", "score"),
    ("POST", "classify"),
    ("POST", "messages/batches"),
    ("GET", "messages/batches/b/results"),
    ("POST", "batches"),
    ("POST", "files"),
    ("POST", "conversations"),
    ("POST", "audio/speech"),
    ("POST", "images/generations"),
]


async def test_what_is_not_served_is_refused_with_what_to_do_instead(gateway, rollout):
    for (method, path), base in itertools.product(UNSERVED, ["/v1/", "/", "/openai/deployments/m/"]):
        url, key = f"{address(rollout)}{base}{path}", {"x-api-key": rollout["api_key"]}
        async with gateway.session.request(method, url, headers=key) as reply:
            answer = await reply.json()
            assert (reply.status, answer["error"]["code"]) == (404, "not_served"), (method, url)
            assert "; " in answer["error"]["message"]
            assert ("type" in answer) == path.startswith("messages")
        async with gateway.session.request(method, url) as reply:
            assert reply.status == 401
    assert gateway.log.parts() == []


async def test_a_long_address_costs_no_time(gateway, rollout):
    for piece in ("/", "/v1/", "//v1", "/deployments/a", "/openai/deployments/"):
        target = (f"/r/{rollout['trajectory_id']}" + piece * 8000)[:8000] + "/x"
        began = time.process_time()
        await send(gateway.url, "POST", target, {"Authorization": "Bearer operator-key"})
        assert time.process_time() - began < 1.0, piece


async def test_a_method_that_a_door_does_not_know_is_named_as_such(gateway, rollout):
    async with gateway.session.get(f"{rollout['base_url']}/responses") as reply:
        assert reply.status == 405
    async with gateway.session.post(f"{rollout['base_url']}/models", data=json.dumps({})) as reply:
        assert reply.status == 405


KEYS = ["authorization", "x-api-key", "api-key", "x-goog-api-key"]
OWN = "sk-ant-the-users-own"


def sent_as(name, key):
    return {name: f"Bearer {key}" if name == "authorization" else key}


async def test_a_key_opens_in_any_header_and_a_token_beside_it_goes_nowhere(gateway, rollout):
    url, body, answers = f"{rollout['base_url']}/chat/completions", BODIES["chat/completions"], []
    for name, other in itertools.product(KEYS, [None, *KEYS]):
        headers = ({} if other in (None, name) else sent_as(other, OWN)) | sent_as(name, rollout["api_key"])
        async with gateway.session.post(url, json=body, headers=headers) as reply:
            assert reply.status == 200, (name, other)
            answers.append(await reply.text())

    seen = [*answers, repr(gateway.log.records), repr([(call.headers, call.body) for call in gateway.engine.calls])]
    assert not any(OWN in text or rollout["api_key"] in text for text in seen)


async def test_a_token_of_another_opens_nothing_in_any_header(gateway, rollout):
    other = await gateway.open()
    url, body = f"{rollout['base_url']}/chat/completions", BODIES["chat/completions"]
    for name, key in itertools.product(KEYS, (OWN, "", other["api_key"])):
        async with gateway.session.post(url, json=body, headers=sent_as(name, key)) as reply:
            assert reply.status == 401, (name, key)
            assert OWN not in await reply.text()
