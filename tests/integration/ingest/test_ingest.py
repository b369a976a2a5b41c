"""The span receiver's promises to senders."""

import gzip
import json

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse as Response

from agent_layer.errors import BackPressureError
from agent_layer.export.otlp import OtlpSender
from agent_layer.export.spans import make_trace
from agent_layer.schema.trajectory import assemble_trajectory

TRACE, ROOT, CALL, TOOL = "0af7651916cd43dd8448eb211c80319c", "00000000000000a0", "00000000000000a1", "00000000000000a2"


def pair(key, value):
    kind = {str: "stringValue", int: "intValue", float: "doubleValue", bool: "boolValue"}[type(value)]
    return {"key": key, "value": {kind: str(value) if kind == "intValue" else value}}


def span(span_id, name, began_at, ended_at, parent=ROOT, trace=TRACE, **attributes):
    fields = {key.replace("__", "."): value for key, value in attributes.items()}
    times = {"startTimeUnixNano": str(began_at * 10**9), "endTimeUnixNano": str(ended_at * 10**9)}
    place = {"traceId": trace, "spanId": span_id, "parentSpanId": parent or "", "name": name}
    return place | times | {"attributes": [pair(*one) for one in fields.items()]}


def user_message(text):
    return json.dumps([{"role": "user", "parts": [{"type": "text", "content": text}]}])


def chat(span_id=CALL, text="hi", **options):
    answer = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c9", "name": "look", "arguments": {}}]}
    attributes = {"gen_ai__operation__name": "chat", "gen_ai__request__model": "m"}
    attributes |= {"gen_ai__input__messages": user_message(text), "gen_ai__output__messages": json.dumps([answer])}
    return span(span_id, "chat m", 10, 11, **(attributes | options))


def tool(**options):
    attributes = {
        "gen_ai__operation__name": "execute_tool",
        "gen_ai__tool__name": "look",
        "gen_ai__tool__call__id": "c9",
    }
    return span(TOOL, "execute_tool look", 12, 13, **attributes, gen_ai__tool__call__result="found", **options)


def root(**options):
    attributes = {"gen_ai__operation__name": "invoke_agent", "gen_ai__agent__name": "solver"}
    return span(ROOT, "invoke_agent solver", 9, 14, None, **attributes, **options)


def make_request(*spans):
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def send(receiver, *spans, **headers):
    status, body = receiver.post(make_request(*spans), "application/json", **headers)
    assert status == 200, body
    return json.loads(body)


def test_a_trace_becomes_an_attempt_with_step_observation_and_end(receiver):
    assert send(receiver, chat(), tool(), root()) == {}

    trajectory = receiver.log.trajectory
    (step,), (observation,) = trajectory.steps, trajectory.observations
    assert trajectory.trajectory_id == f"trace.{TRACE}-0"
    assert (step.call_id, step.agent, step.model, step.trace_id, step.parent_span_id) == (
        CALL,
        "solver",
        "m",
        TRACE,
        ROOT,
    )
    assert (observation.name, observation.output, observation.call_id, observation.duration_seconds) == (
        "look",
        "found",
        CALL,
        1.0,
    )
    assert (trajectory.started.started_at, trajectory.outcome.status, trajectory.outcome.ended_at) == (
        9.0,
        "completed",
        14.0,
    )


def test_the_same_spans_again_change_nothing(receiver):
    send(receiver, chat(), tool(), root())
    once = receiver.log.trajectory

    send(receiver, chat(), tool(), root())

    assert receiver.log.trajectory == once


def test_spans_may_come_in_pieces_and_in_any_order(receiver):
    send(receiver, tool())
    send(receiver, chat())
    send(receiver, root())

    trajectory = receiver.log.trajectory
    assert (len(trajectory.steps), len(trajectory.observations)) == (1, 1)
    assert (trajectory.started.started_at, trajectory.outcome.status) == (9.0, "completed")


def test_a_session_holds_many_traces_and_has_no_end(receiver):
    other = TRACE[::-1]
    send(receiver, chat(session__id="s 1"), root())
    send(receiver, chat("00000000000000b1", trace=other, parent=None, session__id="s 1"))

    trajectory = receiver.log.trajectory
    assert [step.trace_id for step in trajectory.steps] == [TRACE, other]
    assert trajectory.outcome is None


@pytest.mark.parametrize("name", ["agent_layer__rollout", "agent_layer__trajectory_id"])
def test_a_span_may_name_the_attempt_that_its_trace_belongs_to(receiver, name):
    send(receiver, chat(), tool(), root(**{name: "guess.1.0-0"}))

    trajectory = receiver.log.trajectory
    assert trajectory.trajectory_id == "guess.1.0-0"
    assert (trajectory.started, trajectory.outcome) == (None, None)
    assert (len(trajectory.steps), len(trajectory.observations)) == (1, 1)


def test_a_header_may_name_the_attempt_for_a_whole_request(receiver):
    send(receiver, chat(), **{"x-agent-layer-rollout": "guess.1.0-0"})

    assert receiver.log.trajectory.trajectory_id == "guess.1.0-0"
    assert receiver.post(make_request(chat()), "application/json", **{"x-agent-layer-rollout": "??"})[0] == 400


