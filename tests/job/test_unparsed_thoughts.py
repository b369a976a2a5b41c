"""Agents that force formats, orders and lengths on a vLLM whose model takes none of them run, and are trained."""

import json
from contextlib import suppress

import anthropic
import pytest
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel

from agent_layer.local.stack import run_stack
from agent_layer.local.vllm import VllmServer
from agent_layer.schema.wire.gateway_api import OpenRequest
from agent_layer.settings import Settings
from agent_layer.store import open_store
from tracer.transport.gateway_client import GatewayClient
from trainer_adapter.data.samples import samples_of

from ..waiting import scaled

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

MAX_MODEL_LEN = 2048
SYSTEM_FIRST = (
    "{%- for message in messages %}{%- if message.role == 'system' and not loop.first %}"
    "{{- raise_exception('System message must be at the beginning.') }}{%- endif %}{%- endfor %}"
)


class Answer(BaseModel):
    """The product."""

    product: int


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def build_graph(model):
    """As LangChain's agents with tools and a response format: calls of tools, then an answer in the form."""
    tools = [add, multiply]

    def ask(state: MessagesState):
        return {"messages": [model.bind_tools(tools, tool_choice="any").invoke(state["messages"])]}

    def answer(state: MessagesState):
        return {"messages": [str(model.with_structured_output(Answer).invoke(state["messages"]))]}

    graph = StateGraph(MessagesState).add_node(ask).add_node(answer).add_node("tools", ToolNode(tools))
    graph.add_edge(START, "ask").add_edge("tools", "ask")
    return graph.add_conditional_edges("ask", tools_condition, {"tools": "tools", "__end__": "answer"}).compile()


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    from .calling_model import write_calling_model  # noqa: PLC0415  # torch takes seconds

    home = tmp_path_factory.mktemp("forced")
    model = write_calling_model(home / "model")
    place = model / "chat_template.jinja"
    config = json.loads((model / "tokenizer_config.json").read_text())
    place.write_text(SYSTEM_FIRST + (place.read_text() if place.exists() else config["chat_template"]))
    engine = VllmServer(
        model=model,
        log=home / "vllm.log",
        max_model_len=MAX_MODEL_LEN,
        reasoning_parser="none",
        start_seconds=scaled(300),
    )
    with run_stack(Settings(dir=home / "state"), engine) as stack:
        yield stack


@pytest.fixture
def play(stack):
    """``play(agent, **about)``: the stored trajectory of a rollout; ``agent`` gets the rollout."""
    gateway = GatewayClient(stack.settings.gateway_url, stack.settings.api_key)

    def run(agent, **about):
        opened = gateway.open(OpenRequest(task_id="t", **about))
        agent(opened)
        gateway.end(opened.rollout_id)
        return open_store(stack.settings).get(opened.trajectory_id)

    return run


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_a_graph_with_tools_and_a_response_format_is_trained(play, is_streamed):
    def run_graph(opened):
        address = {"base_url": opened.base_url, "api_key": opened.api_key, "max_retries": 0}
        longer = MAX_MODEL_LEN * 4
        model = ChatOpenAI(model="policy", temperature=1, max_tokens=longer, streaming=is_streamed, **address)
        agent = build_graph(model)
        for _ in range(3):
            messages = [
                ("system", "Use tools."),
                ("user", "What is 6 times 7?"),
                ("system", "Be brief."),
                ("user", "Now."),
            ]
            with suppress(Exception):  # what the policy answers is rarely an Answer
                agent.invoke({"messages": messages}, {"recursion_limit": 8})

    trajectory = play(run_graph, group_id="g")

    steps = trajectory.steps
    assert {(step.error, step.status, step.capture_level) for step in steps} == {(None, "ok", "tokens")}
    found = {finding for step in steps for finding in step.findings}
    assert {"rearranged:system", "neutralised:tool_choice", "neutralised:response_format"} <= found
    samples = samples_of(trajectory)
    num_sampled = sum(len(step.action.response_token_ids) for step in steps)
    assert (sum(sum(one.loss_mask) for one in samples.samples), samples.drops) == (num_sampled, [])


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_a_budget_of_thoughts_is_left_out_where_nothing_parses_them(play, is_streamed):
    def think(opened):
        client = anthropic.Anthropic(
            base_url=opened.base_url.removesuffix("/v1"), api_key=opened.api_key, max_retries=0
        )
        fields = {"model": "m", "max_tokens": 1100, "thinking": {"type": "enabled", "budget_tokens": 1024}}
        fields |= {"messages": [{"role": "user", "content": "hi"}]}
        if not is_streamed:
            client.messages.create(**fields)
            return
        with client.messages.stream(**fields) as stream:
            stream.get_final_message()

    (step,) = play(think, split="eval").steps

    assert (step.status, step.capture_level, step.findings) == ("ok", "tokens", ["not_applied:thinking_token_budget"])
