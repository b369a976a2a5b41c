"""LiteLLM itself, in its own process, answers for models that are not the policy."""

import json
import urllib.error
import urllib.request

import pytest

from agent_layer.local.providers import run_provider_proxy
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread

from ...waiting import scaled


def ask(settings, key, **fields):
    body = {"model": "hosted_vllm/judge", "messages": [{"role": "user", "content": "right?"}], **fields}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    url = f"{settings.provider_url}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=scaled(60)) as reply:
        return reply.read().decode()


@pytest.fixture(scope="module")
def judge():
    with serve_in_thread(ScriptedEngine(script=lambda _: "it is right", model="judge")) as engine:
        yield engine


@pytest.fixture
def mine(settings, judge, monkeypatch):
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", f"{judge.url}/v1")
    rules = settings.model_copy(update={"models": '{"judge": "hosted_vllm/judge"}'})
    with run_provider_proxy(rules) as found:
        yield found


def test_litellm_answers_in_its_own_process(mine, judge):
    whole = json.loads(ask(mine, mine.provider_key, temperature=0.5, api_base="http://127.0.0.1:9"))
    streamed = ask(mine, mine.provider_key, stream=True)

    assert whole["choices"][0]["message"]["content"] == "it is right"
    events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events) == "it is right"
    assert streamed.rstrip().endswith("data: [DONE]")
    assert judge.calls[0].body["temperature"] == 0.5

    for key, status in (("wrong", 401), (mine.provider_key, 404)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(mine, key, model="hosted_vllm/nobody")
        assert refused.value.code == status
        assert json.load(refused.value)["error"]["message"]


def test_without_a_rule_that_needs_it_nothing_is_started(settings):
    with run_provider_proxy(settings.model_copy(update={"models": '{"*": "policy"}'})) as found:
        assert found.provider_url is None
