"""The recorder without a shipper: whole records, in time, from threads and forks."""

import os
import resource
import sys
import threading
from multiprocessing import get_context

import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BackPressureError, BadInputError
from agent_layer.infra.processes.locks import is_locked
from agent_layer.recorder import Recorder
from agent_layer.recorder.frames import frame, read_frames
from agent_layer.schema.codec import decode
from agent_layer.schema.step import Content
from agent_layer.settings import Settings

from ...waiting import join


@pytest.fixture
def recorder(settings):
    """Its log is not renamed while a test reads it."""
    recorder = Recorder(settings.model_copy(update={"log_roll_seconds": 60}))
    yield recorder
    recorder.close()


def content(text: str) -> Content:
    return Content(trajectory_id="r.0-0", hash=text, body=b"x" * 100)


def recorded(settings) -> list[str]:
    """Hashes of all records in the log directory."""
    logs = sorted(settings.log_dir.glob("*.log")) + sorted(settings.log_dir.glob("*.open"))
    return [decode(found).hash for log in logs for found in read_frames(log.read_bytes())[0]]


@given(st.lists(st.binary(min_size=1, max_size=50)), st.integers(0, 60))
def test_whatever_is_cut_off_at_the_end_only_whole_frames_are_read(contents, num_cut):
    stored = b"".join(map(frame, contents))
    kept = stored[: max(0, len(stored) - num_cut)]

    found, num_torn = read_frames(kept)

    assert found == contents[: len(found)]
    assert len(b"".join(map(frame, found))) + num_torn == len(kept)
    assert num_cut or found == contents


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1), st.data())
def test_a_changed_byte_is_noticed(contents, data):
    stored = bytearray(b"".join(map(frame, contents)))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= 0x40

    assert read_frames(bytes(stored))[0] != contents


def test_a_record_is_in_the_log_when_append_returns(settings, recorder):
    name = recorder.append(content("a"), content("b"))

    assert recorded(settings) == ["a", "b"]
    assert recorder.mark() == [name]
    assert not recorder.is_settled(name)


def test_a_log_is_completed_in_time_even_when_nothing_follows(settings, wait_until):
    recorder = Recorder(settings)
    name = recorder.append(content("a"))

    wait_until((settings.log_dir / f"{name}.log").exists)
    assert recorder.append(content("b")) != name
    recorder.close()


def test_a_large_log_is_completed_at_once(settings):
    recorder = Recorder(settings.model_copy(update={"log_roll_bytes": 1000, "log_roll_seconds": 60}))
    names = {recorder.append(content(str(number))) for number in range(30)}
    recorder.close()

    assert {f"{name}.log" for name in names} == {log.name for log in settings.log_dir.glob("*.log")}
    assert all(1000 <= log.stat().st_size < 1200 for log in sorted(settings.log_dir.glob("*.log"))[:-1])
    assert len(names) > 2


def test_a_log_counts_as_settled_once_its_file_is_gone(settings, recorder):
    name = recorder.append(content("a"))
    report = recorder.flush(timeout=0)
    (settings.log_dir / f"{name}.log").unlink()

    assert (report.pending, report.recorded) == (1, 1)
    assert recorder.is_settled(name)
    assert recorder.mark() == []
    assert recorder.flush(timeout=0).pending == 0


def test_many_threads_lose_and_mix_up_nothing(settings):
    recorder = Recorder(settings.model_copy(update={"log_roll_bytes": 2000}))

    def write(thread: int) -> None:
        for number in range(50):
            recorder.append(content(f"{thread}-{number}"))

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        join(thread)
    recorder.close()

    found = recorded(settings)
    assert sorted(found) == sorted(f"{thread}-{number}" for thread in range(8) for number in range(50))


def test_a_full_directory_makes_writers_wait_and_then_fail_with_a_sentence(settings):
    recorder = Recorder(
        settings.model_copy(update={"log_quota_bytes": 300, "log_wait_seconds": 0.1, "log_roll_seconds": 60})
    )
    while recorder.has_room():
        recorder.append(content("a"))
    num_recorded = len(recorded(settings))

    with pytest.raises(BackPressureError, match="unshipped bytes"):
        recorder.append(content("b"))

    report = recorder.flush(timeout=0)
    assert (report.lost, report.recorded) == (1, num_recorded)
    for log in settings.log_dir.glob("*.log"):
        log.unlink()
    recorder.append(content("c"))
    recorder.close()
    assert recorded(settings) == ["c"]


def test_a_disk_that_takes_half_a_record_keeps_the_whole_ones(settings, recorder):
    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        for number in range(20):
            try:
                recorder.append(content(str(number)))
            except BackPressureError:
                os._exit(number)

    child = get_context("fork").Process(target=fill)
    child.start()
    join(child)

    assert 0 < child.exitcode < 20
    assert recorded(settings) == [str(number) for number in range(child.exitcode)]


def test_a_forked_child_writes_a_log_of_its_own_(settings, recorder):
    recorder.append(content("parent"))

    def write() -> None:
        recorder.append(content("child"))
        assert [name.endswith(str(os.getpid())) for name in recorder.mark()] == [True]
        recorder.close()
        sys.exit(0)

    children = [get_context("fork").Process(target=write) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        join(child)

    assert [child.exitcode for child in children] == [0, 0, 0]
    assert sorted(recorded(settings)) == ["child"] * 3 + ["parent"]


def test_a_child_that_lives_on_does_not_keep_its_dead_parent_alive(settings, wait_until):
    ready = settings.dir / "ready"
    settings.dir.mkdir(parents=True)
    slow = settings.model_copy(update={"log_roll_seconds": 60})

    def parent() -> None:
        recorder = Recorder(slow)
        recorder.append(content("parent"))
        if os.fork() == 0:
            ready.write_text(str(os.getpid()))
            os.read(os.open(settings.dir / "end", os.O_RDONLY), 1)
        os._exit(0)

    os.mkfifo(settings.dir / "end")
    process = get_context("fork").Process(target=parent)
    process.start()
    join(process)
    wait_until(lambda: ready.exists() and ready.read_text())
    (log,) = settings.log_dir.glob("*.open")

    assert not is_locked(log)
    assert not is_locked(settings.log_dir / "writers.lock")
    (settings.dir / "end").write_text("x")


def test_forking_in_the_middle_of_writes_stops_nobody(settings):
    recorder = Recorder(settings.model_copy(update={"log_roll_bytes": 500}))
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            recorder.append(content("parent"))

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    children = [get_context("fork").Process(target=lambda: recorder.append(content("child"))) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        join(child)
    is_over.set()
    for thread in threads:
        join(thread)
    recorder.close()

    assert [child.exitcode for child in children] == [0] * 4
    assert recorded(settings).count("child") == 4


def test_a_writer_holds_the_writers_lock_until_it_closes(settings, recorder):
    recorder.append(content("a"))
    assert is_locked(settings.log_dir / "writers.lock")

    recorder.close()
    assert not is_locked(settings.log_dir / "writers.lock")
    recorder.append(content("b"))
    assert is_locked(settings.log_dir / "writers.lock")
    assert sorted(recorded(settings)) == ["a", "b"]


def test_a_log_directory_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(BadInputError, match="choose another --dir"):
        Recorder(Settings(dir=tmp_path / "file" / "below"))
