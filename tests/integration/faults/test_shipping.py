"""No record is lost or doubled, whichever process is killed and whichever server is away."""

import os
import signal
import subprocess
import sys
import threading
from multiprocessing import get_context

import pytest

from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.infra.processes.locks import is_locked
from agent_layer.recorder import Recorder, open_recorder
from agent_layer.recorder.frames import frame
from agent_layer.recorder.logfile import LogFile
from agent_layer.schema.codec import decode
from agent_layer.schema.ids import new_id
from agent_layer.schema.step import Content
from agent_layer.shipper.direct import DirectDestination
from agent_layer.shipper.ship import Shipper
from agent_layer.store.segments.format import read_chunk, read_footer, segment_key

from ...waiting import communicate, join, scaled
from .conftest import await_shipped

TRAJECTORY = "r.0-0"


def content(text: str) -> Content:
    return Content(trajectory_id=TRAJECTORY, hash=text, body=b"1")


@pytest.fixture
def stored(settings, redis, keys):
    """``stored()``: hashes of the records that the index leads to, in order."""

    def read() -> list[str]:
        objects = open_objects(settings)
        names = sorted(name.decode() for name in redis.hkeys(keys.chunks(TRAJECTORY)))
        segments = [segment_key(keys, name) for name in names]
        chunks = [(key, chunk) for key in segments for chunk in read_footer(objects, key).footer.chunks]
        return [decode(record).hash for key, chunk in chunks for record in read_chunk(objects, key, chunk)]

    return read


@pytest.fixture
def ship_here(settings, redis, keys):
    """``ship_here(objects=None)``: one round of shipping in this process."""

    def ship(objects=None) -> int:
        direct = DirectDestination(keys, redis, objects or open_objects(settings))
        return Shipper(settings.log_dir, direct, threading.Event()).ship_pending()

    return ship


