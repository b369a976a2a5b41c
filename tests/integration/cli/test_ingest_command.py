"""``agent-layer ingest``: what it accepted is in the store, also after kill -9.

It accepts spans once they are in its log, and logs of other machines once they are committed.
"""

import json
import os
import sys
from urllib.request import Request, urlopen

import pytest

from agent_layer.cli.services.doctor import diagnose
from agent_layer.errors import BadInputError
from agent_layer.settings import Settings
from agent_layer.store import open_store

from ...waiting import run, scaled

AGENT = """
import tracer
tracer.init()
with tracer.rollout(task="t1", task_type="math") as rollout:
    rollout.reward(1.0)
print(rollout.trajectory_id, tracer.flush().pending)
"""

TRACE = "0af7651916cd43dd8448eb211c80319c"


def attribute(key, value):
    return {"key": key, "value": {"stringValue": value}}


def call(number):
    spoken = [{"role": "user", "parts": [{"type": "text", "content": f"question {number}"}]}]
    return {
        "traceId": TRACE,
        "spanId": f"{number + 1:016x}",
        "name": "chat m",
        "startTimeUnixNano": str(10**18 + number),
        "endTimeUnixNano": str(10**18 + number + 5),
        "attributes": [
            attribute("gen_ai.operation.name", "chat"),
            attribute("gen_ai.input.messages", json.dumps(spoken)),
        ],
    }


def test_what_was_taken_outlives_the_receiver(start_ingest, settings, wait_until):
    ingest = start_ingest(settings)
    address = ingest.exports["OTEL_EXPORTER_OTLP_ENDPOINT"]
    key = ingest.exports["OTEL_EXPORTER_OTLP_HEADERS"].removeprefix("x-api-key=")
    for number in range(20):
        body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [call(number)]}]}]}).encode()
        headers = {"content-type": "application/json", "x-api-key": key}
        with urlopen(Request(f"{address}/v1/traces", body, headers), timeout=scaled(60)) as answer:
            assert answer.status == 200
    ingest.kill()

    store = open_store(settings)
    wait_until(lambda: [row.num_steps for row in store.query().items] == [20])
    steps = store.get(f"trace.{TRACE}-0").steps
    assert [step.call_id for step in steps] == [f"{number + 1:016x}" for number in range(20)]


def test_a_tracer_that_knows_neither_redis_nor_objects_is_in_the_store_after_its_flush(
    start_ingest, machine, settings, tmp_path
):
    worker = machine(start_ingest(settings))
    strange = ("AGENT_LAYER_", "AWS_", "REDIS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
    done = run([sys.executable, "-c", AGENT], env=environment | worker.environment(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    trajectory_id, pending = done.stdout.split()

    assert pending == "0"
    store = open_store(settings)
    (row,) = store.query(task="t1").items
    assert (row.trajectory_id, row.reward, row.status) == (trajectory_id, 1.0, "completed")
    assert [reward.score for reward in store.get(trajectory_id).rewards] == [1.0]
    assert store.admin.check().findings == []
    assert not (worker.dir / "redis").exists()
    assert not (worker.dir / "objects").exists()


def test_who_asks_for_the_index_where_logs_only_leave_is_told_whose_it_is(settings):
    worker = Settings(dir=settings.dir, ingest_url="http://127.0.0.1:9", ingest_key="key")

    with pytest.raises(BadInputError, match="AGENT_LAYER_REDIS_URL beside AGENT_LAYER_INGEST_URL"):
        open_store(worker)


def test_the_doctor_looks_at_ingest_and_not_for_a_store(start_ingest, machine, settings):
    worker = machine(start_ingest(settings))

    found = {one.subject: one.state for one in diagnose(worker)}

    assert (found["ingest"], found["redis"], found["objects"]) == ("ok", "note", "note")
    assert not (worker.dir / "objects").exists()
