"""What the system refuses to a recorder, at any point: nothing is lost, and the recorder works on afterwards."""

import errno
import os
import random
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from agent_layer.errors import BackPressureError
from agent_layer.infra.processes import locks
from agent_layer.recorder import Recorder, log, logfile, quota, shipping
from agent_layer.recorder.frames import read_frames
from agent_layer.schema.codec import decode
from agent_layer.schema.step import Content

CALLS = ("open", "write", "ftruncate", "fsync", "scandir", "flock", "rename", "ship", "start")
ERRORS = (errno.EMFILE, errno.ENOSPC, errno.EIO, errno.EAGAIN)


class Faults:
    """Stands for ``os``, ``fcntl`` and what else the recorder asks of the system; refuses some of it while it is on."""

    def __init__(self, monkeypatch, seed):
        self._random = random.Random(seed)
        self.share = dict.fromkeys(CALLS, 0.0)
        self.met = set()
        for module in (log, logfile, quota, locks):
            for name in {"os", "fcntl"} & vars(module).keys():
                monkeypatch.setattr(module, name, Proxy(vars(module)[name], self))
        rename, start = Path.rename, threading.Thread.start
        monkeypatch.setattr(Path, "rename", lambda path, to: self.strike("rename", lambda: rename(path, to)))
        monkeypatch.setattr(threading.Thread, "start", lambda thread: self.start(thread, start))

    def start(self, thread, start):
        if thread.name == "agent-layer recorder" and self.is_refused("start"):
            raise RuntimeError("can't start new thread")
        start(thread)

    def is_refused(self, name):
        refused = self._random.random() < self.share[name]
        self.met |= {name} if refused else set()
        return refused

    def strike(self, name, act):
        if self.is_refused(name):
            number = self._random.choice(ERRORS)
            raise OSError(number, os.strerror(number))
        return act()

    def ship(self):
        self.strike("ship", lambda: None)


class Proxy:
    def __init__(self, module, faults):
        self._module, self._faults = module, faults

    def __getattr__(self, name):
        real = getattr(self._module, name)
        if name == "write":
            return lambda descriptor, content: self._write(real, descriptor, content)
        return (lambda *given: self._faults.strike(name, lambda: real(*given))) if name in CALLS else real

    def _write(self, real, descriptor, content):
        half = content[: len(content) // 2]
        return self._faults.strike("write", lambda: real(descriptor, half if len(half) > 20 else content))


def content(text):
    return Content(trajectory_id="r.0-0", hash=text, body=b"x" * 100)


def recorded(settings):
    logs = {}
    for pattern in ("*.open", "*.log"):  # in this order: an open log may be completed, and so renamed, meanwhile
        for path in settings.log_dir.glob(pattern):
            with suppress(FileNotFoundError):
                logs[path.stem] = path.read_bytes()
    return [decode(found).hash for log in logs.values() for found in read_frames(log)[0]]


def record(recorder, names):
    kept = []
    for name in names:
        with suppress(BackPressureError):  # anything else is no clear error
            recorder.append(content(name))
            kept.append(name)
    return kept


@pytest.mark.parametrize("refused", [*CALLS, "all"])
def test_whatever_is_refused_nothing_is_lost_and_all_works_again(settings, monkeypatch, wait_until, refused):
    settings = settings.model_copy(update={"log_roll_seconds": 0.02, "log_roll_bytes": 400, "log_sync_seconds": 0.01})
    faults = Faults(monkeypatch, seed=refused)
    recorder = Recorder(settings, faults.ship)
    names = {"all": CALLS, "ftruncate": ("write", "ftruncate")}.get(refused, (refused,))

    kept = []
    for share in (1.0, 0.4):
        faults.share |= dict.fromkeys(names, share)
        kept += record(recorder, [f"{share}-{number}" for number in range(50)])
        wait_until(lambda: faults.met)
    recorder.flush(timeout=0)
    faults.share |= dict.fromkeys(names, 0.0)
    recorder.flush(timeout=0)
    kept += record(recorder, ["afterwards"])

    assert kept[-1] == "afterwards"
    wait_until(lambda: not list(settings.log_dir.glob("*.open")) or refused in ("rename", "all"))
    assert sorted(recorded(settings)) == sorted(kept)
    recorder.close()
    assert sorted(recorded(settings)) == sorted(kept)
    assert not locks.is_locked(settings.log_dir / "writers.lock")
    assert not any(map(locks.is_locked, settings.log_dir.glob("*.open")))  # or no shipper would adopt them


@pytest.mark.parametrize("refused", CALLS)
def test_a_recorder_closes_though_it_is_refused_for_good(settings, monkeypatch, refused):
    faults = Faults(monkeypatch, seed=0)
    recorder = Recorder(settings, faults.ship)
    kept = record(recorder, "ab")

    faults.share[refused] = 1.0
    kept += record(recorder, ["c"])
    recorder.close()
    faults.share[refused] = 0.0

    assert sorted(recorded(settings)) == kept
    assert not locks.is_locked(settings.log_dir / "writers.lock")
    assert record(recorder, ["again"]) == ["again"]
    recorder.close()


def test_an_idle_writer_keeps_a_shipper(settings, wait_until):
    questions = []
    recorder = Recorder(settings, lambda: questions.append(1))
    recorder.append(content("a"))
    wait_until(lambda: list(settings.log_dir.glob("*.log")))
    before = len(questions)

    wait_until(lambda: len(questions) >= before + 2)
    recorder.close()


def test_a_start_that_is_refused_leaves_the_shippers_lock_free(settings, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(shipping, "start_detached", refuse)
    with pytest.raises(OSError, match="no more processes"):
        shipping.ensure_shipper(settings)

    assert not locks.is_locked(settings.log_dir / "shipper.lock")
