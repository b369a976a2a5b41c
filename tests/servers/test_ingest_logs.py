"""Logs that machines without access to the store send over HTTP: committed, in few segments, once each is answered."""

import gzip
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest
import zstandard

from agent_layer.errors import UnreachableError
from agent_layer.recorder import Recorder
from agent_layer.recorder.frames import frame
from agent_layer.schema.codec import encode
from agent_layer.schema.ids import new_id
from agent_layer.schema.rollout import AttemptStarted
from agent_layer.shipper.remote import RemoteDestination
from agent_layer.shipper.ship import Shipper
from agent_layer.store import open_store

from ..waiting import scaled

NUM_MACHINES = 8


def started(number: int) -> AttemptStarted:
    return AttemptStarted(
        trajectory_id=f"r.{number}-0", rollout_id=f"r.{number}", attempt=0, run="r", task_id="t", started_at=1.0
    )


def ship(settings) -> int:
    """One round of shipping of one machine, in this process."""
    with closing(Shipper(settings.log_dir, RemoteDestination(settings), threading.Event())) as shipper:
        return shipper.ship_pending()


def list_logs(settings) -> list[str]:
    return [path.name for path in settings.log_dir.glob("*-*.*")]


def test_logs_of_many_machines_become_few_segments(objects_settings, start_ingest, machine):
    waits = {"ingest_roll_seconds": scaled(1.0), "ingest_seconds": scaled(30.0)}
    ingest = start_ingest(objects_settings.model_copy(update=waits))
    machines = [machine(ingest, f"worker-{number}", retry_seconds=scaled(60.0)) for number in range(NUM_MACHINES)]
    with ExitStack() as cleanup:
        for number, settings in enumerate(machines):
            recorder = Recorder(settings)
            cleanup.callback(recorder.close)
            recorder.append(started(number))
    pool = ThreadPoolExecutor(NUM_MACHINES)

    assert list(pool.map(ship, machines)) == [1] * NUM_MACHINES

    store = open_store(objects_settings)
    assert {row.trajectory_id for row in store.query(run="r").items} == {f"r.{n}-0" for n in range(NUM_MACHINES)}
    assert not any(list_logs(settings) for settings in machines)
    assert len(list(store.objects.list(""))) <= NUM_MACHINES / 2
    assert store.admin.check().findings == []


PACKED = (
    (bytes, {}),
    (gzip.compress, {"content-encoding": "gzip"}),
    (zstandard.ZstdCompressor().compress, {"content-type": "application/zstd"}),
)


def test_a_log_may_be_packed(settings, start_ingest):
    ingest = start_ingest(settings)

    for number, (pack, headers) in enumerate(PACKED):
        request = urllib.request.Request(
            f"{ingest.url}/v1/logs/{settings.namespace}/{new_id()}-host-1",
            pack(frame(encode(started(2 * number))) + frame(encode(started(2 * number + 1)))),
            {"authorization": f"Bearer {ingest.key}"} | headers,
        )
        with urllib.request.urlopen(request, timeout=scaled(30)) as answer:
            assert answer.status == 200

    assert {row.rollout_id for row in open_store(settings).query(run="r").items} == {f"r.{n}" for n in range(6)}


def test_decisions_are_carried_by_the_server(settings, redis, keys, start_ingest, wait_until):
    start_ingest(settings)
    fields = {"trajectory_id": "g.0-1", "rollout_id": "g.0", "group_id": "g", "run": "r", "at": "5.5"}
    redis.xadd(keys.outbox, {"kind": "accepted", **fields})

    wait_until(lambda: redis.xlen(keys.outbox) == 0)
    assert open_store(settings).row("g.0-1").accepted


def test_logs_travel_over_tls_to_a_server_whose_certificate_is_trusted(
    settings, start_ingest, machine, certificate, monkeypatch
):
    cert, key = certificate
    worker = machine(start_ingest(settings.model_copy(update={"tls_cert": cert, "tls_key": key})))
    assert worker.ingest_url.startswith("https://127.0.0.1:")
    with closing(Recorder(worker)) as recorder:
        recorder.append(started(1))

    with pytest.raises(UnreachableError, match="certificate verify failed"):
        ship(worker)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    assert ship(worker) == 1
