"""Logs and decisions go their own ways: what is slow, or refused, delays nothing but itself, and no end."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from agent_layer.errors import CorruptRecordError, UnreachableError
from agent_layer.recorder import Recorder
from agent_layer.recorder.frames import read_frames
from agent_layer.schema.codec import decode
from agent_layer.schema.step import Content
from agent_layer.shipper import lifecycle
from agent_layer.shipper.lifecycle import ShipperLoop
from agent_layer.shipper.ship import Shipper

from ...waiting import wait_for_exit


class Destination:
    """Takes logs as its ``ways`` say, by what is in them; counts."""

    num_at_once = 4

    def __init__(self, ways):
        self._ways = ways
        self.taken, self.tries, self.num_decisions = [], {}, 0

    def store(self, _, contents):
        message = decode(contents[0]).hash
        self.tries[message] = self.tries.get(message, 0) + 1
        if way := self._ways.get(message):
            way()
        self.taken.append(message)

    def ship_decisions(self):
        if way := self._ways.get("decisions"):
            way()
        self.num_decisions += 1
        return 0

    def close(self):
        pass


def write_log(settings, message):
    with closing(Recorder(settings)) as recorder:
        recorder.append(Content(trajectory_id="r.0-0", hash=message, body=b"1"))


def refuse(error):
    def way():
        raise error

    return way


REFUSALS = [UnreachableError("413"), CorruptRecordError("unknown kind"), OSError("too many open files")]


@pytest.fixture
def shipping(settings, monkeypatch):
    """``shipping(ways)``: the destination of a shipper that runs meanwhile."""
    stop, threads = threading.Event(), []

    def start(ways):
        destination = Destination(ways)
        monkeypatch.setattr(lifecycle, "open_destination", lambda _: destination)
        settings.log_dir.mkdir(parents=True, exist_ok=True)
        lock = os.open(settings.log_dir / "shipper.lock", os.O_RDWR | os.O_CREAT)
        threads.append(threading.Thread(target=ShipperLoop(settings, lock, stop).run))
        threads[0].start()
        return destination

    yield start
    stop.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("refusal", REFUSALS, ids=repr)
def test_what_is_refused_delays_neither_later_logs_nor_decisions(settings, shipping, wait_until, refusal):
    with closing(Recorder(settings)) as writer:
        writer.attend()  # or the shipper would give up
        for number in range(6):  # more than are in transit at once
            write_log(settings, f"refused {number}")
        destination = shipping({f"refused {number}": refuse(refusal) for number in range(6)})
        wait_until(lambda: destination.num_decisions)
        before = destination.num_decisions
        write_log(settings, "later")

        wait_until(lambda: destination.taken == ["later"] and destination.num_decisions > before)
        assert len(list(settings.log_dir.glob("*.log"))) == 6


def test_what_is_slow_delays_neither_later_logs_nor_decisions(settings, shipping, wait_until):
    is_over = threading.Event()
    with closing(Recorder(settings)) as writer:
        writer.attend()
        write_log(settings, "slow")
        destination = shipping({"slow": is_over.wait})
        wait_until(lambda: destination.tries)
        before = destination.num_decisions
        write_log(settings, "later")

        wait_until(lambda: destination.taken == ["later"] and destination.num_decisions > before)
        assert destination.tries == {"slow": 1, "later": 1}
        is_over.set()
        wait_until(lambda: destination.taken == ["later", "slow"])


def test_decisions_that_are_slow_or_refused_delay_no_log(settings, shipping, wait_until):
    is_over = threading.Event()
    with closing(Recorder(settings)) as writer:
        writer.attend()
        destination = shipping({"decisions": is_over.wait})
        write_log(settings, "a")

        wait_until(lambda: destination.taken == ["a"])
        is_over.set()


def test_what_is_refused_is_tried_again_and_ever_less_often(settings, shipping, wait_until):
    with closing(Recorder(settings)) as writer:
        writer.attend()
        failures = iter([UnreachableError("away")] * 3)

        def fail_thrice():
            if error := next(failures, None):
                raise error

        write_log(settings, "a")
        destination = shipping({"a": fail_thrice})
        wait_until(lambda: destination.taken == ["a"])
        assert destination.tries == {"a": 4}


def test_one_round_tries_everything_once_and_then_fails(settings):
    for message in ("a", "b", "c"):
        write_log(settings, message)
    destination = Destination({"b": refuse(UnreachableError("away"))})

    with pytest.raises(UnreachableError, match="away"):
        Shipper(settings.log_dir, destination, threading.Event()).ship_pending()

    assert (sorted(destination.taken), destination.tries["b"], destination.num_decisions) == (["a", "c"], 1, 1)


def test_a_shipper_that_is_asked_to_end_ends_soon_though_its_server_is_away(settings, wait_until):
    away = settings.model_copy(update={"redis_url": "redis://127.0.0.1:1", "retry_seconds": 300.0})
    with closing(Recorder(away)) as recorder:
        recorder.append(Content(trajectory_id="r.0-0", hash="a", body=b"1"))
        lock = away.log_dir / "shipper.lock"
        shipper = subprocess.Popen([sys.executable, "-m", "agent_layer.shipper"], env=os.environ | away.environment())
        wait_until(lambda: lock.exists() and lock.read_text() == str(shipper.pid))
        shipper.send_signal(signal.SIGTERM)

        wait_for_exit(shipper)
    (log,) = away.log_dir.glob("*-*.log")
    assert [decode(one).hash for one in read_frames(log.read_bytes())[0]] == ["a"]
