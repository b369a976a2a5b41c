"""Large groups are launched, cancelled and closed in slices; where a process dies between two, others go on.

At every slice a group keeps its promises: it closes once and with all of its members, what it decided is final, and
nothing of it is leased or accepted that is to be cancelled.
"""

import pytest

from agent_layer.dispatcher import LEASE_SCRIPTS, SUBMIT_SCRIPTS, Report
from agent_layer.dispatcher.scripts import Scripts
from agent_layer.errors import LeaseLostError
from agent_layer.schema import encode

from ...builders import closed_group

SIZE = 40
SLICES = range(0, 24, 3)
"""Slices after which the process dies, up to more than any of these groups needs."""


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch):
    for script in {*LEASE_SCRIPTS, *SUBMIT_SCRIPTS}:
        monkeypatch.setitem(script.__dict__, "text", script.text.replace("local budget = 150", "local budget = 7"))


@pytest.fixture
def die_after(monkeypatch):
    """``die_after(3)``: the process goes on for three slices, then dies."""
    finish = Scripts._finish

    def set_limit(num):
        def stop_early(scripts, num_unfinished):
            for _ in range(num):
                if num_unfinished:
                    _, num_unfinished = scripts._reap_once()

        monkeypatch.setattr(Scripts, "_finish", stop_early if num is not None else finish)

    return set_limit


def go_on(harness):
    """Another process looks for work, as idle workers do."""
    while harness.redis.exists(harness.keys.queue("unfinished")):
        assert harness.claim(worker="idle", run="no run") == []


def group_entries(harness, group_id):
    return [entry for entry in harness.decisions("group") if entry["group_id"] == group_id]


def assert_nothing_is_left(harness, group_id):
    queue = harness.keys.queue
    assert harness.redis.exists(queue("unfinished"), queue("members", group_id)) == 0
    assert int(harness.redis.get(queue("num_unfilled")) or 0) == 0
    assert harness.dispatcher.stats().num_queued == int(harness.redis.get(queue("num_waiting")) or 0) == 0
    assert harness.redis.ttl(queue("g", group_id)) > 0


@pytest.mark.parametrize("num_slices", SLICES)
def test_a_group_that_is_launched_in_part_has_all_its_members_and_closes_with_all(harness, die_after, num_slices):
    die_after(num_slices)
    group_id = harness.add(group_size=SIZE)

    assert harness.dispatcher.stats().num_queued == SIZE
    assert harness.statuses(group_id) == ["queued"] * SIZE
    assert harness.dispatcher.inspector.tally([harness.group(group_id)]) == [{"queued": SIZE}]
    assert harness.add(group_size=SIZE) == group_id
    while leases := harness.claim(3):
        for lease in leases:
            harness.end(lease)

    go_on(harness)
    (entry,) = group_entries(harness, group_id)
    assert entry["members"].split(",") == [f"{group_id}.{member}-0" for member in range(SIZE)]
    assert entry["fill"] == "whole"
    assert_nothing_is_left(harness, group_id)


@pytest.mark.parametrize("num_slices", SLICES)
@pytest.mark.parametrize("is_launched", [True, False])
def test_surplus_is_refused_and_not_leased_before_it_is_cancelled(harness, die_after, num_slices, is_launched):
    die_after(None if is_launched else 1)
    group_id = harness.add(group_size=5, launch=SIZE)
    leases = harness.claim(20) if is_launched else harness.claim(8)
    die_after(num_slices)
    for lease in leases[:5]:
        harness.end(lease)

    assert isinstance(harness.end(leases[6]), LeaseLostError)
    assert isinstance(harness.end(leases[5], "retry"), LeaseLostError)
    harness.lapse(leases[7])
    assert harness.claim(3) == []
    go_on(harness)

    (entry,) = group_entries(harness, group_id)
    assert entry["members"].split(",") == [lease.trajectory_id for lease in leases[:5]]
    assert (entry["num_launched"], entry["num_usable"]) == (str(SIZE), "5")
    assert sorted(harness.statuses(group_id)) == ["cancelled"] * (SIZE - 5) + ["completed"] * 5
    assert (harness.run().num_surplus, harness.run().num_leased, harness.run().num_accepted) == (SIZE - 5, 0, 5)
    assert len(harness.decisions("accepted")) == 5
    assert_nothing_is_left(harness, group_id)


