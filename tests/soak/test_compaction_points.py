"""A compaction that is killed at any point is finished by the next one: nothing lost, nothing twice, no dead byte."""

from collections import Counter
from itertools import count

import pytest

from agent_layer.infra.objects.filesystem import DirectoryObjects
from agent_layer.schema.codec import encode
from agent_layer.schema.step import Action
from agent_layer.store.maintenance.merge_plan import Limits
from agent_layer.store.store import Store

from ..builders import attempt, call, closed_group
from ..stored import keys_that_hold, mark_deleted, segment_keys, stored_records, write_segment

NOW = Limits(least_age_seconds=-1.0)
SECRET = "c4rd-4929-1853"


@pytest.fixture
def store(settings, redis):
    return Store(settings, redis, DirectoryObjects(settings.dir / "objects"))


def read_records(trajectory_id: str, text: str = "") -> list:
    return attempt(trajectory_id, *call(trajectory_id, "c", Action(), Action()), score=0.5, worker=text)


def scatter(store: Store, number: int) -> list[bytes]:
    """Write an attempt that will stay and one that will be deleted, mixed in five segments, and a group of both.

    Returns: the records that stay, as they are stored.
    """
    living, dying = read_records(f"x.{number}-0"), read_records(f"{SECRET}.{number}-0", SECRET)
    for first, second in zip(living[:-1], dying[:-1], strict=True):
        write_segment(store, first, second)
    members = [living[0].trajectory_id, dying[0].trajectory_id]
    write_segment(store, living[-1], closed_group(f"g{number}", *members), dying[-1])
    return [encode(one) for one in (*living, closed_group(f"g{number}", *members[:1]))]


@pytest.fixture
def compact_and_die(settings, redis, keys, killed_at):
    """``compact_and_die(turn)``: whether a compaction was killed at this point; False: it ended before."""

    def start(turn: int) -> bool:
        point = killed_at(turn, lambda redis, objects: Store(settings, redis, objects).admin.compact(limits=NOW))
        redis.delete(keys.compacting)  # its lock expires
        return point is not None

    return start


@pytest.mark.parametrize("dies", ["before", "after", "after, and the index is lost"])
def test_whatever_the_point_the_next_run_does_the_rest(store, compact_and_die, dies):
    """An attempt is deleted before the compaction that is killed, or after it."""
    expected: list[bytes] = []
    for turn in count(step=1 if dies == "before" else 3):
        expected += scatter(store, turn)
        if dies == "before":
            mark_deleted(store, f"{SECRET}.{turn}-0")
        was_killed = compact_and_die(turn)
        if dies != "before":
            mark_deleted(store, f"{SECRET}.{turn}-0")
        if dies == "after, and the index is lost":
            store.admin.reindex(drop=True)
        report = store.admin.compact(limits=NOW, only_dead=True)

        assert (report.num_left, report.findings) == (0, []), f"turn {turn}"
        assert not [*keys_that_hold(store, SECRET)], f"turn {turn}"
        assert set(stored_records(store)) == set(expected), f"turn {turn}"
        row = store.row(f"x.{turn}-0")
        assert (row.num_steps, row.reward, row.status) == (2, 0.5, "completed"), f"turn {turn}"
        assert len(store.get(f"x.{turn}-0").steps) == 2
        if not was_killed:
            break
    assert turn > 30
    store.admin.compact(limits=NOW)
    assert Counter(stored_records(store)) == Counter(expected)
    assert store.admin.check().findings == []
    assert len(segment_keys(store)) == store.redis.hlen(store.keys.segments)
    before = [(row, store.get(row.trajectory_id)) for row in store.query(run="r", limit=200).items]
    store.admin.reindex(drop=True)
    assert [(row, store.get(row.trajectory_id)) for row in store.query(run="r", limit=200).items] == before
