"""``export otlp``: everything arrives, and spans that the endpoint refuses stay in the store."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial

import pytest

from agent_layer.errors import UnreachableError
from agent_layer.export.otlp import OtlpSender
from agent_layer.export.spans import make_trace
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store import open_store

from ...stored import write_segment
from ...waiting import wait_for_exit


@pytest.fixture
def record(settings, make_attempt):
    """``record("x.0-0", …)``: puts attempts into the store."""

    def record(*trajectory_ids):
        for number, trajectory_id in enumerate(trajectory_ids):
            write_segment(open_store(settings), *make_attempt(trajectory_id, at=100.0 + number))

    return record


@pytest.fixture
def export(agent_layer):
    """``export("--run", "r")``: (exit status, stdout, stderr) of ``export otlp``."""
    return partial(agent_layer, "export", "otlp")


def test_stored_attempts_arrive_as_spans(record, export, collector):
    record("x.0-0", "x.1-0")

    status, out, err = export("--endpoint", collector.url)

    assert (status, out) == (0, "2 trajectories, 10 spans sent\n"), err
    assert sorted(set(collector.names)) == [
        "chat policy",
        "execute_tool look",
        "invoke_agent critic",
        "invoke_agent solver",
    ]
    root = next(span for span in collector.spans if span.name == "invoke_agent solver")
    assert root.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert (root.parent_span_id.hex(), root.trace_state) == ("b7ad6b7169203331", "vendor=1")


def test_the_endpoint_may_stand_in_open_telemetrys_own_variable(record, export, collector, monkeypatch):
    record("x.0-0")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)

    assert export()[0] == 0
    assert len(collector.spans) == 5


def test_without_an_endpoint_there_is_one_sentence(export):
    status, _, err = export()

    assert status == 2
    assert "give --endpoint" in err


def test_an_endpoint_that_takes_nothing_costs_nothing_of_the_record(record, export, collector, settings):
    record("x.0-0", "x.1-0")
    collector.status = 400

    status, _, err = export("--endpoint", collector.url)

    assert (status, collector.spans) == (2, [])
    assert "nothing of the store is lost" in err
    assert open_store(settings).admin.check().is_sound
    collector.status = 200
    assert export("--endpoint", collector.url)[0] == 0
    assert len(collector.spans) == 10


def test_a_closed_port_is_an_error_of_ours(make_attempt):
    trajectory = assemble_trajectory("x.0-0", make_attempt("x.0-0"))

    with pytest.raises(UnreachableError, match="expected it to take 5 spans"):
        OtlpSender("http://127.0.0.1:9", "test", 0.3).send([make_trace(trajectory)])


@pytest.fixture
def follow(collector, settings):
    """``with follow() as exporter``: ``export otlp --follow`` as a process; killed if it does not end by itself."""

    @contextmanager
    def follow():
        command = [sys.executable, "-m", "agent_layer.cli", "export", "otlp", "--follow", "--endpoint", collector.url]
        environment = {**os.environ, **settings.environment()}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as exporter:
            try:
                yield exporter
            finally:
                exporter.kill()

    return follow


def test_following_goes_on_after_an_outage_and_later_where_it_was(record, collector, settings, follow, wait_until):
    store = open_store(settings)
    record("x.0-0")
    with follow() as exporter:
        wait_until(lambda: len(collector.spans) >= 5)
        collector.status = 400
        record("x.1-0")
        wait_until(lambda: collector.num_requests > 1)
        assert len(collector.spans) == 5
        collector.status = 200
        wait_until(lambda: len(collector.spans) >= 10)
        (newest, _), *_ = store.redis.xrevrange(store.keys.events, count=1)
        wait_until(lambda: store.redis.get(store.keys.exported("otlp")) == newest)
        exporter.send_signal(signal.SIGINT)
        assert wait_for_exit(exporter) == 0

    with follow() as exporter:
        record("x.2-0")
        wait_until(lambda: len(collector.spans) >= 15)
        exporter.send_signal(signal.SIGTERM)
        assert wait_for_exit(exporter) == 0

    assert len(collector.spans) == 15
