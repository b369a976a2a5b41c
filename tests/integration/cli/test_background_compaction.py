"""Small segments are merged beside a running stack, within limits and never under load."""

import pytest

from agent_layer.local import run_compactor
from agent_layer.schema.ids import new_id
from agent_layer.store import Limits, open_store

from ...builders import attempt
from ...stored import write_segment

LONG_AGO, DAY = 1_790_000_000, 86_400
EAGER = {"compact_seconds": 0.05, "compact_segments": 3, "compact_load": 1e6}


@pytest.fixture
def pace():
    return EAGER


def write_old_segments(settings, num_days=1):
    """Write three segments of two trajectories for each day; return their store."""
    store = open_store(settings)
    for number in range(3 * num_days):
        at = LONG_AGO + number // 3 * DAY + number
        name = new_id(lambda at=at: at * 10**9)
        ids = ("x.0-0", "y.0-0")
        started = [record for tid in ids for record in attempt(tid, at=float(number), status="running")]
        write_segment(store, *started, name=name)
    return store


def count_segments(store):
    return store.redis.hlen(store.keys.segments)


def test_a_stack_merges_small_segments_by_itself(stack, wait_until):
    store = write_old_segments(stack.settings)

    wait_until(lambda: count_segments(store) == 1)

    assert store.count() == 2
    assert store.admin.check().findings == []


def test_nothing_is_merged_under_load_and_all_of_it_afterwards(settings, wait_until):
    settings = settings.model_copy(update=EAGER)
    store, loads = write_old_segments(settings), [1e7] * 3

    with run_compactor(settings, lambda: loads.pop() if loads else 0.0):
        wait_until(lambda: not loads or count_segments(store) != 3)
        assert not loads
        wait_until(lambda: count_segments(store) == 1)


def test_a_run_ends_at_its_limit_and_the_next_one_goes_on(settings):
    store = write_old_segments(settings, num_days=2)

    first = store.admin.compact(limits=Limits(max_bytes=1))
    second = store.admin.compact(limits=Limits(max_bytes=1))

    assert [(one.num_removed, one.num_made, one.num_deferred) for one in (first, second)] == [(3, 1, 3), (3, 1, 0)]
    assert store.count() == 2


def test_a_run_that_is_stopped_leaves_the_rest_for_the_next_one(settings):
    store, answers = write_old_segments(settings, num_days=2), [True, False]

    report = store.admin.compact(is_stopped=answers.pop)

    assert (report.num_removed, report.num_deferred, count_segments(store)) == (3, 3, 4)
