"""What the receiver of spans makes of senders that are broken or mean no good: a sentence, and the rest is taken."""

import json

import pytest

TRACE = "0af7651916cd43dd8448eb211c80319c"


def call(span_id="00000000000000a1", **fields):
    reported = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    pairs = [{"key": name, "value": {"stringValue": value}} for name, value in reported.items()]
    span = {"traceId": TRACE, "spanId": span_id, "name": "chat m", "attributes": pairs}
    return span | {"startTimeUnixNano": "10000000000", "endTimeUnixNano": "11000000000"} | fields


def with_attribute(name, value):
    return call(attributes=[*call()["attributes"], {"key": name, "value": value}])


def send(receiver, *spans, **headers):
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    return receiver.post(body, "application/json", **headers)


@pytest.mark.parametrize("began_at", ["-1", "9" * 20])
def test_a_span_of_no_time_is_rejected_and_the_rest_is_taken(receiver, began_at):
    status, answer = send(receiver, call(startTimeUnixNano=began_at), call("00000000000000a2"))

    assert (status, json.loads(answer)["partialSuccess"]["rejectedSpans"]) == (200, "1")
    assert b"times between 1970 and 3000" in answer
    assert receiver.log.records


def test_numbers_without_end_are_refused_in_a_sentence(receiver):
    number = "9" * 5000
    for span in (call(endTimeUnixNano=number), with_attribute("gen_ai.usage.input_tokens", {"intValue": number})):
        status, answer = send(receiver, span)

        assert (status, b"check the exporter" in answer) == (400, True)
    assert receiver.log.records == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"resourceSpans": [{"x\xff": 1}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "\xff", "spanId": "a"}]}]}]}',
        b'{"resourceSpans": [{"resource": {"attributes": [{"key": "\xc3\x28"}]}}]}',
    ],
)
def test_json_that_is_no_text_is_refused_in_a_sentence(receiver, body):
    status, answer = receiver.post(body, "application/json")

    assert (status, b"check the exporter" in answer) == (400, True)


def test_more_values_than_a_process_can_bear_are_refused(receiver):
    values = b'{"arrayValue":{"values":[%b{}]}}' % (b"{}," * 110_000)
    body = b'{"resourceSpans":[{"resource":{"attributes":[{"key":"a","value":%b}]}}]}' % values

    status, answer = receiver.post(body, "application/json")

    assert (status, b"AGENT_LAYER_MAX_BODY_VALUES" in answer) == (400, True)


def test_values_that_are_nested_without_end_are_refused_in_a_sentence(receiver):
    deep = b'{"arrayValue":{"values":[' * 3000 + b"{}" + b"]}}" * 3000
    body = b'{"resourceSpans":[{"resource":{"attributes":[{"key":"a","value":' + deep + b"}]}}]}"

    status, answer = receiver.post(body, "application/json")

    assert (status, b"AGENT_LAYER_MAX_BODY_DEPTH" in answer) == (400, True)


@pytest.mark.parametrize("depth", [400, 900, 100_000])
def test_json_in_an_attribute_may_be_nested_without_end(receiver, depth):
    text = {"stringValue": "[" * depth + "]" * depth}

    status, _ = send(receiver, with_attribute("gen_ai.input.messages", text), call("00000000000000a2"))

    assert status == 200
    assert receiver.log.records


def test_a_number_in_a_name_may_be_long(receiver):
    name = f"llm.input_messages.{'9' * 5000}.message.role"

    assert send(receiver, with_attribute(name, {"stringValue": "user"}))[0] == 200


def test_a_body_that_is_not_packed_as_it_says_is_refused_in_a_sentence(receiver):
    status, answer = receiver.post(b"no gzip", "application/json", **{"content-encoding": "gzip"})

    assert (status, b"check the exporter" in answer) == (400, True)


@pytest.mark.parametrize(
    ("service", "task"),
    [("my shop/cart", "my-shop-cart"), ("unknown_service:python", "unknown_service:python"), ("—", "otel")],
)
def test_a_service_of_any_name_is_a_task_that_can_be_asked_for(receiver, service, task):
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [call()]}]}]}

    assert receiver.post(json.dumps(body).encode(), "application/json")[0] == 200
    assert receiver.log.trajectory.started.task_id == task
