"""Blobs are deleted with their last user, down to the bytes, and never earlier."""

import base64
import random

import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from agent_layer.schema.ids import content_hash, new_id
from agent_layer.store.maintenance.gc import Grace
from agent_layer.store.maintenance.merge_plan import Limits
from agent_layer.store.segments.blob_refs import find_orphans, remove_unneeded
from agent_layer.store.segments.blobs import blob_key, blob_name, list_blobs, pack

from ..builders import attempt, content
from ..profiles import num_examples
from ..stored import lose_index, mark_deleted

AT_ONCE = Grace(seconds=-5.0)
"""Limits under which no object is too young, whatever the store's clocks."""


def picture(number):
    """The JSON string of a data URL."""
    return b'"data:image/png;base64,%b"' % base64.b64encode(random.Random(number).randbytes(6_000))


def make_attempt(tid, *bodies):
    """Return the records of an attempt that says these bodies, and is not accepted."""
    return attempt(tid, *(content(tid, body) for body in bodies))[:-1]


SHARED = content_hash(picture(1))


def remove(store, orphans=()):
    return remove_unneeded(store.redis, store.keys, store.objects, orphans)


def blobs_in(store):
    return sorted(list_blobs(store.keys, store.objects))


def orphans_in(store):
    return find_orphans(store.redis, store.keys, store.objects, blobs_in(store))


def shows(store, trajectory_id):
    return store.get(trajectory_id).contents[SHARED] == picture(1)


def test_a_blob_goes_with_the_last_trajectory_that_needs_it(store, ship):
    ship(*make_attempt("x.0-0", picture(1), picture(2)), *make_attempt("x.1-0", picture(1)))

    mark_deleted(store, "x.0-0")
    assert len(remove(store)) == 1
    assert shows(store, "x.1-0")

    mark_deleted(store, "x.1-0")
    assert len(remove(store)) == 1
    assert (blobs_in(store), remove(store)) == ([], [])
    assert store.redis.keys(store.keys.name("blob*")) == []


def test_a_deletion_takes_the_blob_with_it(store, ship):
    ship(*make_attempt("x.0-0", picture(1), picture(2)), *make_attempt("x.1-0", picture(1)))

    store.delete("x.0-0")
    assert len(blobs_in(store)) == 1
    assert shows(store, "x.1-0")

    store.delete("x.1-0")
    assert blobs_in(store) == []


def test_garbage_is_what_nobody_needs_and_is_old(store, ship):
    ship(*make_attempt("x.0-0", picture(1)))
    orphan = blob_name(b'"nobody"')
    store.objects.put(blob_key(store.keys, orphan), pack(b'"nobody"'))

    assert store.admin.collect_garbage().removed == []
    [would_go] = store.admin.collect_garbage(grace=AT_ONCE, dry_run=True).removed
    [gone] = store.admin.collect_garbage(grace=AT_ONCE).removed

    assert would_go.key == gone.key == blob_key(store.keys, orphan)
    assert orphan not in blobs_in(store)
    assert shows(store, "x.0-0")


def test_a_compaction_carries_references_along(store, ship):
    for number in range(3):
        ship(*make_attempt("x.0-0", picture(number)), *make_attempt(f"x.{number + 1}-0"))

    store.admin.compact(limits=Limits(least_age_seconds=-1.0))
    store.admin.reindex(drop=True)

    assert len(list(store.objects.list(f"{store.keys.namespace}/seg/"))) == 1
    assert shows(store, "x.0-0")
    assert store.admin.check().findings == []


def test_the_same_content_gets_a_new_blob_after_that(store, ship):
    ship(*make_attempt("x.0-0", picture(1)))
    [old] = blobs_in(store)
    mark_deleted(store, "x.0-0")
    remove(store)

    ship(*make_attempt("x.1-0", picture(1)))

    assert old not in blobs_in(store)
    assert shows(store, "x.1-0")
    assert store.admin.check().findings == []


def test_who_shows_the_same_before_the_removal_saves_the_blob(store, watched, ship):
    ship(*make_attempt("x.0-0", picture(1)))
    mark_deleted(store, "x.0-0")
    ship(*make_attempt("x.1-0", picture(1)))

    assert remove(store) == []
    assert len(watched.blobs("put")) == 1
    assert shows(store, "x.1-0")


def test_a_removal_that_is_slow_does_not_hit_who_comes_meanwhile(store, watched, ship):
    ship(*make_attempt("x.0-0", picture(1)))
    mark_deleted(store, "x.0-0")
    watched.before["delete blob"] = lambda: ship(*make_attempt("x.1-0", picture(1)))

    assert len(remove(store)) == 1

    assert shows(store, "x.1-0")


