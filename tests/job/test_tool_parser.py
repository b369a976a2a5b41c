"""Exact tokens under vLLM's own tool parser: the record equals the tokens that vLLM reports as sampled."""

import json

import anthropic
import openai
import pytest
import requests

from agent_layer.local.stack import run_stack
from agent_layer.local.vllm import VllmServer
from agent_layer.schema.wire.gateway_api import OpenRequest
from agent_layer.settings import Settings
from agent_layer.store import open_store
from tracer.transport.gateway_client import GatewayClient

from ..waiting import scaled

pytestmark = pytest.mark.long

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
ADD = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": ADD}}]
QUESTION = [{"role": "user", "content": "what is 1 and 2"}]
FORCED = {"structured_outputs": {"choice": [CALL]}, "temperature": 1.0, "seed": 7}
"""The only answer that the untrained model can give, in sampled tokens that rarely match the tokenizer's."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, chat_model):
    home = tmp_path_factory.mktemp("tools")
    engine = VllmServer(model=chat_model, log=home / "vllm.log", max_model_len=1024, start_seconds=scaled(300))
    with run_stack(Settings(dir=home / "state"), engine) as stack:
        yield stack


@pytest.fixture
def rollout(stack):
    """An open rollout, and its stored trajectory after its end."""
    gateway = GatewayClient(stack.settings.gateway_url, stack.settings.api_key)
    return ScriptedPlay(stack, gateway)


class ScriptedPlay:
    def __init__(self, stack, gateway):
        self.stack, self.gateway = stack, gateway
        self.opened = gateway.open(OpenRequest(task_id="t"))

    def steps(self):
        self.gateway.end(self.opened.rollout_id)
        return open_store(self.stack.settings).get(self.opened.trajectory_id).steps


def straight(stack, messages):
    """Return vLLM's own answer to the same request."""
    body = {"model": "policy", "messages": messages, "tools": TOOLS, "max_tokens": 120, **FORCED}
    requested = body | {"return_token_ids": True, "logprobs": True}
    return requests.post(f"{stack.engine.url}/v1/chat/completions", json=requested, timeout=scaled(120)).json()


def ask_chat(opened, *, is_streamed):
    client = openai.OpenAI(base_url=opened.base_url, api_key=opened.api_key)
    fields = {"model": "any", "messages": QUESTION, "tools": TOOLS, "max_tokens": 120, "temperature": 1.0, "seed": 7}
    extra = {"structured_outputs": FORCED["structured_outputs"]}
    if not is_streamed:
        return client.chat.completions.create(**fields, extra_body=extra).choices[0].message
    with client.chat.completions.stream(**fields, extra_body=extra) as stream:
        return stream.get_final_completion().choices[0].message


def ask_responses(opened, *, is_streamed):
    client = openai.OpenAI(base_url=opened.base_url, api_key=opened.api_key)
    tools = [{"type": "function", "name": "add", "parameters": ADD}]
    fields = {"model": "any", "input": QUESTION, "tools": tools, "max_output_tokens": 120, "extra_body": FORCED}
    if not is_streamed:
        return client.responses.create(**fields)
    with client.responses.stream(**fields) as stream:
        return stream.get_final_response()


def ask_messages(opened, *, is_streamed):
    client = anthropic.Anthropic(base_url=opened.base_url.removesuffix("/v1"), api_key=opened.api_key)
    tools = [{"name": "add", "input_schema": ADD}]
    fields = {"model": "any", "messages": QUESTION, "tools": tools, "max_tokens": 120, "extra_body": FORCED}
    if not is_streamed:
        return client.messages.create(**fields)
    with client.messages.stream(**fields) as stream:
        return stream.get_final_message()


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("ask", [ask_chat, ask_responses, ask_messages])
def test_a_parsed_tool_call_is_recorded_in_the_ids_that_were_sampled(stack, rollout, ask, is_streamed):
    answer = ask(rollout.opened, is_streamed=is_streamed)
    (step,) = rollout.steps()
    expected = straight(stack, QUESTION)
    choice = expected["choices"][0]

    assert "add" in answer.model_dump_json()
    (call,) = step.action.message["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"a": 1, "b": 2}
    assert list(step.prompt_token_ids) == expected["prompt_token_ids"]
    assert list(step.action.response_token_ids) == choice["token_ids"]
    sampled = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    assert list(step.action.logprobs) == pytest.approx(sampled, abs=1e-4)
    assert step.capture_level == "tokens"


def test_the_turn_after_a_tool_call_has_the_prompt_that_vllm_made_of_it(stack, rollout):
    message = ask_chat(rollout.opened, is_streamed=False)
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "3"}
    history = [*QUESTION, message.model_dump(exclude_none=True), result]
    client = openai.OpenAI(base_url=rollout.opened.base_url, api_key=rollout.opened.api_key)
    client.chat.completions.create(model="any", messages=history, tools=TOOLS, max_tokens=5)
    first, second = rollout.steps()

    assert list(second.prompt_token_ids) == straight(stack, history)["prompt_token_ids"]
    assert second.parent_call == first.call_id
    assert second.prompt.parent_call == first.call_id or [found for found in second.findings if "prefix_break" in found]
