"""Names lead to the policy unless a rule says otherwise; a provider's answers are kept, and never trained on."""

import json

import pytest

from agent_layer.errors import BadInputError
from agent_layer.gateway.engines.models import ModelNames, read_model_names
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve

RULES = {"gpt-4o": "openai/gpt-4o", "judge-*": "judge", "gpt-*": "policy", "claude*": "anthropic/claude"}


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("gpt-4o", "openai/gpt-4o"),
        ("gpt-5", None),
        ("judge-1", "judge"),
        ("claude-opus", "anthropic/claude"),
        ("anything", None),
        ("", None),
    ],
)
def test_the_first_pattern_that_fits_decides(name, model):
    assert ModelNames(RULES).provider_model(name) == model


def test_without_rules_every_name_is_the_policy():
    names = read_model_names(None)

    assert names.provider_model("gpt-4o") is None
    assert not names.needs_provider


@pytest.mark.parametrize(
    ("rules", "is_aux"), [({}, True), ({"gpt-*": "policy"}, True), ({"a*": "policy"}, False), ({"aux": "judge"}, False)]
)
def test_an_agent_that_asks_for_aux_is_not_trained_unless_a_rule_says_otherwise(rules, is_aux):
    names = ModelNames(rules)

    assert names.is_aux("aux") is is_aux
    assert not names.is_aux("policy")
    assert not names.is_aux("auxiliary")


def test_rules_may_lie_in_a_file(tmp_path):
    (tmp_path / "models.json").write_text(json.dumps(RULES))

    assert read_model_names(str(tmp_path / "models.json")).provider_model("judge-2") == "judge"


@pytest.mark.parametrize("setting", ["{", '{"a": 1}', "/nowhere.json"])
def test_rules_that_cannot_be_read_are_refused(setting):
    with pytest.raises(BadInputError, match="AGENT_LAYER_MODELS"):
        read_model_names(setting)


@pytest.fixture
async def judge():
    async with serve(ScriptedEngine(script=lambda _: "judged", model="judge", token_ids=False)) as engine:
        yield engine


@pytest.fixture
async def gateway_with_judge(run_gateway, settings, judge):
    found = {"models": json.dumps(RULES), "provider_url": judge.url, "provider_key": "pk", "api_key": "operator-key"}
    async with run_gateway(settings.model_copy(update=found)) as gateway:
        yield gateway


@pytest.mark.parametrize("stream", [False, True])
async def test_a_name_of_a_provider_is_answered_by_it_and_recorded_as_text(gateway_with_judge, judge, stream):
    opened = await gateway_with_judge.open(sampling={"temperature": 1.0})

    status, _ = await gateway_with_judge.chat(opened, "is it right", stream=stream, model="judge-1", temperature=0.0)
    await gateway_with_judge.chat(opened, "go on", model="gpt-5")

    assert status == 200
    judged, reply = gateway_with_judge.log.trajectory(opened["trajectory_id"]).steps
    assert (judged.role, judged.capture_level, judged.model, judged.engine) == ("aux", "text", "judge", "litellm")
    assert (judged.status, judged.findings, judged.action.policy_versions) == ("ok", [], None)
    assert judged.action.message["content"] == "judged"
    assert judged.sampling_applied == {"temperature": 0.0}
    assert (reply.role, reply.capture_level) == ("policy", "tokens")
    (call,) = judge.calls
    assert call.headers["Authorization"] == "Bearer pk"
    assert "return_token_ids" not in call.body
    assert "logprobs" not in call.body


async def test_a_provider_that_fails_is_not_replaced_by_the_policy(gateway_with_judge, judge):
    judge.model = "gone"
    opened = await gateway_with_judge.open()

    status, _ = await gateway_with_judge.chat(opened, "is it right", model="judge-1")

    assert status == 404
    assert gateway_with_judge.engine.calls == []
    assert gateway_with_judge.step(opened).status == "error"


@pytest.fixture
async def gateway_of_endpoint(run_gateway, settings, judge):
    found = {"policy_url": f"{judge.url}/v1", "policy_key": "theirs", "model": "judge", "api_key": "operator-key"}
    async with run_gateway(settings.model_copy(update=found)) as gateway:
        yield gateway


@pytest.mark.parametrize("stream", [False, True])
async def test_an_endpoint_of_another_party_answers_as_the_policy(gateway_of_endpoint, judge, stream):
    opened = await gateway_of_endpoint.open(split="eval", sampling={"temperature": 0.2})
    usage = {"stream_options": {"include_usage": True}} if stream else {}

    status, _ = await gateway_of_endpoint.chat(opened, "is it right", stream=stream, temperature=0.9, **usage)

    assert status == 200
    step = gateway_of_endpoint.step(opened)
    assert (step.role, step.capture_level, step.model, step.engine) == ("policy", "text", "judge", judge.url)
    assert step.sampling_applied["temperature"] == 0.2
    assert (step.usage.prompt_tokens, step.usage.response_tokens) == (6, 2)
    (call,) = judge.calls
    assert call.headers["Authorization"] == "Bearer theirs"
    assert call.body["temperature"] == 0.2
    assert "return_token_ids" not in call.body
    assert gateway_of_endpoint.engine.calls == []


async def test_an_endpoint_without_the_name_of_a_model_is_refused(run_gateway, settings):
    found = {"policy_url": "http://127.0.0.1:9", "api_key": "operator-key"}

    with pytest.raises(BadInputError, match="AGENT_LAYER_MODEL"):
        async with run_gateway(settings.model_copy(update=found)):
            pass