@pytest.mark.parametrize("moment", ["put blob", "put segment"])
def test_a_removal_between_the_steps_of_a_shipper_takes_nothing_that_it_counts_on(store, watched, moment, ship):
    ship(*make_attempt("x.0-0", picture(1)))
    watched.before[moment] = lambda: (mark_deleted(store, "x.0-0"), remove(store))

    ship(*make_attempt("x.1-0", picture(1), picture(2)))

    assert shows(store, "x.1-0")
    assert store.admin.check().findings == []


@pytest.mark.parametrize("moment", ["put blob", "put segment"])
def test_who_dies_while_it_is_shipped_leaves_no_blob(store, watched, moment, ship):
    ship(*make_attempt("x.0-0"))
    watched.before[moment] = lambda: (mark_deleted(store, "x.0-0"), remove(store))

    ship(*make_attempt("x.0-0", picture(1)))

    remove(store)
    assert blobs_in(store) == []


def test_nothing_is_stored_for_the_dead(store, watched, ship):
    mark_deleted(store, "x.0-0")

    ship(*make_attempt("x.0-0", picture(1)))

    assert watched.blobs("put") == []


def test_a_shipper_that_died_before_its_segment_is_followed_by_one_that_uses_its_blob(store, watched, ship):
    records, name = list(make_attempt("x.0-0", picture(1))), new_id()
    watched.before["put segment"] = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        ship(*records, name=name)
    assert (orphans_in(store), remove(store)) == ([], [])

    ship(*records, name=name)

    assert len(blobs_in(store)) == 1
    assert len(watched.blobs("put")) == 2  # whether the first put succeeded was not known
    assert shows(store, "x.0-0")


def test_blobs_that_no_one_knows_of_are_orphans_once_all_segments_are_indexed(store, watched, ship):
    ship(*make_attempt("x.0-0", picture(1)))
    watched.before["put segment"] = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        ship(*make_attempt("x.1-0", picture(2)))
    lose_index(store)
    assert orphans_in(store) == []  # a segment that is not indexed may need any of them

    store.admin.reindex()
    [orphan] = orphans_in(store)

    assert remove(store, [orphan, *blobs_in(store)]) == [orphan]
    assert shows(store, "x.0-0")


def test_nothing_is_removed_while_the_index_is_rebuilt(store, ship):
    ship(*make_attempt("x.0-0", picture(1)), *make_attempt("x.1-0", picture(1)))
    mark_deleted(store, "x.0-0")
    lose_index(store)

    store.admin.reindex(progress=lambda *_: remove(store, blobs_in(store)))

    assert remove(store, blobs_in(store)) == []
    assert shows(store, "x.1-0")


def test_a_rebuild_does_not_bring_back_the_needs_of_the_dead(store, ship):
    ship(*make_attempt("x.0-0", picture(1)))
    mark_deleted(store, "x.0-0")
    lose_index(store)
    store.admin.reindex()

    assert len(remove(store)) == 1
    assert blobs_in(store) == []


deeds = st.sampled_from(["ship", "ship", "kill", "remove", "reindex", "drop"])
moments = st.sampled_from(["put blob", "put segment", "delete blob"])
moves = st.tuples(deeds, st.integers(0, 3), st.sets(st.integers(0, 2), max_size=2))


@pytest.mark.parametrize("servers", [("directory", "carried")], indirect=True)  # S3 shows nothing else, and slowly
@hypothesis_settings(max_examples=num_examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(st.tuples(moves, moments, moves), max_size=8))
def test_whatever_happens_in_the_middle_of_whatever_the_living_show_all_and_the_dead_nothing(
    store, watched, history, ship
):
    life = f"r{new_id()}"
    shown: dict[str, set[str]] = {}
    dead: set[str] = set()
    watched.requests.clear()

    def do(deed, number, pictures):
        trajectory_id = f"{life}.{number}-0"
        if deed == "ship":
            bodies = [picture(f"{life} {one}") for one in sorted(pictures)]
            if trajectory_id not in dead:
                shown.setdefault(trajectory_id, set()).update(map(content_hash, bodies))
            ship(*make_attempt(trajectory_id, *bodies))
        elif deed == "kill":
            dead.add(trajectory_id)
            shown.pop(trajectory_id, None)
            mark_deleted(store, trajectory_id)
        elif deed == "remove":
            remove(store)
        else:
            store.admin.reindex(drop=deed == "drop")

    for outer, moment, inner in history:
        watched.before[moment] = lambda inner=inner: do(*inner)
        do(*outer)
        watched.before.clear()
    remove(store)

    for trajectory_id, pictures in shown.items():
        assert store.get(trajectory_id).contents.keys() == pictures
    mark_deleted(store, *shown)
    remove(store)
    assert not set(blobs_in(store)).intersection(watched.blobs("put"))