def start(settings, script: str) -> subprocess.Popen[str]:
    """Start a process that records; ``recorder``, ``content`` and ``settings`` are there for it."""
    prelude = """
import os, signal, sys, threading
from agent_layer.recorder import open_recorder
from agent_layer.schema.step import Content
from agent_layer.settings import load_settings
settings = load_settings()
recorder = open_recorder(settings)
def content(text):
    return Content(trajectory_id="r.0-0", hash=str(text), body=b"1")
"""
    return subprocess.Popen(
        [sys.executable, "-c", prelude + script],
        env=os.environ | settings.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


def shipper_pid(settings) -> int:
    return int((settings.log_dir / "shipper.lock").read_text() or 0)


def test_flush_returns_when_everything_is_indexed(settings, stored):
    recorder = open_recorder(settings)
    recorder.append(content("a"))
    recorder.append(content("b"))

    report = recorder.flush()

    assert (report.pending, report.lost, report.recorded) == (0, 0, 2)
    assert stored() == ["a", "b"]


def test_a_program_that_ends_without_a_flush_loses_nothing(settings, stored, wait_until):
    communicate(start(settings, "for number in range(3): recorder.append(content(number))"))

    wait_until(lambda: len(stored()) == 3)
    assert stored() == ["0", "1", "2"]


def test_a_writer_killed_in_the_middle_loses_nothing_that_it_was_told_is_recorded(settings, stored):
    script = "for number in range(10**9): recorder.append(content(number)); print(number, flush=True)"
    writer = start(settings, script)
    for line in writer.stdout:
        if int(line) >= 200:
            break
    writer.kill()
    output = [int(line) for line in writer.communicate()[0].splitlines()]
    last = max(output, default=200)

    await_shipped(settings)
    found = [int(text) for text in stored()]
    assert found == list(range(len(found)))
    assert last in found


def test_children_of_a_fork_lose_nothing(settings, stored, wait_until):
    script = """
recorder.append(content("parent"))
for child in range(3):
    if os.fork() == 0:
        recorder.append(content(child))
        os.kill(os.getpid(), signal.SIGKILL)
for child in range(3):
    os.wait()
print(recorder.flush().pending)
"""
    assert communicate(start(settings, script))[0].split() == ["0"]
    wait_until(lambda: len(stored()) == 4)
    assert sorted(stored()) == ["0", "1", "2", "parent"]


class DeadlyObjects:
    """Objects that kill the writing process, before or after the put."""

    def __init__(self, objects, *, when: str) -> None:
        self._objects = objects
        self._when = when

    def put(self, key: str, content: bytes) -> None:
        if self._when == "after":
            self._objects.put(key, content)
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_shipper_killed_around_the_storing_of_an_object_leaves_work_that_the_next_does_once(
    settings, redis, keys, stored, ship_here, when
):
    recorder = Recorder(settings)
    name = recorder.append(content("a"), content("b"))
    recorder.close()
    objects = open_objects(settings)
    victim = get_context("fork").Process(target=lambda: ship_here(DeadlyObjects(objects, when=when)))
    victim.start()
    join(victim)

    assert victim.exitcode == -signal.SIGKILL
    assert not recorder.is_settled(name)
    assert not redis.exists(keys.segments)
    assert ship_here() == 1
    assert recorder.is_settled(name)
    assert stored() == ["a", "b"]
    assert len(list(objects.list(""))) == redis.hlen(keys.segments) == 1


def test_a_log_that_is_shipped_twice_is_stored_once(settings, redis, keys, stored, ship_here):
    recorder = Recorder(settings)
    name = recorder.append(content("a"))
    recorder.close()
    log = settings.log_dir / f"{name}.log"
    copy = log.read_bytes()

    assert ship_here() == 1
    log.write_bytes(copy)
    assert ship_here() == 1

    assert stored() == ["a"]
    assert redis.hlen(keys.segments) == len(list(open_objects(settings).list(""))) == 1


def test_a_torn_end_takes_nothing_else_with_it(settings, stored, ship_here):
    recorder = Recorder(settings)
    name = recorder.append(content("a"), content("b"))
    recorder.close()
    log = settings.log_dir / f"{name}.log"
    log.write_bytes(log.read_bytes()[:-3])

    assert ship_here() == 1
    assert stored() == ["a"]


def test_the_log_of_a_living_writer_is_left_to_it(settings, ship_here):
    settings.log_dir.mkdir(parents=True)
    living = LogFile(settings.log_dir, f"{new_id()}-host-1")

    assert ship_here() == 0
    living.close()
    assert ship_here() == 0
    assert not list(settings.log_dir.glob("*.open"))


def test_a_log_that_nobody_can_read_is_kept_aside_and_never_settled(settings, stored, ship_here):
    recorder = Recorder(settings)
    name = recorder.append(content("a"))
    recorder.close()
    log = settings.log_dir / f"{name}.log"
    log.write_bytes(log.read_bytes() + frame(b"\x81\xa4type\xa6poetry"))

    assert ship_here() == 0
    assert not recorder.is_settled(name)
    assert (settings.log_dir / f"{name}.corrupt").exists()
    assert stored() == []


def test_a_killed_shipper_is_followed_by_another(settings, stored):
    recorder = open_recorder(settings)
    recorder.append(content("a"))
    assert recorder.flush().pending == 0
    first = shipper_pid(settings)
    os.kill(first, signal.SIGKILL)
    recorder.append(content("b"))

    assert recorder.flush().pending == 0
    assert stored() == ["a", "b"]
    assert shipper_pid(settings) != first


def test_while_the_objects_are_away_records_wait_and_then_arrive(settings, stored, shipper_output, wait_until):
    (settings.dir / "objects").parent.mkdir(parents=True)
    (settings.dir / "objects").write_text("in the way")
    recorder = open_recorder(settings)
    recorder.append(content("a"))

    wait_until(lambda: "shipping failed" in shipper_output(settings))
    assert recorder.flush(timeout=0.1).pending == 1
    (settings.dir / "objects").unlink()
    assert recorder.flush().pending == 0
    assert stored() == ["a"]


def test_a_shipper_leaves_when_nobody_writes_and_comes_back_when_somebody_does(settings, stored, wait_until):
    recorder = open_recorder(settings)
    recorder.append(content("a"))
    recorder.flush()
    recorder.close()
    wait_until(lambda: not is_locked(settings.log_dir / "shipper.lock"))
    recorder.append(content("b"))

    assert recorder.flush().pending == 0
    assert stored() == ["a", "b"]


def test_many_writers_have_one_shipper(settings, stored):
    script = """
recorder.append(content("a"))
recorder.flush()
print((settings.log_dir / "shipper.lock").read_text())
"""
    patient = settings.model_copy(
        update={"ship_linger_seconds": scaled(60.0)}
    )  # the last writer's start time is not known
    writers = [start(patient, script) for _ in range(4)]
    pids = {communicate(writer)[0].strip() for writer in writers}

    assert len(pids) == 1
    assert len(stored()) == 4
