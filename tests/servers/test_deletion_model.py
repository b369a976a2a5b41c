"""Deletion against a plain model: in any order of events, deleted stays deleted, and the rest stays."""

import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from agent_layer.store.segments.format import read_footer

from ..builders import attempt, closed_group
from ..profiles import num_examples

IDS = [f"{group}.{member}-0" for group in "gh" for member in "01"]
members = st.sampled_from(IDS)
events = st.one_of(
    st.tuples(st.just("write"), st.sets(members, min_size=1)),
    st.tuples(st.just("close"), st.sampled_from("gh")),
    st.tuples(st.just("replay"), st.integers(0, 20)),
    st.tuples(st.just("delete"), members),
    st.tuples(st.just("delete_task"), st.sampled_from("gh")),
    st.tuples(st.just("keep_bytes"), members),
    st.tuples(st.just("reindex"), st.booleans()),
)


def make_attempt(tid):
    return attempt(tid, task_id=f"task-{tid[0]}", group_id=tid[0])


class Model:
    """What is alive, in a few sets."""

    def __init__(self):
        self.alive, self.dead = set(), set()
        self.closed, self.dead_groups = {}, set()

    def write(self, ids):
        self.alive |= ids - self.dead

    def close(self, group, ids):
        if group not in self.dead_groups:
            self.closed.setdefault(group, ids)

    def delete(self, ids, groups=()):
        named = {one[0] for one in ids} | set(groups)
        self.dead |= ids
        self.alive -= ids
        for group in named & self.closed.keys():
            held = set(self.closed[group]) or {one for one in self.alive if one[0] == group}
            if held <= self.dead:
                del self.closed[group]
                self.dead_groups.add(group)


class Scene:
    """The store and its model, which receive the same events."""

    def __init__(self, store, write):
        self.store, self._write, self.model = store, write, Model()
        self._written = []

    def write(self, ids):
        self._store([one for tid in sorted(ids) for one in make_attempt(tid)], ids, None)

    def close(self, group):
        ids = sorted(one for one in self.model.alive if one[0] == group)
        again = self.model.closed.get(group, ids)
        self._store(
            [closed_group(group, *again, task_id=f"task-{group}")],
            set(),
            (group, again),
        )

    def _store(self, records, ids, closing):
        self._written.append((records, ids, closing))
        self.replay(-1)

    def replay(self, number):
        if self._written:
            records, ids, closing = self._written[max(number, -1) % len(self._written)]
            self._write(*records)
            self.model.write(ids)
            if closing:
                self.model.close(*closing)

    def delete(self, tid, **options):
        if tid in self.model.alive:
            assert self.store.delete(tid, **options).num_trajectories == 1
            self.model.delete({tid})

    def keep_bytes(self, tid):
        self.delete(tid, purge=False)

    def delete_task(self, group):
        ids = {one for one in self.model.alive if one[0] == group}
        assert self.store.delete(task=f"task-{group}").num_trajectories == len(ids)
        self.model.delete(ids, [group])

    def reindex(self, drop):
        self.store.admin.reindex(drop=drop)

    def check(self):
        found = {row.trajectory_id for row in self.store.query(limit=100).items}
        assert found == self.model.alive
        assert {one.trajectory_id for one in map(self.store.get, found)} == found
        stored = {name.decode() for name in self.store.redis.zrange(self.store.keys.closed_groups("r"), 0, -1)}
        assert stored == set(self.model.closed)
        given_out = {
            one.group.group_id: [member.trajectory_id for member in one.trajectories]
            for one in self.store.follow("c", "r", wait_seconds=0)
        }
        assert given_out == {
            group: [one for one in ids if one in self.model.alive] for group, ids in self.model.closed.items()
        }


@pytest.fixture
def objects_settings(settings):
    """One kind of object store is enough here; ``test_deletion.py`` has both."""
    return settings


@hypothesis_settings(max_examples=num_examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(events, max_size=12))
def test_the_dead_stay_dead_and_the_living_stay(store, write, expected):
    forget_everything(store)
    scene = Scene(store, write)
    for name, argument in expected:
        getattr(scene, name)(argument)
        scene.check()

    for group in "gh":
        scene.delete_task(group)
    scene.check()
    left = [key for key in store.objects.list("") if key.endswith(".seg")]
    assert [chunk.owner for key in left for chunk in read_footer(store.objects, key).footer.chunks] == []


def forget_everything(store):
    """What the example before left."""
    store.redis.delete(store.keys.ordinals, *store.redis.keys(store.keys.name("*")))
    for key in list(store.objects.list("")):
        store.objects.delete(key)
