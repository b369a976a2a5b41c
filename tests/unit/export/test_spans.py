import json

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, server_attributes

from agent_layer import otel_names as names
from agent_layer.export.spans import make_trace
from agent_layer.schema.trajectory import assemble_trajectory

from ...builders import attempt_with_everything


@pytest.fixture
def trajectory():
    return assemble_trajectory("x.0-0", attempt_with_everything("x.0-0"))


def span_named(trace, name):
    (found,) = [span for span in trace.spans if span.name == name]
    return found


def read_calls(trace):
    return [span for span in trace.spans if span.attributes[names.OPERATION] == names.CHAT]


def test_an_attempt_its_agents_calls_and_tools_are_spans(trajectory):
    trace = make_trace(trajectory)

    titles = [span.name for span in trace.spans]
    root, critic = trace.spans[0], span_named(trace, "invoke_agent critic")
    assert titles == ["invoke_agent solver", "invoke_agent critic", "chat policy", "chat policy", "execute_tool look"]
    assert [span.parent_id for span in read_calls(trace)] == [root.span_id, critic.span_id]
    assert (critic.parent_id, span_named(trace, "execute_tool look").parent_id) == (root.span_id, root.span_id)
    assert len({span.span_id for span in trace.spans}) == 5


def test_an_attempt_hangs_in_the_trace_that_it_began_in(trajectory):
    trace = make_trace(trajectory)

    assert (trace.trace_id, trace.state) == (trajectory.started.trace.trace_id, "vendor=1")
    assert trace.spans[0].parent_id == trajectory.started.trace.span_id


def test_a_call_says_what_the_conventions_ask_for(trajectory):
    call = read_calls(make_trace(trajectory))[0]

    assert call.span_id == "00f067aa0ba902b7"
    assert call.is_client
    assert call.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "policy",
        "gen_ai.response.model": "policy",
        "gen_ai.request.temperature": 0.7,
        "gen_ai.request.stop_sequences": ["END"],
        "gen_ai.request.seed": 5,
        "gen_ai.response.finish_reasons": ["tool_calls"],
        "gen_ai.usage.input_tokens": 2,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.agent.name": "solver",
        "gen_ai.conversation.id": "x.0-0",
        "server.address": "127.0.0.1",
        "server.port": 8000,
        "agent_layer.trajectory_id": "x.0-0",
        "agent_layer.call_id": "x.0-0.a",
        "agent_layer.step": 0,
        "agent_layer.role": "policy",
        "agent_layer.capture_level": "tokens",
        "agent_layer.policy_versions": [2],
    }


def test_the_choices_of_a_call_are_one_span(trajectory):
    call = read_calls(make_trace(trajectory, contents=True))[1]

    assert (call.attributes["agent_layer.step"], call.attributes["gen_ai.request.choice.count"]) == (1, 2)
    assert call.attributes["gen_ai.response.finish_reasons"] == ["stop", "stop"]
    answers = json.loads(call.attributes["gen_ai.output.messages"])
    assert [answer["parts"][0]["content"] for answer in answers] == ["yes", "no"]


def test_what_was_said_travels_only_when_it_is_asked_for(trajectory):
    fields = {key for span in make_trace(trajectory).spans for key in span.attributes}
    call = read_calls(make_trace(trajectory, contents=True))[0]
    tool = span_named(make_trace(trajectory, contents=True), "execute_tool look")

    assert not fields & {names.INPUT_MESSAGES, names.OUTPUT_MESSAGES, names.TOOL_ARGUMENTS, names.TOOL_RESULT}
    assert json.loads(call.attributes[names.INPUT_MESSAGES])[1] == {
        "role": "user",
        "parts": [{"type": "text", "content": "what"}],
    }
    assert json.loads(call.attributes[names.OUTPUT_MESSAGES])[0]["parts"] == [
        {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"a": 1}}
    ]
    assert json.loads(call.attributes[names.TOOL_DEFINITIONS])[0]["function"]["name"] == "look"
    assert (tool.attributes[names.TOOL_ARGUMENTS], tool.attributes[names.TOOL_RESULT]) == ('{"a":1}', "found it")


def test_token_arrays_stay_at_home(trajectory):
    for span in make_trace(trajectory, contents=True).spans:
        assert "logprobs" not in str(span.attributes)
        assert all(len(value) < 3 for value in span.attributes.values() if isinstance(value, list))


def test_rewards_are_evaluations_of_what_they_judge(trajectory):
    trace = make_trace(trajectory)

    (found,), (form,) = trace.spans[0].events, read_calls(trace)[0].events
    assert found.name == form.name == "gen_ai.evaluation.result"
    assert (found.attributes[names.EVALUATION_NAME], found.attributes[names.EVALUATION_SCORE]) == ("found", 1.0)
    assert (form.attributes[names.EVALUATION_NAME], form.attributes[names.STEP]) == ("format", 0)
    assert (trace.spans[0].attributes[names.REWARD], trace.spans[0].attributes[names.ACCEPTED]) == (1.0, True)


def test_the_same_attempt_gives_the_same_spans(trajectory):
    again = assemble_trajectory("x.0-0", reversed(attempt_with_everything("x.0-0")))

    assert make_trace(again, contents=True) == make_trace(trajectory, contents=True)


def test_an_attempt_that_still_runs_ends_with_what_is_there():
    records = attempt_with_everything("x.0-0")
    running = assemble_trajectory("x.0-0", records[:6])

    root, call = make_trace(running).spans
    assert (root.ended_at, call.ended_at, call.attributes.get(names.FINISH_REASONS)) == (102.0, 102.0, ["tool_calls"])


@pytest.mark.parametrize("name", [name for name in vars(names) if name.isupper() and name != "SAMPLING"])
def test_names_that_are_not_ours_are_those_of_the_conventions(name):
    value = getattr(names, name)
    known = {**vars(gen_ai_attributes), **vars(error_attributes), **vars(server_attributes)}
    if name in ("CHAT", "EXECUTE_TOOL", "INVOKE_AGENT"):
        assert value in [one.value for one in gen_ai_attributes.GenAiOperationNameValues]
    elif name != "EVALUATION_EVENT" and not value.startswith("agent_layer."):
        assert value in known.values()


def test_sampling_has_the_names_of_the_conventions():
    assert set(names.SAMPLING.values()) <= set(map(str, vars(gen_ai_attributes).values()))
