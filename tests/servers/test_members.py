"""Members of one consumer: each group belongs to one live member until it is acknowledged.

To let a member lapse, a test sets it back on the server's clock; ``integration/faults`` kills real members.
"""

import threading

import pytest

from agent_layer.errors import BackPressureError, BadInputError, LeaseLostError
from agent_layer.schema.rollout import Group

from ..waiting import join, scaled


def group(group_id, closed_at):
    return Group(group_id=group_id, run="r", task_id="t", closed_at=closed_at)


@pytest.fixture
def objects_settings(settings):
    """One kind of object store is enough here: claims lie in Redis."""
    return settings


@pytest.fixture
def follow(store):
    """``follow(member)``: an iterator over the groups that are ready for this member."""
    return lambda member, **how: store.follow("c", "r", **{"wait_seconds": 0, "member": member} | how)


@pytest.fixture
def lapse(redis, keys):
    """``lapse(member)``: what ``claim_seconds`` without a word from it do."""
    return lambda member: redis.zadd(keys.claims("r", "c", "train", "members"), {member: 0}, xx=True)


def ids(deliveries):
    return [one.group.group_id for one in deliveries]


def test_many_members_get_every_group_once(write, follow):
    write(*(group(f"g{number}", float(number)) for number in range(60)))
    seen = []

    def work(member):
        for one in follow(member, wait_seconds=0.2):
            seen.append(one.group.group_id)
            assert one.ack() == "acked"

    threads = [threading.Thread(target=work, args=[f"m{number}"]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        join(thread)

    assert sorted(seen) == sorted(f"g{number}" for number in range(60))


def test_members_take_turns_in_order_of_closing(write, follow):
    write(group("h", 2.0), group("g", 1.0), group("i", 3.0))
    one, other = follow("one"), follow("other")

    assert ids([next(one), next(other), next(one)]) == ["g", "h", "i"]
    assert list(other) == []


def test_a_member_is_given_no_group_ahead_of_need(write, follow, redis, keys):
    write(group("g", 1.0), group("h", 2.0))
    member = follow("one")

    delivery = next(member)

    assert redis.zrange(keys.claims("r", "c", "train", "held", "one"), 0, -1) == [b"g"]
    assert delivery.is_held()


def test_what_a_lapsed_member_held_goes_to_another_in_its_order(write, follow, lapse):
    write(group("g", 1.0), group("h", 2.0), group("i", 3.0))
    one = follow("one")
    slept = [next(one), next(one)]

    lapse("one")
    taken = list(follow("other"))

    assert ids(taken) == ["g", "h", "i"]
    assert [delivery.is_held() for delivery in slept + taken] == [False, False, True, True, True]


def test_a_late_acknowledgement_counts_and_the_holder_can_see_it(write, follow, lapse):
    write(group("g", 1.0))
    slept = next(follow("one"))
    lapse("one")
    other = follow("other")
    taken = next(other)

    assert slept.ack() == "late"
    assert not taken.is_held()
    assert (taken.ack(), slept.ack()) == ("again", "again")
    assert list(follow("other")) == list(follow("third")) == []


def test_a_lapsed_member_is_one_again_when_it_wakes(write, follow, lapse):
    write(group("g", 1.0), group("h", 2.0))
    one = follow("one")
    next(one)
    lapse("one")
    other = follow("other")
    assert next(other).group.group_id == "g"

    woken = next(one)

    assert woken.group.group_id == "h"
    assert list(other) == []
    assert woken.ack() == "acked"


def test_a_member_that_starts_again_gets_back_at_once_what_is_its_own(write, follow):
    write(group("g", 1.0), group("h", 2.0), group("i", 3.0))
    one, other = follow("one"), follow("other")
    before = [next(one), next(other)]

    again = follow("one", max_unacked=1)
    assert next(again).group.group_id == "g"
    with pytest.raises(LeaseLostError, match="give each process a member name of its own"):
        next(one)

    assert ids(other) == ["i"]
    assert [delivery.is_held() for delivery in before] == [False, True]
    assert before[0].ack() == "late"
    assert list(follow("one")) == []


def test_a_member_waits_when_it_holds_as_many_as_it_may(write, follow, wait_until):
    write(group("g", 1.0), group("h", 2.0), group("i", 3.0))
    held, waiting = [], follow("one", wait_seconds=scaled(60), max_unacked=1)

    def take_two():
        held.append(next(waiting))
        held.append(next(waiting))

    taking = threading.Thread(target=take_two)
    taking.start()
    wait_until(lambda: held)
    assert ids(follow("other", max_unacked=None)) == ["h", "i"]
    write(group("j", 4.0))
    held[0].ack()
    join(taking)

    assert ids(held) == ["g", "j"]


def test_a_member_that_never_acknowledges_is_told(write, follow):
    write(group("g", 1.0), group("h", 2.0))
    member = follow("one", max_unacked=1)
    kept = next(member)

    with pytest.raises(BackPressureError, match="holds 1 groups"):
        next(member)

    kept.ack()
    assert ids(follow("one", max_unacked=1, stop=lambda: False)) == ["h"]
    with pytest.raises(BadInputError, match="at least 1"):
        follow("one", max_unacked=0)


def test_a_member_that_starts_again_gets_what_is_left_of_its_own(write, follow, store):
    write(group("g", 1.0), group("h", 2.0), group("i", 3.0))
    one = follow("one")
    assert ids([next(one), next(one)]) == ["g", "h"]
    again = store.read_groups("c", "r", limit=1, member="one")

    store.acknowledge("c", "r", ["g"])

    assert ids(again) == ["g"]
    assert ids(store.read_groups("c", "r", member="one")) == ["h", "i"]
    more = follow("one", max_unacked=2)
    store.acknowledge("c", "r", ["h"])
    assert ids(more) == ["i"]
    with pytest.raises(LeaseLostError):
        store.read_groups("c", "r", member="one")


@pytest.mark.parametrize("name", ["", "a:b", "a b", "/"])
def test_a_name_that_cannot_stand_in_a_key_is_refused(store, name):
    with pytest.raises(BadInputError, match="choose another name"):
        store.follow(name, "r")
    with pytest.raises(BadInputError, match="choose another name"):
        store.follow("c", "r", member=name)


def test_members_without_a_name_share(write, follow):
    write(group("g", 1.0), group("h", 2.0))
    one, other = follow("auto"), follow("auto")

    assert ids([next(one), next(other)]) == ["g", "h"]
