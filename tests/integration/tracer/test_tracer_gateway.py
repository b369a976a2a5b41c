"""The tracer in front of a real gateway, recorder, shipper and store; the engine alone is scripted."""

import asyncio
import base64
import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import httpx
import openai
import pytest
from aiohttp import web
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

import tracer
from agent_layer.gateway.app import build_app
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve
from agent_layer.recorder.log import Recorder
from agent_layer.recorder.shipping import ensure_shipper
from agent_layer.schema.messages import resolve
from agent_layer.schema.task import Limits
from agent_layer.schema.wire.gateway_api import OpenRequest
from agent_layer.store import open_store
from agent_layer.store.reading.display import show_step
from agent_layer.store.segments.blobs import list_blobs
from tracer.session import Session, active_session, use_session

from ...waiting import join, scaled

OPERATOR = "operator-key"


def answer(prompt):
    """Call the sum tool once if the request has tools; else repeat the message."""
    if prompt.tools and not prompt.turn:
        call = {"name": "add", "arguments": json.dumps({"a": 40, "b": 2})}
        return {"tool_calls": [{"id": f"c-{prompt.text[-6:]}", "type": "function", "function": call}]}
    return f"{prompt.text} {prompt.choice}"


@pytest.fixture
async def engine():
    async with serve(ScriptedEngine(script=answer)) as engine:
        yield engine


@pytest.fixture
async def gateway(settings, redis, keys, engine, register_engine):
    """Settings under which the tracer finds the gateway; rollouts of the test go there."""
    register_engine(engine, settings)
    mine = settings.model_copy(update={"api_key": OPERATOR, "connect_seconds": scaled(20.0)})
    log = Recorder(mine, lambda: ensure_shipper(mine))
    runner = web.AppRunner(build_app(mine, redis, log), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    mine = mine.model_copy(update={"gateway_url": f"http://127.0.0.1:{runner.addresses[0][1]}"})
    with use_session(Session(settings=mine, sink=log)):
        yield mine
    await runner.cleanup()
    # a thread of the gateway still waits for news of engines, and the loop waits for its threads
    redis.xadd(keys.engine_events, {"url": engine.url})
    log.close()


@pytest.fixture
async def client():
    """Built before any rollout, for an unused address."""
    async with openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=1) as client:
        yield client


@pytest.fixture
def sync_client():
    with openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=1) as client:
        yield client


async def ask(client, text, **options):
    return await client.chat.completions.create(model="any", messages=[{"role": "user", "content": text}], **options)


def ask_now(client, text):
    return client.chat.completions.create(model="any", messages=[{"role": "user", "content": text}])


def read_texts(trajectory):
    """What each call asked, in order."""
    return [json.loads(trajectory.contents[step.state.messages[0]])["content"] for step in trajectory.steps]


async def read_all(settings, lived):
    """Read back the trajectories of (number, trajectory id) from the store."""
    store = await asyncio.to_thread(open_store, settings)
    return [(number, await asyncio.to_thread(store.get, trajectory_id)) for number, trajectory_id in lived]


async def test_32_rollouts_at_a_time_through_one_client_keep_apart(gateway, client, engine):
    async def live(number):
        async with tracer.rollout(task=f"t{number}") as rollout:
            await ask(client, f"rollout {number} turn 0")
            assert [chunk async for chunk in await ask(client, f"rollout {number} turn 1", stream=True)]
            await ask(client, f"rollout {number} turn 2")
            rollout.reward(number / 32)
        return number, rollout.trajectory_id

    lived = await asyncio.gather(*map(live, range(32)))

    for number, trajectory in await read_all(gateway, lived):
        assert read_texts(trajectory) == [f"rollout {number} turn {turn}" for turn in range(3)]
        assert trajectory.accepted is not None
        assert trajectory.reward == number / 32
        assert {step.capture_level for step in trajectory.steps} == {"tokens"}
        assert [step.parent_call for step in trajectory.steps[1:]] == [step.call_id for step in trajectory.steps[:-1]]
    assert len(engine.calls) == 96


