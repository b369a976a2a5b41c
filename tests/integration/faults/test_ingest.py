"""Any process between a sender and the store may die or be away: every record arrives, and counts once."""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agent_layer.errors import UnreachableError
from agent_layer.recorder import Recorder, open_recorder
from agent_layer.recorder.frames import frame
from agent_layer.schema.codec import encode
from agent_layer.schema.ids import new_id
from agent_layer.schema.reward import Reward
from agent_layer.settings import Settings
from agent_layer.shipper.remote import RemoteDestination
from agent_layer.shipper.ship import Shipper
from agent_layer.store import open_store


def reward(name: str) -> Reward:
    return Reward(trajectory_id="r.0-0", reward_id=name, run="r", at=1.0, name=name, score=1.0)


def rewards_in(settings) -> list[str]:
    store = open_store(settings)
    return sorted(one.name for one in store.get("r.0-0").rewards) if store.query(run="r").items else []


def kill_shipper(settings) -> None:
    """With -9."""
    os.kill(int((settings.log_dir / "shipper.lock").read_text()), signal.SIGKILL)


def has_shipper(settings) -> bool:
    """Whether one has started and has said who it is."""
    lock = settings.log_dir / "shipper.lock"
    return lock.exists() and bool(lock.read_text())


def list_logs(settings) -> list[Path]:
    return [*settings.log_dir.glob("*-*.log")]


@pytest.fixture
def server(settings, own_redis):
    """Settings of an ingest server with a Redis of this test's own; it is stopped with ``own_redis.send``."""
    return settings.model_copy(update={"redis_url": own_redis.url, "retry_seconds": 3.0})


@pytest.fixture
def send_from() -> Iterator[Callable[[Settings], RemoteDestination]]:
    """``send_from(settings)``: the sending half of a machine's shipper, in this process."""
    with ExitStack() as cleanup:
        yield lambda settings: cleanup.enter_context(closing(RemoteDestination(settings)))


def ship(settings) -> int:
    """One round of shipping of one machine, in this process."""
    with closing(Shipper(settings.log_dir, RemoteDestination(settings), threading.Event())) as shipper:
        return shipper.ship_pending()


def test_nothing_is_acknowledged_before_redis_has_it(server, own_redis, start_ingest, machine, wait_until):
    worker = machine(start_ingest(server))
    own_redis.send(signal.SIGSTOP)
    recorder = open_recorder(worker)
    recorder.append(reward("a"))
    wait_until(lambda: list_logs(server))

    assert recorder.flush(timeout=1.0).pending == 1
    own_redis.send(signal.SIGCONT)
    assert recorder.flush().pending == 0
    assert rewards_in(server) == ["a"]


@pytest.mark.parametrize("disk", ["stays", "is gone"])
def test_a_server_killed_with_all_that_it_runs_loses_nothing(
    server, own_redis, start_ingest, machine, wait_until, disk
):
    ingest = start_ingest(server)
    worker = machine(ingest)
    own_redis.send(signal.SIGSTOP)
    recorder = open_recorder(worker)
    recorder.append(reward("a"))
    wait_until(lambda: list_logs(server) and has_shipper(server))
    ingest.kill()
    kill_shipper(server)
    own_redis.send(signal.SIGCONT)
    if disk == "is gone":
        shutil.rmtree(server.log_dir)
    start_ingest(server.model_copy(update={"ingest_key": ingest.key}), ingest.port)

    assert recorder.flush().pending == 0
    wait_until(lambda: not list_logs(server))
    store = open_store(server)
    assert rewards_in(server) == ["a"]
    assert len(list(store.objects.list(""))) <= 2
    assert store.admin.check().findings == []


def test_a_server_that_is_away_is_waited_for(settings, start_ingest, machine, shipper_output, wait_until):
    ingest = start_ingest(settings)
    worker = machine(ingest)
    ingest.kill()
    recorder = open_recorder(worker)
    recorder.append(reward("a"))

    wait_until(lambda: "AGENT_LAYER_INGEST_URL" in shipper_output(worker))
    assert recorder.flush(timeout=0.1).pending == 1
    start_ingest(settings.model_copy(update={"ingest_key": ingest.key}), ingest.port)
    assert recorder.flush().pending == 0
    assert rewards_in(settings) == ["a"]


