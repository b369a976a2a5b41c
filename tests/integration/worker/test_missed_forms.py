"""An agent that fails on an answer without the form that it asks for fails because of the policy."""

import sys

import openai
import pytest

from trainer_adapter.data.lengths import is_overlong

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "find", "parameters": SCHEMA}}
FORCED = {
    "format": {"response_format": FORMAT},
    "tool": {"tools": [TOOL], "tool_choice": "required"},
    "strict": {"tools": [{**TOOL, "function": {**TOOL["function"], "strict": True}}]},
    "offered": {"tools": [TOOL]},
}


def call(name, arguments):
    return {"tool_calls": [{"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}]}


WRONG = {"format": "Rome", "tool": "Rome", "strict": call("find", '{"city": 1}'), "offered": call("find", "Infinity")}
RIGHT = '{"city": "Rome"}'
STREAMED = """
import json, os, urllib.request
body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}], **FIELDS}).encode()
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
urllib.request.urlopen(request).read()
raise ValueError("no answer")
"""
MISSED = ("truncated", "policy", 0.0, ["missed_form"])
OWN = ("failed", "user", None, [])


def make_agent(kind, *, more=None, raises=True):
    async def agent(_task, _rollout):
        async with openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none") as client:
            for fields in (FORCED[kind], *([] if more is None else [more])):
                await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], **fields)
        if raises:
            raise ValueError("no answer")
        return 1.0

    return agent


def make_command(kind):
    return [sys.executable, "-c", STREAMED.replace("FIELDS", repr(FORCED[kind]))]


ENDINGS = {
    **{f"{kind} missed": (make_agent(kind), WRONG[kind], MISSED) for kind in FORCED},
    "missed, streamed, by a command": (make_command("tool"), WRONG["tool"], MISSED),
    "kept": (make_agent("format"), RIGHT, OWN),
    "offered and kept": (make_agent("offered"), call("find", RIGHT), OWN),
    "goes on": (make_agent("format", raises=False), "Rome", ("completed", None, 1.0, [])),
    "fails later": (make_agent("format", more={}), "Rome", OWN),
}


@pytest.mark.parametrize(("agent", "answer", "ending"), ENDINGS.values(), ids=ENDINGS)
async def test_who_fails_on_an_answer_without_its_form_fails_because_of_the_policy(
    harness, task, until, agent, answer, ending
):
    harness.engine.script = lambda _: answer

    async with harness.worker(agent):
        harness.dispatcher.submit([task(calls_optional=False)], group_size=2)
        await until(lambda: any(row.status == ending[0] for row in harness.store.query().items))

    trajectory = harness.store.get(harness.store.query(order="oldest").items[0].trajectory_id)
    outcome = trajectory.outcome
    assert (outcome.status, outcome.cause, trajectory.reward, outcome.findings) == ending
    assert is_overlong(trajectory) is False
