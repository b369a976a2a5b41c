"""This file holds the promise of ``agent-layer ingest``: what it has taken is in the store, also after kill -9."""

import json
import os
import subprocess
import sys
from urllib.request import Request, urlopen

import pytest

from agent_layer.store import open_store

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def ingest(settings):
    """The receiver as a process: (process, address, key)."""
    command = [sys.executable, "-m", "agent_layer.cli", "ingest", "--port", "0"]
    environment = {**os.environ, **settings.environment()}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        told = dict(process.stdout.readline().removeprefix("export ").strip().split("=", 1) for _ in range(2))
        key = told["OTEL_EXPORTER_OTLP_HEADERS"].removeprefix("x-api-key=")
        yield process, told["OTEL_EXPORTER_OTLP_ENDPOINT"], key
        process.kill()


def attribute(key, value):
    return {"key": key, "value": {"stringValue": value}}


def call(number):
    said = [{"role": "user", "parts": [{"type": "text", "content": f"question {number}"}]}]
    return {
        "traceId": TRACE,
        "spanId": f"{number + 1:016x}",
        "name": "chat m",
        "startTimeUnixNano": str(10**18 + number),
        "endTimeUnixNano": str(10**18 + number + 5),
        "attributes": [
            attribute("gen_ai.operation.name", "chat"),
            attribute("gen_ai.input.messages", json.dumps(said)),
        ],
    }


def test_what_was_taken_outlives_the_receiver(ingest, settings, wait_until):
    process, address, key = ingest
    for number in range(20):
        body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [call(number)]}]}]}).encode()
        headers = {"content-type": "application/json", "x-api-key": key}
        with urlopen(Request(f"{address}/v1/traces", body, headers), timeout=10) as answer:
            assert answer.status == 200
    process.kill()

    store = open_store(settings)
    wait_until(lambda: [row.num_steps for row in store.query().items] == [20], 30)
    steps = store.get(f"trace.{TRACE}-0").steps
    assert [step.call_id for step in steps] == [f"{number + 1:016x}" for number in range(20)]
