"""Two shippers write, a compactor merges, readers read; all but the readers are killed at random. Nothing is missed."""

import random
import threading
import time
from multiprocessing import get_context

import pytest

from agent_layer.errors import LeaseLostError
from agent_layer.recorder import Recorder
from agent_layer.schema.codec import decode
from agent_layer.schema.rollout import AttemptStarted
from agent_layer.schema.step import Content
from agent_layer.shipper.direct import open_direct
from agent_layer.shipper.ship import Shipper
from agent_layer.store.index.deletion import apply_tombstones
from agent_layer.store.index.index import Index
from agent_layer.store.maintenance.merge_plan import Limits
from agent_layer.store.segments.format import find_frames, read_chunk, segment_key, unpack
from agent_layer.store.segments.tombstones import write_tombstones
from agent_layer.store.store import open_store

from ..waiting import join

SECONDS = 6.0
"""At least; a slow machine goes on until there were ``NUM_KILLS`` and ``NUM_APPENDED``."""
NUM_KILLS, NUM_APPENDED = 4, 31
NUM_TRAJECTORIES = 5
NOW = Limits(least_age_seconds=-1.0, turn_seconds=0.3, wait_seconds=5.0)
PROCESSES = get_context("fork")


def make_id(number: int) -> str:
    return f"r.{number % NUM_TRAJECTORIES}-0"


def read_contents(number: int) -> list:
    """What is appended at once: of one trajectory, and of one that is deleted soon."""
    doomed, text = f"doomed.{number}-0", f"{number:06}"
    return [
        AttemptStarted(trajectory_id=make_id(number), rollout_id="r", attempt=0, run="r", task_id="t", started_at=1.0),
        Content(trajectory_id=make_id(number), hash=text, body=text.encode()),
        AttemptStarted(trajectory_id=doomed, rollout_id="d", attempt=0, run="r", task_id="t", started_at=1.0),
        Content(trajectory_id=doomed, hash="secret", body=f"secret {text}".encode()),
    ]


def open_shipper(settings):
    return Shipper(settings.log_dir, open_direct(settings), threading.Event())


def ship_for_ever(settings):
    shipper = open_shipper(settings)
    while True:
        shipper.ship_pending()
        time.sleep(0.005)


def compact_for_ever(settings):
    store = open_store(settings)
    for number in range(10**9):
        try:
            store.admin.compact(limits=NOW, only_dead=number % 3 == 0)
        except LeaseLostError:
            continue


def read_for_ever(settings, path):
    """Every content that was once there stays; none changes."""
    store, seen = open_store(settings), set()
    try:
        while True:
            found = {
                (row.trajectory_id, *one)
                for row in store.query(task="t", limit=100, until=2.0).items
                if row.trajectory_id.startswith("r.")
                for one in store.get(row.trajectory_id).contents.items()
            }
            assert seen <= found, sorted(seen - found)[:5]
            seen = found
    except BaseException as error:
        path.write_text(repr(error))
        raise


def contents_in(store, trajectory_id: str) -> list[str]:
    """Hashes of all contents that the index leads to, as often as they are stored."""
    places = Index(store.redis, store.keys).chunks(trajectory_id)
    stored = [one for name, chunk in places for one in read_chunk(store.objects, segment_key(store.keys, name), chunk)]
    return [record.hash for record in map(decode, stored) if isinstance(record, Content)]


def unpacked(store, key: str) -> bytes:
    content = store.objects.get(key)
    frames = find_frames(content) if key.endswith(".seg") else []
    return content + b"".join(b"".join(unpack(content[at : at + size], size, key)) for at, size in frames)


@pytest.fixture
def start():
    """``start(function, *arguments)``: a process of its own; ends with the test."""
    begun = []

    def begin(function, *arguments):
        begun.append(PROCESSES.Process(target=function, args=arguments))
        begun[-1].start()
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        join(process)


@pytest.fixture
def machines(settings):
    """Two machines with a log directory each, and one store."""
    objects_url = (settings.dir.absolute() / "objects").as_uri()
    found = [
        settings.model_copy(update={"dir": settings.dir / name, "objects_url": objects_url}) for name in ("a", "b")
    ]
    for machine in found:
        machine.log_dir.mkdir(parents=True)
    return found


def delete(store, *owners: str) -> None:
    apply_tombstones(store.redis, store.keys, owners, write_tombstones(store.keys, store.objects, owners, "deleted"))


def write_and_kill(store, machines, work, start) -> int:
    """Append, delete some of it, and kill workers at random; return how often something was appended."""
    processes, chance = [start(*one) for one in work], random.Random(11)
    num_appended, num_kills, end = 0, 0, time.monotonic() + SECONDS
    while num_kills < NUM_KILLS or num_appended < NUM_APPENDED or time.monotonic() < end:  # wait: how long it rages
        recorder = Recorder(machines[num_appended % 2])
        recorder.append(*read_contents(num_appended))
        recorder.close()
        if chance.random() < 0.3:
            delete(store, f"doomed.{num_appended - chance.randrange(3)}-0")
        if chance.random() < 0.15:
            victim = chance.randrange(len(work))
            processes[victim].kill()
            join(processes[victim])
            processes[victim] = start(*work[victim])
            num_kills += 1
        num_appended += 1
        time.sleep(0.01)
    for process in processes:
        process.kill()
        join(process)
    return num_appended


def settle(store, machines, num_appended: int) -> None:
    """Ship and compact what is left, all that is doomed being dead."""
    for machine in machines:
        shipper = open_shipper(machine)
        while shipper.ship_pending():
            pass
        shipper.close()
    delete(store, *(f"doomed.{number}-0" for number in range(num_appended)))
    assert store.admin.compact(limits=NOW).findings == []
    assert store.admin.compact(limits=NOW, only_dead=True).num_left == 0


def test_what_was_appended_is_there_once_whoever_is_killed_and_the_dead_are_gone(machines, tmp_path, start):
    store, complaint = open_store(machines[0]), tmp_path / "complaint"
    readers = [start(read_for_ever, machine, complaint) for machine in machines]
    work = [*((ship_for_ever, machine) for machine in machines), (compact_for_ever, machines[0])]

    num_appended = write_and_kill(store, machines, work, start)
    assert all(reader.is_alive() for reader in readers), complaint.read_text()
    settle(store, machines, num_appended)

    assert store.admin.check().findings == []
    for number in range(NUM_TRAJECTORIES):
        expected = [f"{one:06}" for one in range(num_appended) if make_id(one) == make_id(number)]
        assert sorted(store.get(make_id(number)).contents) == sorted(contents_in(store, make_id(number))) == expected
    assert not [key for key in store.objects.list("") if b"secret" in unpacked(store, key)]
    before = [(row, store.get(row.trajectory_id)) for row in store.query(limit=100).items]
    assert len(before) == NUM_TRAJECTORIES
    store.admin.reindex(drop=True)
    assert [(row, store.get(row.trajectory_id)) for row in store.query(limit=100).items] == before
