"""An agent that bounds the thoughts of a model whose server parses none is answered."""

import anthropic
import pytest

from agent_layer.local.stack import run_stack
from agent_layer.local.vllm import VllmServer
from agent_layer.schema.wire.gateway_api import OpenRequest
from agent_layer.settings import Settings
from agent_layer.store import open_store
from tracer.transport.gateway_client import GatewayClient

from ..waiting import scaled

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

MAX_MODEL_LEN = 2048


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    from .calling_model import write_calling_model  # noqa: PLC0415  # torch takes seconds

    home = tmp_path_factory.mktemp("thoughts")
    model = write_calling_model(home / "model")
    engine = VllmServer(
        model=model,
        log=home / "vllm.log",
        max_model_len=MAX_MODEL_LEN,
        reasoning_parser="none",
        start_seconds=scaled(300),
    )
    with run_stack(Settings(dir=home / "state"), engine) as stack:
        yield stack


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_a_budget_of_thoughts_is_left_out_where_nothing_parses_them(stack, is_streamed):
    gateway = GatewayClient(stack.settings.gateway_url, stack.settings.api_key)
    opened = gateway.open(OpenRequest(task_id="t", split="eval"))
    address = opened.base_url.removesuffix("/v1")
    fields = {"model": "m", "max_tokens": 1100, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    fields |= {"messages": [{"role": "user", "content": "hi"}]}

    with anthropic.Anthropic(base_url=address, api_key=opened.api_key, max_retries=0) as client:
        if is_streamed:
            with client.messages.stream(**fields) as stream:
                stream.get_final_message()
        else:
            client.messages.create(**fields)
    gateway.end(opened.rollout_id)

    (step,) = open_store(stack.settings).get(opened.trajectory_id).steps
    assert (step.status, step.capture_level, step.findings) == ("ok", "tokens", ["not_applied:thinking_token_budget"])
