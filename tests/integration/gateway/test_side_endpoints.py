"""Plain completions and embeddings: handed on to the engine as side calls."""

import json
from functools import partial

import openai
import pytest
from aiohttp import web

from agent_layer.engines import KINDS
from agent_layer.local.scripted.engine import ScriptedEngine

USAGE = {"prompt_tokens": 3, "total_tokens": 3, "completion_tokens": 2}


class SideEngine(ScriptedEngine):
    """Answers plain completions and embeddings as vLLM does, and keeps what it was asked."""

    def __post_init__(self):
        super().__post_init__()
        self.bodies, self.is_chat_only = [], False

    async def _keep(self, request):
        if self.is_chat_only:
            raise web.HTTPNotFound
        self.bodies.append(await request.json())
        return self.bodies[-1]

    def app(self):
        app = super().app()
        app.router.add_post("/v1/embeddings", self._embed)
        app.router.add_get("/ping", self._ping)
        return app

    async def _ping(self, _):
        return web.Response()

    async def _embed(self, request):
        body = await self._keep(request)
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        vectors = [{"object": "embedding", "index": at, "embedding": [0.5, 0.25]} for at, _ in enumerate(texts)]
        return web.json_response({"object": "list", "model": body["model"], "data": vectors, "usage": USAGE})

    async def _complete(self, request):
        body = await self._keep(request)
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        choices = [{"index": at, "text": f"{one} and", "finish_reason": "stop"} for at, one in enumerate(prompts)]
        answer = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": body["model"]}
        if not body.get("stream"):
            return web.json_response({**answer, "choices": choices, "usage": USAGE})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for one in choices:
            for text, end in [(one["text"][:3], None), (one["text"][3:], "stop")]:
                piece = {**answer, "choices": [{**one, "text": text, "finish_reason": end}]}
                await response.write(b"data: %b\n\n" % json.dumps(piece).encode())
        await response.write(b"data: [DONE]\n\n")
        return response


@pytest.fixture
def engine():
    return SideEngine()


@pytest.fixture
def kind():
    return "vllm"


@pytest.fixture
def register_engine(register_engine, kind):
    return partial(register_engine, kind=kind)


@pytest.fixture
async def rollout(gateway):
    return await gateway.open(group_id="g", sampling={"temperature": 1.0}, sampling_seed=7)


@pytest.fixture
async def client(rollout):
    async with openai.AsyncOpenAI(base_url=rollout["base_url"], api_key=rollout["api_key"], max_retries=0) as client:
        yield client


def recorded(gateway, rollout):
    """Return (role, status, capture level, prompt, texts, usage) of the last step, and its findings."""
    step, parts = gateway.step(rollout), gateway.log
    prompt = next(one for one in parts.records if getattr(one, "hash", None) == step.state.messages[0])
    texts = [one.message and one.message["content"] for one in gateway.log.parts("end")[-1].actions]
    message = json.loads(prompt.body)
    return (step.role, step.status, step.capture_level, message["content"], texts), step


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "shown", "answers"),
    [
        ("once", "once", ["once and"]),
        (["a", "b"], [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], ["a and", "b and"]),
        ([[1, 2]], [{"type": "text", "text": "[1,2]"}], ["[1, 2] and"]),
    ],
)
async def test_a_plain_completion_is_a_side_call(gateway, rollout, client, *, stream, prompt, shown, answers):
    answer = await client.completions.create(
        model="m", prompt=prompt, max_tokens=5, suffix="!", temperature=0.25, stream=stream, extra_body={"odd": 1}
    )
    if stream:
        texts = {}
        async for piece in answer:
            assert piece.object == "text_completion"
            for choice in piece.choices:
                texts[choice.index] = texts.get(choice.index, "") + choice.text
        read = [texts[index] for index in sorted(texts)]
    else:
        read = [choice.text for choice in answer.choices]

    found, step = recorded(gateway, rollout)

    assert read == answers
    assert found == ("aux", "ok", "text", shown, answers)
    assert step.findings == ["not_applied:odd", "side_call:completions"]
    (sent,) = gateway.engine.bodies
    assert {name: sent.get(name) for name in ("prompt", "max_tokens", "suffix", "temperature", "model", "odd")} == {
        "prompt": prompt,
        "max_tokens": 5,
        "suffix": "!",
        "temperature": 0.25,
        "model": "scripted",
        "odd": None,
    }
    assert {"messages", "logprobs", "return_token_ids"}.isdisjoint(sent)


@pytest.mark.parametrize("sent", ["a text", ["a text", "another"]])
async def test_an_embedding_is_a_side_call_without_its_vectors(gateway, rollout, client, sent):
    answer = await client.embeddings.create(model="m", input=sent, encoding_format="float", dimensions=2)

    found, step = recorded(gateway, rollout)

    assert [one.embedding for one in answer.data] == [[0.5, 0.25]] * (1 if isinstance(sent, str) else 2)
    shown = sent if isinstance(sent, str) else [{"type": "text", "text": one} for one in sent]
    assert found == ("aux", "ok", "text", shown, [None])
    assert (step.usage.prompt_tokens, step.findings) == (3, ["side_call:embeddings"])
    assert gateway.engine.bodies == [{"model": "scripted", "input": sent, "encoding_format": "float", "dimensions": 2}]
    assert not any("0.25" in repr(record) for record in gateway.log.records)


async def test_side_endpoints_spend_no_turn_break_no_prefix_and_are_never_the_policys(gateway, client):
    opened = await gateway.open(limits={"turns": 2})
    of_policy = {"x-agent-layer-role": "policy"}
    async with client.with_options(base_url=opened["base_url"], api_key=opened["api_key"]) as mine:
        statuses = [(await gateway.chat(opened, "hello"))[0]]
        await mine.embeddings.create(model="m", input="hello", extra_headers=of_policy)
        await mine.completions.create(model="m", prompt="hello", extra_headers=of_policy)
        statuses.append((await gateway.chat(opened, "hello", "you said: hello", "more"))[0])

    assert statuses == [200, 200]
    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert [step.role for step in steps] == ["policy", "aux", "aux", "policy"]
    assert steps[3].parent_call == steps[0].call_id
    assert [step.findings for step in steps[::3]] == [[], []]


async def test_an_engine_without_the_endpoint_is_named(gateway, client):
    gateway.engine.is_chat_only = True
    for asking in (client.completions.create(model="m", prompt="x"), client.embeddings.create(model="m", input="x")):
        with pytest.raises(openai.NotFoundError, match="AGENT_LAYER_MODELS") as refused:
            await asking
        assert refused.value.code == "not_served"
    assert (await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])).choices


@pytest.mark.parametrize("path", ["completions", "embeddings"])
@pytest.mark.parametrize("body", ["{}", "[]", '{"prompt": 7, "input": {}}', '{"prompt": null, "input": null}'])
async def test_a_body_without_a_prompt_is_refused(gateway, rollout, path, body):
    async with gateway.session.post(
        f"{rollout['base_url']}/{path}", data=body, headers={"Authorization": f"Bearer {rollout['api_key']}"}
    ) as reply:
        answer = await reply.json()
    assert (reply.status, gateway.engine.bodies) == (400, [])
    assert "; " in answer["error"]["message"]
