"""Agents of any form whose model call does not fit into the engine's context."""

import sys

import openai
import pytest

from agent_layer.schema.task import Limits

FULL = 40
"""Words that fit."""


def long_question(name="m"):
    return {"model": name, "messages": [{"role": "user", "content": "word " * FULL}]}


async def give_up(_task, _rollout):
    async with openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none") as client:
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        await client.chat.completions.create(**long_question())


async def hide_the_reason(task, rollout):
    try:
        await give_up(task, rollout)
    except openai.BadRequestError:
        raise ValueError("could not go on") from None


async def go_on(task, rollout):
    try:
        await give_up(task, rollout)
    except openai.BadRequestError as error:
        return 1.0 if error.code == "context_length_exceeded" else 0.0


async def go_on_and_fail(task, rollout):
    await go_on(task, rollout)
    async with openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none") as client:
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "short again"}])
    raise ValueError("a mistake of the agent's")


COMMAND = """
import json, os, urllib.request
def ask(text):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers))
ask("hi")
ask("word " * 40)
"""


async def ask_twice(_task, _rollout):
    async with openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none") as client:
        for number in (1, 30):
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "word " * number}])


async def test_any_agent_keeps_to_the_context_of_its_task(harness, task):
    limits = Limits(context_tokens=20)

    (trajectory,) = await harness.run(ask_twice, task(limits=limits, calls_optional=False))

    assert (trajectory.outcome.status, trajectory.outcome.cause, trajectory.reward) == ("truncated", "policy", 0.0)
    assert len(harness.engine.calls) == 1
    assert trajectory.outcome.findings == []


ENDINGS = {
    "raises": (give_up, ("truncated", "policy", 0.0)),
    "another error": (hide_the_reason, ("truncated", "policy", 0.0)),
    "command": ([sys.executable, "-c", COMMAND], ("truncated", "policy", 0.0)),
    "goes on": (go_on, ("completed", None, 1.0)),
    "fails later": (go_on_and_fail, ("failed", "user", None)),
}


@pytest.mark.parametrize(("agent", "ending"), ENDINGS.values(), ids=ENDINGS)
async def test_what_fails_because_the_context_is_full_is_the_policys_end(harness, task, agent, ending, until):
    harness.engine.context_tokens = FULL

    async with harness.worker(agent):
        harness.dispatcher.submit([task(calls_optional=False)])
        await until(lambda: any(row.status == ending[0] for row in harness.store.query().items))

    trajectory = harness.store.get(harness.store.query(order="oldest").items[0].trajectory_id)
    assert (trajectory.outcome.status, trajectory.outcome.cause, trajectory.reward) == ending
