"""The compaction plan: which segments are merged, and that planning terminates."""

import pytest
from hypothesis import given, strategies as st

from agent_layer.schema.ids import id_timestamp, new_id
from agent_layer.store.maintenance.merge_plan import (
    Limits,
    find_day,
    may_replace,
    merged_name,
    needs_rewrite,
    plan_packs,
)

DAY = 86_400
NOW = 20_000.5 * DAY
LIMITS = Limits(small_bytes=100, target_bytes=500, least_age_seconds=60.0)


def name_at(seconds: float) -> str:
    return new_id(lambda: int(seconds * 1e9)) + "-host-1"


ages = st.integers(0, 3 * DAY)
stores = st.lists(st.tuples(ages, st.integers(1, 900), st.booleans()), max_size=40).map(
    lambda found: [(name_at(NOW - age), size, needs_rewrite) for age, size, needs_rewrite in found]
)


def plan(found):
    sizes = {name: size for name, size, _ in found}
    due = {name for name, _, due in found if due}
    return sizes, due, plan_packs(sizes, due, LIMITS, NOW)


@given(stores)
def test_each_segment_is_touched_once_and_all_that_are_due_are(found):
    _, due, packs = plan(found)
    touched = [name for pack in packs for name in pack]

    assert len(touched) == len(set(touched))
    assert due <= set(touched)


@given(stores)
def test_a_pack_is_of_one_day_in_order_of_time_and_not_too_large(found):
    sizes, _, packs = plan(found)

    for pack in packs:
        assert len({find_day(name) for name in pack}) == 1
        assert pack == sorted(pack)
        assert len(pack) == 1 or sum(sizes[name] for name in pack) <= LIMITS.target_bytes


@given(stores)
def test_what_is_young_or_large_is_left_alone_unless_it_is_due(found):
    sizes, due, packs = plan(found)

    for name in {name for pack in packs for name in pack} - due:
        assert sizes[name] < LIMITS.small_bytes
        assert NOW - id_timestamp(name) >= LIMITS.least_age_seconds


@given(stores)
def test_merging_without_need_at_least_doubles_what_each_byte_lies_in(found):
    sizes, due, packs = plan(found)

    for pack in packs:
        if not due.intersection(pack):
            assert len(pack) > 1
            assert 2 * max(sizes[name] for name in pack) <= sum(sizes[name] for name in pack)


@given(st.lists(st.tuples(ages, st.integers(1, 99)), max_size=60))
def test_runs_come_to_an_end_and_leave_few_small_segments_of_a_day(found):
    sizes = {name_at(NOW - 61 - age): size for age, size in found}
    for _ in range(20):
        packs = plan_packs(sizes, (), LIMITS, NOW + DAY)
        if not packs:
            break
        for pack in packs:
            total = sum(sizes.pop(name) for name in pack)
            sizes[merged_name(pack, str(total).encode())] = total
    else:
        raise AssertionError("always something to do")

    for day in {find_day(name) for name in sizes}:
        total = sum(size for name, size in sizes.items() if find_day(name) == day)
        small = [name for name, size in sizes.items() if find_day(name) == day and size < LIMITS.small_bytes]
        assert len(small) <= 8 * (1 + total // LIMITS.target_bytes)


class CountedSizes(dict):
    """Sizes that count how often they are read."""

    num_reads = 0

    def __getitem__(self, name):
        self.num_reads += 1
        return super().__getitem__(name)


@pytest.mark.parametrize(
    "size_at", [lambda _: 1, lambda at: 1 + at % 90, lambda at: 2 ** (at // 25)], ids=["equal", "mixed", "doubling"]
)
def test_each_size_is_read_a_few_times_however_many_segments_there_are(size_at):
    limits = Limits(small_bytes=2**2_000, target_bytes=2**2_001, least_age_seconds=60.0)
    sizes = CountedSizes({name_at(NOW - 61 - at): size_at(at) for at in range(16_000)})

    packs = plan_packs(sizes, (), limits, NOW)

    assert sum(map(len, packs)) > 0.99 * len(sizes)
    assert sizes.num_reads <= 4 * len(sizes)


@given(st.lists(ages, min_size=1, max_size=5), st.binary(max_size=4))
def test_a_merged_segment_lies_in_the_day_of_the_newest_and_never_replaces_itself(found, digest):
    names = [name_at(NOW - age) for age in found]

    merged = merged_name(names, digest)

    assert find_day(merged) == max(map(find_day, names))
    assert merged not in names
    assert merged[:10] >= max(names)[:10]
    assert may_replace(merged)
    assert not any(map(may_replace, names))
    assert merged == merged_name(list(reversed(names)), digest)
    assert merged_name([merged], digest) != merged


def test_a_segment_is_due_when_half_of_it_is_dead_or_some_of_it_for_long():
    sizes = {"a": 60, "b": 40}

    assert not needs_rewrite(sizes, {}, LIMITS, NOW)
    assert not needs_rewrite(sizes, {"b": NOW}, LIMITS, NOW)
    assert needs_rewrite(sizes, {"a": NOW}, LIMITS, NOW)
    assert needs_rewrite(sizes, {"b": NOW - DAY}, LIMITS, NOW)
    assert needs_rewrite(sizes, {"member of a group": NOW - DAY}, LIMITS, NOW)