async def test_threads_share_a_client_and_keep_their_rollouts(gateway, sync_client):
    def live(number):
        with tracer.rollout(task=f"t{number}") as rollout:
            helper = threading.Thread(target=ask_now, args=(sync_client, f"rollout {number} helper"))
            helper.start()
            join(helper)
            ask_now(sync_client, f"rollout {number} itself")
        return number, rollout.trajectory_id

    with ThreadPoolExecutor(8) as pool:  # the loop's own threads are the gateway's, which is in this process too
        run = asyncio.get_running_loop().run_in_executor
        lived = await asyncio.gather(*(run(pool, copy_context().run, live, number) for number in range(8)))

    for number, trajectory in await read_all(gateway, lived):
        assert read_texts(trajectory) == [f"rollout {number} helper", f"rollout {number} itself"]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def solver(model):
    bound = model.bind_tools([add])

    async def think(state):
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("act", ToolNode([add]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", lambda state: "act" if state["messages"][-1].tool_calls else END, ["act", END])
    graph.add_edge("act", "think")
    return graph.compile(name="solver")


async def test_a_graph_has_exact_tokens_from_the_gateway_and_its_state_from_the_tracer(gateway, engine):
    async with httpx.AsyncClient() as http:
        model = ChatOpenAI(model="any", base_url="http://127.0.0.1:9/v1", api_key="none", http_async_client=http)
        async with tracer.rollout(task="t") as rollout:
            question = {"messages": [HumanMessage("what is 40 + 2")]}
            await solver(model).ainvoke(question, {"configurable": {"thread_id": "th"}})

    ((_, trajectory),) = await read_all(gateway, [(0, rollout.trajectory_id)])
    first, second = trajectory.steps
    for step, seen in zip(trajectory.steps, engine.calls, strict=True):
        assert step.prompt_token_ids.tolist() == seen.prompt_token_ids
        assert step.action.response_token_ids.tolist() == seen.token_ids[0]
        assert (step.agent, step.node, step.capture_level, step.status) == ("solver", "think", "tokens", "ok")
        assert (step.conversation, step.graph.path) == ("th", ["think"])
    assert second.parent_call == first.call_id
    assert [step.graph.came_from for step in trajectory.steps] == [["__start__"], ["act"]]
    state = resolve(trajectory.contents, second.state.framework)
    assert [message["role"] for message in state["messages"]] == ["user", "assistant", "tool"]
    (observation,) = trajectory.observations
    assert (observation.call_id, observation.output) == (first.call_id, "42")
    assert trajectory.accepted is not None


async def test_no_call_is_lost_or_counted_twice(gateway, client, engine):
    async with tracer.rollout(task="t") as rollout:
        await ask(client, "one")
        await ask(client, "several", n=3)
        async for _ in await ask(client, "abandoned " * 50, stream=True):
            break
        await client.with_options(max_retries=0).chat.completions.with_raw_response.create(
            model="any", messages=[{"role": "user", "content": "raw"}]
        )
        await asyncio.gather(*(ask(client, "the very same") for _ in range(4)))

    ((_, trajectory),) = await read_all(gateway, [(0, rollout.trajectory_id)])
    assert len({step.call_id for step in trajectory.steps}) == len(engine.calls) == 8
    assert len(trajectory.steps) == 10
    assert {step.status for step in trajectory.steps} <= {"ok", "aborted"}


async def test_a_judge_asks_its_own_model_and_is_recorded_beside(gateway, client):
    @tracer.agent(role="aux")
    async def judge(own):
        return await ask(own, "how good is it")

    async with (
        serve(ScriptedEngine(script=lambda _: "very", model="any")) as other,
        openai.AsyncOpenAI(base_url=f"{other.url}/v1", api_key="none") as own,
        tracer.rollout(task="t") as rollout,
    ):
        await ask(client, "solve it")
        assert (await judge(own)).choices[0].message.content == "very"

    ((_, trajectory),) = await read_all(gateway, [(0, rollout.trajectory_id)])
    levels = [(step.agent, step.role, step.capture_level) for step in trajectory.steps]
    assert levels == [(None, "policy", "tokens"), ("judge", "aux", "text")]
    assert trajectory.accepted is not None


async def test_an_agent_that_runs_out_of_turns_is_truncated_and_scored_as_it_stands(gateway, client):
    async def live():
        async with tracer.rollout(task="t", limits=Limits(turns=2)) as rollout:
            rollout.reward(0.0)
            trajectories.append(rollout.trajectory_id)
            for turn in range(3):
                await ask(client, f"turn {turn}")

    trajectories = []
    with pytest.raises(openai.RateLimitError):
        await live()

    ((_, trajectory),) = await read_all(gateway, [(0, trajectories[0])])
    assert (trajectory.outcome.status, trajectory.outcome.cause) == ("truncated", "policy")
    assert (len(trajectory.steps), trajectory.reward, trajectory.accepted is not None) == (2, 0.0, True)


async def test_an_agent_that_fails_leaves_its_steps_and_no_reward(gateway, client):
    async def live():
        async with tracer.rollout(task="t") as rollout:
            trajectories.append(rollout.trajectory_id)
            await ask(client, "one")
            raise LookupError("no idea")

    trajectories = []
    with pytest.raises(LookupError):
        await live()

    ((_, trajectory),) = await read_all(gateway, [(0, trajectories[0])])
    assert (trajectory.outcome.status, trajectory.reward, trajectory.accepted) == ("failed", None, None)
    assert "no idea" in trajectory.outcome.error
    assert 'raise LookupError("no idea")' in trajectory.outcome.traceback
    assert [step.status for step in trajectory.steps] == ["ok"]


async def test_a_rollout_that_a_worker_opened_is_entered(gateway, client):
    tracing = active_session()
    opened = await asyncio.to_thread(tracing.gateway.open, OpenRequest(task_id="t", owner="worker"))
    rollout = tracer.Rollout.of(opened, run="default", sink=tracing.sink)

    with tracer.enter_rollout(rollout, agent="solver"):
        await ask(client, "one")

    closed = await asyncio.to_thread(tracing.gateway.close, opened.rollout_id, opened.attempt)
    report = await asyncio.to_thread(tracer.flush)
    assert (closed.started, closed.ended) == (1, 1)
    assert (report.pending, report.lost) == (0, 0)
    ((_, trajectory),) = await read_all(gateway, [(0, rollout.trajectory_id)])
    assert (trajectory.steps[0].agent, trajectory.accepted) == ("solver", None)


async def test_a_screenshot_that_every_turn_shows_is_one_blob_and_is_shown_when_asked_for(gateway, client):
    url = f"data:image/png;base64,{base64.b64encode(random.Random(0).randbytes(300_000)).decode()}"
    look = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    messages = [look]
    async with tracer.rollout(task="t") as rollout:
        for turn in range(3):
            answer = await client.chat.completions.create(model="any", messages=messages)
            spoken = {"role": "assistant", "content": answer.choices[0].message.content}
            messages += [spoken, {"role": "user", "content": f"turn {turn}"}, look]

    [(_, trajectory)] = await read_all(gateway, [(0, rollout.trajectory_id)])
    store = await asyncio.to_thread(open_store, gateway)

    assert len(list(list_blobs(store.keys, store.objects))) == len(trajectory.blobs) == 1
    for step in store.get(rollout.trajectory_id, blobs=False).steps:
        assert show_step(trajectory, step)["state"]["messages"].count(look) == step.index + 1
