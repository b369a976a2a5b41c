"""Refusals of engines that mean that a prompt does not fit into the model's context."""

import pytest

from agent_layer.gateway.dialects.refusals import is_context_full

TOO_LONG = {
    "vLLM": "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens (2000 in the"
    " messages, 100 in the completion). Please reduce the length of the messages or completion.",
    "vLLM, prompt alone": "The decoder prompt (length 2100) is longer than the maximum model length of 2048.",
    "vLLM, answer alone": "max_tokens=8192 cannot be greater than max_model_len=2048. Please request fewer output"
    " tokens.",
    "SGLang": "The input (2100 tokens) is longer than the model's context length (2048 tokens).",
    "SGLang, with the answer": "Requested token count exceeds the model's maximum context length of 2048 tokens.",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "OpenAI": '{"error": {"code": "context_length_exceeded", "message": "too many"}}',
    "Anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
}


@pytest.mark.parametrize("message", TOO_LONG.values(), ids=TOO_LONG)
def test_a_prompt_that_does_not_fit_is_recognised(message):
    assert is_context_full(400, message.encode())


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "max_tokens must be at least 1, got -5."),
        (400, "The model `m` does not exist."),
        (400, "temperature is longer than allowed"),
        (500, "This model's maximum context length is 2048 tokens."),
        (429, "Rate limit reached: maximum tokens per minute"),
    ],
)
def test_other_refusals_are_not(status, message):
    assert not is_context_full(status, message.encode())
