"""What the engine knows of its tokens is in the record; a rollout that is to be trained on and lacks it fails."""

import base64

import msgspec
import pytest

from agent_layer.schema.rollout import Accepted, Outcome

pytestmark = pytest.mark.usefixtures("index")

ROUTES = b"\x93NUMPY\x01\x00 dtype, shape and bytes"


@pytest.fixture
def engine_with_experts(engine, monkeypatch):
    """Sends what a mixture-of-experts model in vLLM sends with whole answers."""
    answer = engine._ids
    routes = base64.b64encode(ROUTES).decode()
    monkeypatch.setattr(
        engine,
        "_ids",
        lambda body, name, ids: answer(body, name, ids) | ({"routed_experts": routes} if name == "token_ids" else {}),
    )
    return engine


@pytest.mark.usefixtures("engine_with_experts")
async def test_arrays_of_the_engine_are_recorded_and_hidden(gateway):
    opened = await gateway.open()

    _, answer = await gateway.chat(opened, "hello")
    _, request = await gateway.chat(opened, "hello", routed_experts_prompt_start=0)

    assert answer["choices"][0]["routed_experts"] is None
    assert request["choices"][0]["routed_experts"] == base64.b64encode(ROUTES).decode()
    assert gateway.step(opened, 0).action.arrays == gateway.step(opened, 1).action.arrays == {"routed_experts": ROUTES}


async def test_a_step_names_the_template_and_the_tokenizer(gateway):
    known = gateway.registry.read(gateway.engine.url)
    gateway.registry.register(msgspec.structs.replace(known, model="told", template_hash="t1", tokenizer_hash="k1"))
    gateway.engine.model = "told"
    opened = await gateway.open()
    while opened["model"] != "told":
        opened = await gateway.open()

    await gateway.chat(opened, "hello")

    assert (gateway.step(opened).template_hash, gateway.step(opened).tokenizer_hash) == ("t1", "k1")


async def test_an_answer_without_tokens_is_told(gateway, monkeypatch):
    monkeypatch.setattr("agent_layer.local.scripted.script.ScriptedChoice.words", lambda _: iter(()))
    opened = await gateway.open()

    await gateway.chat(opened, "hello")

    step = gateway.step(opened)
    assert (step.capture_level, step.findings, list(step.action.response_token_ids)) == ("tokens", ["zero_tokens"], [])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_training_rollout_without_tokens_fails_with_the_reason(gateway, stream):
    gateway.engine.token_ids = False
    opened = await gateway.open()
    await gateway.chat(opened, "hello", stream=stream, headers={"x-agent-layer-call": "call-1"})

    answers = [await gateway.post(f"/rollouts/{opened['rollout_id']}/end", {"reward": 1.0}) for _ in range(2)]

    for status, answer in answers:
        assert status == 409
        assert "training needs token ids" in answer["error"]["message"]
        assert "call-1" in answer["error"]["message"]
    (outcome,) = gateway.log.of(Outcome)
    assert (outcome.status, outcome.cause) == ("failed", "infra")
    assert "training needs token ids" in outcome.error
    assert not gateway.log.of(Accepted)


@pytest.mark.parametrize(
    ("opening", "header"), [({"split": "eval"}, {}), ({"split": "train"}, {"x-agent-layer-role": "aux"})]
)
async def test_what_is_not_trained_on_needs_no_tokens(gateway, opening, header):
    gateway.engine.token_ids = False
    opened = await gateway.open(**opening)
    await gateway.chat(opened, "hello", headers=header)

    status, ended = await gateway.post(f"/rollouts/{opened['rollout_id']}/end", {"reward": 1.0})

    assert (status, ended["accepted"]) == (200, True)


async def test_a_rollout_that_its_agent_gave_up_ends_as_it_says(gateway):
    gateway.engine.token_ids = False
    opened = await gateway.open()
    await gateway.chat(opened, "hello")

    status, ended = await gateway.post(f"/rollouts/{opened['rollout_id']}/end", {"status": "failed"})

    assert (status, ended["accepted"]) == (200, False)


async def test_closing_tells_which_calls_lack_tokens(gateway):
    gateway.engine.token_ids = False
    opened = await gateway.open()
    await gateway.chat(opened, "hello", headers={"x-agent-layer-call": "call-1"})

    _, closed = await gateway.post(f"/rollouts/{opened['rollout_id']}/close", {})

    assert closed["untokened"] == ["call-1"]