def test_spans_of_anything_else_are_passed_over(receiver):
    assert send(receiver, span(CALL, "GET /", 1, 2, http__request__method="GET")) == {}
    assert receiver.log.records == []


def test_what_cannot_be_stored_is_rejected_and_the_rest_is_taken(receiver):
    too_long = [{"role": "user", "parts": []}, {"role": "assistant", "parts": [{"type": "tool_call", "arguments": 1}]}]
    sampling = chat("00000000000000b2", gen_ai__request__seed=1 << 70)
    nowhere = chat("00000000000000b3", agent_layer__rollout="no trajectory", trace=TRACE[::-1])

    partial = send(receiver, chat(text=json.dumps(too_long)), chat("0" * 16), chat("x" * 16), sampling, nowhere)[
        "partialSuccess"
    ]

    assert partial["rejectedSpans"] == "4"
    assert "expected hexadecimal ids of 8 and 16 bytes" in partial["errorMessage"]
    assert len(receiver.log.trajectory.steps) == 1


@pytest.fixture
def exported(receiver, make_attempt, monkeypatch):
    """An attempt that was sent to the receiver by our own export, contents included."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-api-key={receiver.key}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    trajectory = assemble_trajectory("x.0-0", make_attempt("x.0-0"))
    OtlpSender(receiver.url, "test", 5.0).send([make_trace(trajectory, contents=True)])
    return trajectory


def test_our_own_export_comes_back_as_the_same_steps(receiver, exported):
    found = receiver.log.trajectory

    for step, sent in zip(found.steps, exported.steps, strict=True):
        assert (step.call_id, step.choice, step.index, step.agent) == (
            sent.call_id,
            sent.choice,
            sent.index,
            sent.agent,
        )
        assert (step.action.message, step.action.finish_reason) == (sent.action.message, sent.action.finish_reason)
        assert _messages(found, step) == _messages(exported, sent)
        assert (step.status, step.usage, step.role, step.started_at) == (
            sent.status,
            sent.usage,
            sent.role,
            sent.started_at,
        )
    assert [one.output for one in found.observations] == [one.output for one in exported.observations]
    assert found.observations[0].call_id == exported.observations[0].call_id


def test_spans_of_calls_that_the_gateway_captured_add_nothing(receiver, exported, make_attempt):
    together = assemble_trajectory("x.0-0", [*make_attempt("x.0-0"), *receiver.log.records])

    assert [step.sources for step in together.steps] == [["gateway", "otel"]] * 3
    assert [step.action.response_token_ids for step in together.steps] == [
        step.action.response_token_ids for step in exported.steps
    ]
    assert len(together.observations) == 1


def test_protobuf_is_answered_in_protobuf(receiver):
    status, answer = receiver.post(b"")

    assert (status, Response.FromString(answer)) == (200, Response())


def _messages(trajectory, step):
    return [json.loads(trajectory.contents[key]) for key in step.state.messages]


@pytest.mark.parametrize("content_type", ["application/json", "application/x-protobuf"])
def test_a_body_that_is_none_is_refused_in_a_sentence(receiver, content_type):
    status, body = receiver.post(b"\xff nonsense", content_type)

    assert status == 400
    assert b"check the exporter" in body


def test_only_who_has_a_key_may_send(receiver):
    assert receiver.post(make_request(chat()), "application/json", key="guess")[0] == 401
    bearer = {"authorization": f"Bearer {receiver.key}"}
    assert receiver.post(make_request(chat()), "application/json", key="", **bearer)[0] == 200


def test_bodies_have_a_limit_also_when_they_are_unpacked(receiver):
    body = make_request(chat(text="x" * (2 << 20)))

    assert receiver.post(body, "application/json")[0] == 413
    assert receiver.post(gzip.compress(body), "application/json", **{"content-encoding": "gzip"})[0] == 413
    assert receiver.post(b"", "text/plain")[0] == 415


def test_a_full_log_is_said_so_that_the_sender_tries_again(receiver):
    taken = receiver.log.append

    def refuse(*_):
        raise BackPressureError("log: expected room, found none")

    receiver.log.append = refuse
    assert receiver.post(make_request(chat()), "application/json")[0] == 503
    receiver.log.append = taken
    send(receiver, chat())
    assert len(receiver.log.trajectory.contents) == 1


def test_parents_in_a_ring_lead_nowhere(receiver):
    send(receiver, chat(CALL, parent=TOOL), chat(TOOL, parent=CALL))

    assert {step.agent for step in receiver.log.trajectory.steps} == {None}


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]], ids=str)
def test_a_trajectory_has_its_start_and_outcome_in_whatever_order_its_spans_come(receiver, order):
    spans = [root(), chat(), tool()]
    for at in order:
        send(receiver, spans[at])

    (trajectory_id,) = {one.trajectory_id for one in receiver.log.records}
    whole = assemble_trajectory(trajectory_id, receiver.log.records)
    assert (whole.outcome.status, whole.outcome.ended_at, whole.started.started_at) == ("completed", 14.0, 9.0)
    assert (len(whole.steps), len(whole.observations)) == (1, 1)