@pytest.mark.parametrize("num_slices", SLICES)
def test_a_group_that_is_cancelled_in_part_leases_accepts_and_revives_nothing(harness, die_after, num_slices):
    group_id = harness.add(group_size=SIZE, partial="refill")
    first, done, dead, other_dead, held = harness.claim(5)
    harness.end(done)
    harness.end(dead, "dead")
    harness.end(other_dead, "dead")
    die_after(num_slices)

    assert harness.dispatcher.cancel([group_id]) == SIZE - 1
    assert harness.dispatcher.cancel([group_id]) == 0
    assert isinstance(harness.end(held), LeaseLostError)
    assert isinstance(harness.end(first, "release"), LeaseLostError)
    assert harness.queue.scripts.retry_dead([dead.rollout_id]) == ["closed"]
    assert harness.dispatcher.drop_dead([dead.rollout_id, other_dead.rollout_id]) == 2
    assert harness.claim(3) == []
    go_on(harness)

    (entry,) = group_entries(harness, group_id)
    assert (entry["members"], entry["fill"], entry["num_launched"]) == (done.trajectory_id, "short", str(SIZE + 2))
    assert harness.run().num_cancelled == SIZE - 1
    assert harness.statuses(group_id).count("cancelled") == SIZE - 1
    assert_nothing_is_left(harness, group_id)
    assert not harness.redis.hexists(harness.keys.queue("g", group_id), "task")


def test_more_groups_than_one_script_goes_on_with_all_end(harness, die_after):
    group_ids = [harness.add(f"t{number}", group_size=9) for number in range(30)]
    die_after(0)
    assert harness.dispatcher.cancel(group_ids) == 30 * 9

    go_on(harness)

    assert [len(group_entries(harness, group_id)) for group_id in group_ids] == [1] * 30


@pytest.mark.parametrize("num_slices", SLICES)
def test_groups_that_close_and_groups_that_are_launched_share_a_slice(harness, die_after, num_slices):
    die_after(0)
    closing = [harness.add(f"c{number}", group_size=SIZE) for number in range(3)]
    launched = [harness.add(f"l{number}", group_size=SIZE) for number in range(3)]
    die_after(num_slices)
    harness.dispatcher.cancel(closing)
    go_on(harness)

    assert [harness.statuses(group_id) for group_id in launched] == [["queued"] * SIZE] * 3
    leases = harness.claim(4 * SIZE)
    members = [f"{group_id}.{member}" for group_id in launched for member in range(SIZE)]
    assert sorted(lease.rollout_id for lease in leases) == sorted(members)
    assert [len(group_entries(harness, group_id)) for group_id in closing] == [1] * 3
    assert int(harness.redis.get(harness.keys.queue("num_unfilled"))) == 0


def test_a_name_that_no_group_has_any_more_holds_up_no_caller(harness):
    harness.redis.sadd(harness.keys.queue("unfinished"), "gone")
    group_id = harness.add(group_size=SIZE)

    assert harness.dispatcher.cancel([group_id]) == SIZE
    assert not harness.redis.exists(harness.keys.queue("unfinished"))


def test_a_lease_that_lapses_in_a_group_that_closes_ends_once(harness, die_after):
    group_id = harness.add(group_size=2, launch=SIZE)
    leases = harness.claim(8)
    die_after(0)
    for lease in leases[:2]:
        harness.end(lease)
    leases_of_queue, parting = harness.keys.queue("leases"), harness.keys.queue("parting")
    harness.redis.zadd(leases_of_queue, {lease.rollout_id: 0 for lease in leases[2:]}, xx=True)
    assert harness.queue.reap() > 0
    go_on(harness)
    harness.redis.zadd(parting, {lease.rollout_id: 0 for lease in leases[2:]}, xx=True)
    harness.queue.reap()

    assert harness.group(group_id).is_closed
    ended = [one["trajectory_id"] for kind in ("lost", "cancelled") for one in harness.decisions(kind)]
    assert sorted(ended) == sorted(lease.trajectory_id for lease in leases[2:])


@pytest.mark.parametrize("num_slices", SLICES)
def test_a_group_whose_record_this_server_forgot_is_adopted_in_slices(harness, die_after, num_slices):
    group_id = harness.add(group_size=SIZE)
    leases = harness.claim(8)
    members = [f"{group_id}.{member}-{member % 3}" for member in range(SIZE) if member % 4]
    record = closed_group(group_id, *members, group_size=SIZE, fill="short", num_usable=len(members))
    harness.redis.set(harness.keys.group(group_id), encode(record))
    die_after(num_slices)

    assert isinstance(harness.end(leases[0]), LeaseLostError)
    assert num_slices > 6 or not harness.group(group_id).is_closed
    assert isinstance(harness.end(leases[5]), LeaseLostError)
    go_on(harness)

    assert group_entries(harness, group_id) == []
    assert harness.statuses(group_id) == ["completed" if member % 4 else "cancelled" for member in range(SIZE)]
    assert (harness.group(group_id).num_accepted, harness.group(group_id).num_usable) == (len(members), len(members))
    assert_nothing_is_left(harness, group_id)


def test_reports_are_settled_in_pages(harness, monkeypatch):
    num_reports, settle = [], Scripts.settle
    monkeypatch.setattr(Scripts, "settle", lambda *given: num_reports.append(len(given[1])) or settle(*given))
    harness.add(group_size=150)
    leases = [lease for _ in range(3) for lease in harness.claim(50)]

    assert harness.queue.settle([Report(lease=lease, ending="release") for lease in leases]) == [None] * 150
    assert num_reports == [64, 64, 22]
