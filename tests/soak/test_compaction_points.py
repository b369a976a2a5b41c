"""A compaction that is killed at any point is finished by the next one: nothing lost, nothing twice, no dead byte."""

import os
import signal
from collections import Counter, defaultdict
from itertools import count
from multiprocessing import get_context

import pytest
from redis import Redis

from agent_layer.infra.objects.filesystem import DirectoryObjects
from agent_layer.schema.codec import encode, record_owner
from agent_layer.schema.group import Group
from agent_layer.schema.ids import new_id
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import AttemptStarted, Outcome
from agent_layer.schema.step import Action, StepPart
from agent_layer.store.index.deletion import apply_tombstones
from agent_layer.store.maintenance.merge_plan import Limits
from agent_layer.store.maintenance.rebuild import index_segment
from agent_layer.store.segments.format import StoredRecord, build_segment, find_frames, segment_key, unpack
from agent_layer.store.segments.tombstones import write_tombstones
from agent_layer.store.store import Store

NOW = Limits(least_age_seconds=-1.0)
SECRET = "c4rd-4929-1853"


class Fate:
    """Kills this process at its n-th turn."""

    def __init__(self, turn: int) -> None:
        self._left = turn

    def turn(self) -> None:
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


class DeadlyObjects(DirectoryObjects):
    """A turn before each change of an object, and one after."""

    fate: Fate

    def put(self, key, content):
        self.fate.turn()
        super().put(key, content)
        self.fate.turn()

    def delete(self, key):
        self.fate.turn()
        super().delete(key)
        self.fate.turn()


class DeadlyRedis(Redis):
    """A turn before each command, and one after it was carried out."""

    fate: Fate

    def execute_command(self, *args, **options):
        self.fate.turn()
        answer = super().execute_command(*args, **options)
        self.fate.turn()
        return answer


@pytest.fixture
def store(settings, redis):
    return Store(settings, redis, DirectoryObjects(settings.dir / "objects"))


def attempt_of(trajectory_id: str, text: str = "") -> list:
    own = {"trajectory_id": trajectory_id, "run": "r"}
    call = {**own, "call_id": "c", "source": "gateway"}
    return [
        AttemptStarted(**own, rollout_id=trajectory_id[:-2], attempt=0, task_id="t", started_at=1.0, worker=text),
        StepPart(**call, phase="start", at=2.0),
        StepPart(**call, phase="end", at=3.0, status="ok", actions=[Action(), Action()]),
        Reward(**own, reward_id=trajectory_id, at=3.0, score=0.5),
        Outcome(**own, status="completed", ended_at=4.0, num_calls=1),
    ]


def write(store: Store, records: list) -> None:
    owned = defaultdict(list)
    for record in records:
        owned[record_owner(record)].append(StoredRecord(record, encode(record)))
    name = new_id()
    store.objects.put(segment_key(store.keys, name), build_segment(name, owned)[0])
    index_segment(store.redis, store.keys, store.objects, name)


def scatter(store: Store, number: int) -> list[bytes]:
    """Mix a kept and a doomed trajectory in four segments, with a group of both; return the kept records."""
    living, dying = attempt_of(f"x.{number}-0"), attempt_of(f"{SECRET}.{number}-0", SECRET)
    for first, second in zip(living[:4], dying[:4], strict=True):
        write(store, [first, second])
    members = [living[0].trajectory_id, dying[0].trajectory_id]
    group = Group(group_id=f"g{number}", run="r", task_id="t", closed_at=5.0, trajectory_ids=members)
    write(store, [living[4], group, dying[4]])
    without_the_dead = Group(group_id=f"g{number}", run="r", task_id="t", closed_at=5.0, trajectory_ids=members[:1])
    return [encode(one) for one in (*living, without_the_dead)]


def kill(store: Store, *owners: str) -> None:
    apply_tombstones(store.redis, store.keys, owners, write_tombstones(store.keys, store.objects, owners, "deleted"))


def stored_in(store: Store) -> Counter[bytes]:
    """Return how often the objects contain each record."""
    records: Counter[bytes] = Counter()
    for key in store.objects.list(f"{store.keys.namespace}/seg/"):
        content = store.objects.get(key)
        for offset, size in find_frames(content)[:-1]:
            records.update(unpack(content[offset : offset + size], size, key))
    return records


def is_stored(store: Store, text: str) -> bool:
    """Whether any object holds a text, packed or not."""
    for key in store.objects.list(""):
        content = store.objects.get(key)
        frames = [content]
        if key.endswith(".seg"):
            for at, size in find_frames(content):
                frames += unpack(content[at : at + size], size, key)
        if any(text.encode() in one for one in frames):
            return True
    return False


@pytest.fixture
def compact_and_die(settings, redis, keys):
    """``compact_and_die(turn)``: whether a compaction was killed at this turn; False: it came to its end before."""

    def work(turn: int) -> None:
        objects = DeadlyObjects(settings.dir / "objects")
        deadly = DeadlyRedis(connection_pool=redis.connection_pool)
        objects.fate = deadly.fate = Fate(turn)
        Store(settings, deadly, objects).admin.compact(limits=NOW)

    def start(turn: int) -> bool:
        victim = get_context("fork").Process(target=work, args=(turn,))
        victim.start()
        victim.join()
        assert victim.exitcode in (0, -signal.SIGKILL)
        redis.delete(keys.compacting)  # its turn expires
        return victim.exitcode != 0

    return start


@pytest.mark.parametrize("dies", ["before", "after", "after, and the index is lost"])
def test_whatever_the_point_the_next_run_does_the_rest(store, compact_and_die, dies):
    """A trajectory is deleted before the killed compaction, or after it."""
    expected: list[bytes] = []
    for turn in count(step=1 if dies == "before" else 3):
        expected += scatter(store, turn)
        if dies == "before":
            kill(store, f"{SECRET}.{turn}-0")
        was_killed = compact_and_die(turn)
        if dies != "before":
            kill(store, f"{SECRET}.{turn}-0")
        if dies == "after, and the index is lost":
            store.admin.reindex(drop=True)
        report = store.admin.compact(limits=NOW, only_dead=True)

        assert (report.num_left, report.findings) == (0, []), f"turn {turn}"
        assert not is_stored(store, SECRET), f"turn {turn}"
        assert set(stored_in(store)) == set(expected), f"turn {turn}"
        row = store.row(f"x.{turn}-0")
        assert (row.num_steps, row.reward, row.status) == (2, 0.5, "completed"), f"turn {turn}"
        assert len(store.get(f"x.{turn}-0").steps) == 2
        if not was_killed:
            break
    assert turn > 30
    store.admin.compact(limits=NOW)
    assert stored_in(store) == Counter(expected)
    assert store.admin.check().findings == []
    assert len(list(store.objects.list(f"{store.keys.namespace}/seg/"))) == store.redis.hlen(store.keys.segments)
    before = [(row, store.get(row.trajectory_id)) for row in store.query(run="r", limit=200).items]
    store.admin.reindex(drop=True)
    assert [(row, store.get(row.trajectory_id)) for row in store.query(run="r", limit=200).items] == before