def test_a_sender_killed_before_its_answer_is_followed_by_one_that_is_answered(
    server, own_redis, start_ingest, machine, wait_until
):
    worker = machine(start_ingest(server))
    own_redis.send(signal.SIGSTOP)
    recorder = open_recorder(worker)
    recorder.append(reward("a"))
    wait_until(lambda: list_logs(server))
    kill_shipper(worker)
    own_redis.send(signal.SIGCONT)

    assert recorder.flush().pending == 0
    store = open_store(server)
    assert rewards_in(server) == ["a"]
    assert len(list(store.objects.list(""))) == 1
    assert store.admin.check().findings == []


def test_a_log_sent_twice_at_once_is_stored_once(settings, start_ingest, machine, send_from):
    sender = send_from(machine(start_ingest(settings)))
    name, contents = f"{new_id()}-host-1", [encode(reward("a"))]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: sender.store(name, contents), range(2))) == [None, None]
    assert sender.store(name, contents) is None

    store = open_store(settings)
    assert rewards_in(settings) == ["a"]
    assert len(list(store.objects.list(""))) == store.redis.hlen(store.keys.segments) == 1


def test_a_wrong_key_keeps_the_log_and_names_the_setting(settings, start_ingest, machine, shipper_output, wait_until):
    worker = machine(start_ingest(settings), ingest_key="another")
    recorder = open_recorder(worker)
    recorder.append(reward("a"))

    wait_until(lambda: "found 401" in shipper_output(worker))
    assert recorder.flush(timeout=0.5).pending == 1
    assert "set AGENT_LAYER_INGEST_KEY" in shipper_output(worker)
    assert list_logs(worker)


def test_a_log_that_the_server_cannot_read_is_set_aside_and_the_others_go_on(settings, start_ingest, machine):
    worker = machine(start_ingest(settings))
    recorder = Recorder(worker)
    for name in "ab":
        log_name = recorder.append(reward(name))
        recorder.close()
    damaged = worker.log_dir / f"{log_name}.log"
    damaged.write_bytes(damaged.read_bytes() + frame(b"\x81\xa4type\xa6poetry"))

    assert ship(worker) == 1
    assert damaged.with_suffix(".corrupt").exists()
    assert rewards_in(settings) == ["a"]


def test_a_full_server_asks_senders_to_come_again(server, own_redis, start_ingest, machine, send_from, wait_until):
    worker = machine(start_ingest(server.model_copy(update={"log_quota_bytes": 10, "ingest_seconds": 1.0})))
    own_redis.send(signal.SIGSTOP)
    sender = send_from(worker)
    first, second = ((f"{new_id()}-host-1", [encode(reward(name))]) for name in "ab")

    with pytest.raises(UnreachableError, match="not committed within 1 s"):
        sender.store(*first)
    with pytest.raises(UnreachableError, match="found 503 'ingest: expected room"):
        sender.store(*second)

    own_redis.send(signal.SIGCONT)
    wait_until(lambda: not list_logs(server))
    assert all(wait_until(lambda log=log: is_taken(sender, *log)) for log in (first, second))
    assert rewards_in(server) == ["a", "b"]


def is_taken(sender, *log) -> bool:
    """Whether it was committed in the one second that the server waits."""
    try:
        return sender.store(*log) is None
    except UnreachableError:
        return False


class _Stranger(BaseHTTPRequestHandler):
    """Some other server, that refuses whatever it is sent."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(400)
        self.end_headers()
        self.wfile.write(b"<h1>Bad Request</h1>")

    def log_message(self, *_):
        pass


def test_what_a_strange_server_refuses_is_not_set_aside(settings):
    with ThreadingHTTPServer(("127.0.0.1", 0), _Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        worker = settings.model_copy(update={"ingest_url": f"http://127.0.0.1:{stranger.server_port}"})
        recorder = Recorder(worker)
        recorder.append(reward("a"))
        recorder.close()
        with pytest.raises(UnreachableError, match="found 400"):
            ship(worker)
        stranger.shutdown()

    assert list_logs(worker)
