"""Libraries that are traced in this process: each call is one step of its own rollout, however many layers see it."""

import asyncio
import json
from contextlib import asynccontextmanager

import anthropic
import openai
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph

import tracer
from agent_layer.recorder.log import open_recorder
from agent_layer.schema.messages import resolve
from agent_layer.store import open_store
from tracer.session import Session, use_session
from tracer.testing import capture

pytestmark = pytest.mark.filterwarnings("ignore::Warning:litellm", "ignore::Warning:pydantic")
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def litellm():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        yield pytest.importorskip("litellm")


class Broker(BaseChatModel):
    """A chat model of LangChain's over LiteLLM, which uses the openai client: three libraries that are traced."""

    complete: object
    address: dict[str, str]

    @property
    def _llm_type(self):
        return "broker"

    def _generate(self, messages, **_):
        reported = [{"role": "user", "content": message.content} for message in messages]
        answer = self.complete(messages=reported, **self.address).choices[0].message.content
        return ChatResult(generations=[ChatGeneration(message=AIMessage(answer))])


def graph_over(model):
    @tracer.step(name="thought")
    def think(state):
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_edge(START, "think")
    graph.add_edge("think", END)
    return graph.compile(name="thinker")


@tracer.agent
def solver(model, question):
    graph = graph_over(model)
    answer = graph.invoke({"messages": [HumanMessage(question)]})["messages"][-1].content
    return graph.invoke({"messages": [HumanMessage(f"is it true: {answer}")]})["messages"][-1].content


def test_with_all_layers_on_a_call_is_one_step_and_each_field_is_of_who_knows_it_best(litellm, gateway, engine):
    model = Broker(complete=litellm.completion, address={"model": "anthropic/any", "api_key": "none"})
    tracing = Session(settings=gateway, sink=open_recorder(gateway))
    with use_session(tracing), tracer.rollout(task="t") as rollout:
        assert solver(model, "one") == "it is is it true: it is one"

    trajectory = open_store(gateway).get(rollout.trajectory_id)
    assert trajectory.accepted is not None
    assert len(trajectory.steps) == len(engine.calls) == 2
    for step, seen in zip(trajectory.steps, engine.calls, strict=True):
        assert step.prompt_token_ids.tolist() == seen.prompt_token_ids
        assert step.action.response_token_ids.tolist() == seen.token_ids[0]
        assert (step.capture_level, step.status, step.engine) == ("tokens", "ok", engine.url)
        assert (step.node, step.trace_id) == ("thought", rollout.trace_id)
        assert step.span_id is not None
        assert step.call_id == seen.headers.get("x-agent-layer-call", step.call_id)
    first, second = trajectory.steps
    assert second.parent_call == first.call_id
    assert resolve(trajectory.contents, first.state.framework)


def test_without_a_gateway_all_layers_make_one_step_of_text(litellm, engine):
    address = {"model": "openai/scripted", "api_base": f"{engine.url}/v1", "api_key": "none"}
    with capture() as captured, tracer.rollout(task="t"):
        solver(Broker(complete=litellm.completion, address=address), "one")

    assert [(step.status, step.capture_level) for step in captured.trajectory.steps] == [("ok", "text")] * 2
    assert len(engine.calls) == 2


@pytest.fixture
def tracing(gateway):
    with use_session(Session(settings=gateway, sink=open_recorder(gateway))):
        yield gateway


@asynccontextmanager
async def responses():
    async with openai.AsyncOpenAI(base_url=f"{NOWHERE}/v1", api_key="none", max_retries=0) as client:

        async def ask(text):
            async with client.responses.stream(model="any", input=text) as stream:
                await stream.get_final_response()

        yield ask


@asynccontextmanager
async def messages():
    async with anthropic.AsyncAnthropic(base_url=NOWHERE, api_key="none", max_retries=0) as client:

        async def ask(text):
            question = [{"role": "user", "content": text}]
            async with client.messages.stream(model="any", max_tokens=99, messages=question) as stream:
                await stream.get_final_message()

        yield ask


@pytest.mark.parametrize("shared_client", [responses, messages])
async def test_32_rollouts_at_a_time_have_their_own_steps_and_no_others(tracing, engine, shared_client):
    """Through one client, which was built before them, for an address that is not used."""

    async def live(ask, number):
        async with tracer.rollout(task=f"t{number}") as rollout:
            await ask(f"rollout {number} first")
            await ask(f"rollout {number} second")
        return rollout.trajectory_id

    async with shared_client() as ask:
        trajectory_ids = await asyncio.gather(*(live(ask, number) for number in range(32)))

    assert len(engine.calls) == 64
    for number, trajectory_id in enumerate(trajectory_ids):
        trajectory = await asyncio.to_thread(open_store(tracing).get, trajectory_id)
        questions = [json.loads(trajectory.contents[step.state.messages[0]])["content"] for step in trajectory.steps]
        assert questions == [f"rollout {number} first", f"rollout {number} second"]
        assert {(step.capture_level, step.status) for step in trajectory.steps} == {("tokens", "ok")}
        assert trajectory.steps[1].parent_call == trajectory.steps[0].call_id
