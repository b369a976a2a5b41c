"""vLLM as an engine of ours: its start has a limit, and neutral values of sampling win over its model's own."""
# ruff: noqa: PLC0415  # vLLM takes ten seconds to import, and collection stays fast

import pytest

from agent_layer.engines import KINDS, NEUTRAL_SAMPLING
from agent_layer.gateway.dialects.chat import ENGINE_FIELDS

NARROW = {
    "temperature": 0.3,
    "top_p": 0.8,
    "top_k": 20,
    "min_p": 0.1,
    "repetition_penalty": 1.2,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
}
"""Fields of a model's generation_config.json that change its distribution."""


@pytest.mark.filterwarnings("ignore")  # of vLLM's own packages
def test_neutral_values_win_over_the_generation_config_of_the_model():
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    fields = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    plain = ChatCompletionRequest(**fields).to_sampling_params(8, NARROW)
    neutral = ChatCompletionRequest(**fields, **NEUTRAL_SAMPLING).to_sampling_params(8, NARROW)

    assert NARROW.keys() == NEUTRAL_SAMPLING.keys()
    for name, value in NEUTRAL_SAMPLING.items():
        assert getattr(plain, name) == NARROW[name]
        assert getattr(neutral, name) in ((0, -1) if name == "top_k" else (value,))


@pytest.mark.filterwarnings("ignore")  # of vLLM's own packages
def test_what_vllm_ignores_is_known():
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    assert ENGINE_FIELDS - ChatCompletionRequest.model_fields.keys() == KINDS["vllm"].unread_fields


def test_the_start_of_an_engine_has_the_limit_of_the_setting(agent_layer, model, monkeypatch):
    monkeypatch.setenv("AGENT_LAYER_ENGINE_SECONDS", "0.5")

    status, _, errors = agent_layer("up", "--model", model, "--port", "0")

    assert status == 1
    assert "expected it to serve within 0.5 s" in errors
    assert "AGENT_LAYER_ENGINE_SECONDS" in errors
