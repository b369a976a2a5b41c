"""Real foreign instrumentations are understood, each in a process of its own."""

import json
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest

from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.schema.codec import decode
from agent_layer.schema.trajectory import assemble_trajectory

from ...waiting import run

AGENT = Path(__file__).parent / "instrumented.py"
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":"x"}'}}


def answer(prompt):
    if prompt.turn == 0:
        return {"role": "assistant", "content": None, "tool_calls": [CALL]}
    return f"forty two {prompt.choice}"


@pytest.fixture(scope="module")
def trace_agent(serve_receiver):
    """``trace_agent(name)``: let the agent run once under an instrumentation; gives its trajectory and the calls."""

    @cache
    def trace_agent(name):
        with serve_receiver() as receiver, serve_in_thread(ScriptedEngine(script=answer)) as engine:
            done = run([sys.executable, AGENT, name, engine.url, receiver.url, receiver.key], 200)
            assert done.returncode == 0, done.stderr
            return receiver.log.trajectory, engine.calls

    return trace_agent


@pytest.fixture(params=["openinference", "openllmetry", "genai"])
def trajectory(request, trace_agent):
    return trace_agent(request.param)[0]


def read_messages(trajectory, step):
    return [json.loads(trajectory.contents[key]) for key in step.state.messages]


def test_every_call_of_a_real_instrumentation_is_a_step(trajectory):
    first, *choices, streamed, refused = trajectory.steps

    assert [step.action.message["content"] for step in (*choices, streamed)] == [
        "forty two 0",
        "forty two 1",
        "forty two 0",
    ]
    assert [(step.status, step.capture_level, step.sources) for step in trajectory.steps[:-1]] == [
        ("ok", "text", ["otel"])
    ] * 4
    assert (refused.status, refused.action.message, refused.model) == ("error", None, "nobody")
    assert "does not exist" in refused.error
    assert first.action.finish_reason == "tool_calls"
    (call,) = first.action.message["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("c1", "look")
    assert json.loads(call["function"]["arguments"]) == {"a": "x"}


def test_what_was_asked_is_there_as_it_was_asked(trajectory):
    first, second, *_ = trajectory.steps

    request = read_messages(trajectory, second)
    assert read_messages(trajectory, first) == request[:2]
    assert request[:2] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "what"}]
    assert request[2]["tool_calls"][0]["id"] == "c1"
    assert request[3] == {"role": "tool", "tool_call_id": "c1", "content": "found it"}
    assert (first.sampling_asked["temperature"], first.sampling_asked["max_tokens"]) == (0.5, 7)
    assert (first.model, first.usage.prompt_tokens > 0, first.usage.response_tokens) == ("scripted", True, 6)


def test_the_trace_is_the_trajectory(trajectory):
    started, outcome = trajectory.started, trajectory.outcome

    assert trajectory.trajectory_id == f"trace.{started.trace.trace_id}-0"
    assert (started.task_id, started.task_type, outcome.status) == ("shop", "otel", "completed")
    assert started.started_at <= trajectory.steps[0].started_at <= outcome.ended_at
    assert trajectory.accepted is None
    assert [step.findings for step in trajectory.steps] == [[]] * 5


def test_openllmetry_tells_the_server_its_spans_so_that_gateway_and_span_are_one_step(trace_agent):
    trajectory, calls = trace_agent("openllmetry")

    reported = [call.headers["traceparent"].split("-")[2] for call in calls]
    assert reported == [step.span_id for step in trajectory.steps if step.choice == 0][: len(reported)]


def test_our_tracer_and_another_instrumentation_together_make_each_step_once(serve_receiver, tmp_path):
    recorded = tmp_path / "records"
    script = AGENT.with_name("twice_traced.py")
    with serve_receiver() as receiver, serve_in_thread(ScriptedEngine()) as engine:
        done = run([sys.executable, script, engine.url, receiver.url, receiver.key, recorded], 200)
        assert done.returncode == 0, done.stderr
        reported = receiver.log.records
    ours = [decode(one) for one in msgspec.msgpack.decode(recorded.read_bytes())]

    trajectory = assemble_trajectory(ours[0].trajectory_id, [*ours, *reported])
    assert {record.trajectory_id for record in reported} == {trajectory.trajectory_id}
    assert [step.sources for step in trajectory.steps] == [["hook", "otel"]] * 2
    assert [step.action.message["content"] for step in trajectory.steps] == ["you said: one", "you said: two"]
