"""Two writers, three readers and a judge share a namespace with no lock, while processes die: nothing is lost."""

import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest

from agent_layer.recorder.logfile import CLOSED, OPEN
from agent_layer.recorder.shipping import ensure_shipper
from agent_layer.store import open_store

from ..waiting import communicate

SOAK = Path(__file__).parent / "soak"
SECONDS = 15.0
NUM_ATTEMPTS = 20
"""Minimum; a slow machine continues until it is reached."""
NUM_READERS = 3


class Crowd:
    """Processes of the soak; those that were killed are started again."""

    def __init__(self, settings, directory: Path, chance: random.Random) -> None:
        self.directory, self.stop, self._chance = directory, directory / "stop", chance
        shared = {"objects_url": (directory / "objects").as_uri(), "log_roll_seconds": 0.1}
        self.settings = {
            name: settings.model_copy(update={**shared, "dir": directory / name})
            for name in ("writer-1", "writer-2", "judge", "reader")
        }
        self._victims = {name: self._start(name) for name in ("writer-1", "writer-2", "judge")}
        self._readers = [self._start("reader", str(self.stop), str(number)) for number in range(NUM_READERS)]
        self.num_killed = 0

    def _start(self, name: str, *arguments: str) -> subprocess.Popen:
        program = {"judge": "rewarder.py", "reader": "reader.py"}.get(name, "writer.py")
        own = os.environ | self.settings[name].environment()
        command = [sys.executable, str(SOAK / program), *(arguments or [str(self.directory)])]
        return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def rage(self) -> None:
        """Kill a writer or a shipper; restart a writer (writers start shippers).

        A writer without a first record is spared: on a slow machine it would never reach one.
        """
        name = self._chance.choice(list(self._victims))
        if self._chance.random() < 0.5:
            self._kill_shipper(name)
            return
        if not self._has_written(self._victims[name]):
            return
        self._bury(self._victims[name])
        self._victims[name] = self._start(name)
        self.num_killed += 1

    def _has_written(self, process: subprocess.Popen) -> bool:
        journal = self.directory / f"{process.pid}.journal"
        return journal.exists() and journal.stat().st_size > 0

    def _kill_shipper(self, name: str) -> None:
        for lock in self.settings[name].dir.glob("logs/*/shipper.lock"):
            if pid := lock.read_text().strip():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
                    self.num_killed += 1

    def _bury(self, process: subprocess.Popen) -> None:
        process.kill()
        process.communicate()

    def calm(self) -> list[str]:
        """End all processes; return the readers' output."""
        for process in self._victims.values():
            self._bury(process)
        self.stop.touch()
        printed = [communicate(process) for process in self._readers]
        assert [process.returncode for process in self._readers] == [0] * NUM_READERS, [error for _, error in printed]
        return [out for out, _ in printed]

    def end(self) -> None:
        for process in [*self._victims.values(), *self._readers]:
            self._bury(process)

    def is_drained(self) -> bool:
        """Whether no log waits any more; starts a shipper where one does."""
        left = False
        for name, settings in self.settings.items():
            if name != "reader" and waiting_in(settings.log_dir):
                ensure_shipper(settings)
                left = True
        return not left


@pytest.fixture
def crowd(settings, tmp_path):
    crowd = Crowd(settings, tmp_path, random.Random(7))
    yield crowd
    crowd.end()
    for name in crowd.settings:
        crowd._kill_shipper(name)


def test_nobody_loses_anything_and_nobody_reads_what_is_not_there(crowd, wait_until):
    until = time.monotonic() + SECONDS
    while time.monotonic() < until or len(read_journals(crowd.directory)) <= NUM_ATTEMPTS:  # wait: how long it rages
        time.sleep(0.4)  # the pace of dying, not a wait for anything
        crowd.rage()
    looks = crowd.calm()
    wait_until(crowd.is_drained)

    store = open_store(crowd.settings["reader"])
    noted = read_journals(crowd.directory)
    print(f"{len(noted)} attempts, {crowd.num_killed} killed, looks {looks}")  # noqa: T201  # figures for who looks
    assert all(int(number) > 0 for number in looks)
    assert [fact for name, facts in noted.items() for fact in lacking(store, name, facts)] == []
    assert store.admin.check().findings == []
    before = collect_answers(store)
    store.admin.reindex(drop=True)
    assert collect_answers(store) == before


def waiting_in(directory: Path) -> list[Path]:
    return [path for ending in (OPEN, CLOSED) for path in directory.glob(f"*-*{ending}")]


def read_journals(directory: Path) -> dict[str, list[str]]:
    """What was acknowledged, by trajectory."""
    noted = defaultdict(list)
    for path in directory.glob("*.journal"):
        for line in path.read_text().splitlines():
            trajectory_id, fact = line.split()
            noted[trajectory_id].append(fact)
    return noted


def lacking(store, trajectory_id: str, facts: list[str]) -> list[str]:
    """What was acknowledged and is not there exactly once."""
    trajectory = store.get(trajectory_id)
    ended = [f"call-{step.call_id}" for step in trajectory.steps if step.status == "ok"]
    found = [*ended, *(f"reward-{reward.reward_id}" for reward in trajectory.rewards)]
    found += ["started"] * (trajectory.started is not None) + ["accepted"] * (trajectory.accepted is not None)
    found += ["completed"] * (trajectory.outcome is not None)
    closed = store.redis.zrange(store.keys.closed_groups("r"), 0, -1)
    found += [f"group-{group.decode()}" for group in closed]
    return [f"{trajectory_id} {fact}: {found.count(fact)} times" for fact in facts if found.count(fact) != 1]


def collect_answers(store):
    return (
        [(row, store.get(row.trajectory_id)) for row in store.scan()],
        [store.count(**one) for one in ({}, {"status": "running"}, {"accepted": True}, {"reward": (0.7, None)})],
        store.redis.zrange(store.keys.closed_groups("r"), 0, -1, withscores=True),
    )
