"""A consumer's feed: splits stay apart; rebuilds, deletions and lost answers change nothing."""

import pytest
from redis import Redis

from agent_layer.store.consumers.claims import Claims, Consumer
from agent_layer.store.index.deletion import apply_tombstones
from agent_layer.store.segments.format import segment_key

from ..builders import attempt, closed_group


def closed(group_id, closed_at, *trajectory_ids, **fields):
    return closed_group(group_id, *trajectory_ids, closed_at=closed_at, **fields)


@pytest.fixture
def objects_settings(settings):
    """One kind of object store is enough here: claims lie in Redis."""
    return settings


@pytest.fixture
def follow(store):
    """``follow(member)``: an iterator over the groups that are ready for this member."""
    return lambda member, **how: store.follow("c", "r", **{"wait_seconds": 0, "member": member} | how)


def ids(deliveries):
    return [one.group.group_id for one in deliveries]


def test_splits_do_not_touch_each_other(write, store):
    write(closed("a", 1.0), closed("b", 2.0, split="eval"), closed("c", 3.0), closed("d", 4.0, split="eval"))

    def ready(member, **how):
        return list(store.follow("c", "r", wait_seconds=0, member=member, **how))

    for one in ready("one", max_unacked=2):
        one.ack()
    held = next(store.follow("c", "r", "eval", wait_seconds=0, member="one"))

    assert held.group.group_id == "b"
    assert ready("two") == []
    assert ids(ready("both", split=None)) == ["d"]
    write(closed("late", 0.5, split="eval"), closed("early", 0.6))
    assert ids(ready("both", split=None)) == ["d", "late", "early"]


def test_acknowledgements_and_claims_survive_a_rebuild(write, follow, store):
    write(*(closed(name, float(at)) for at, name in enumerate("ghijk")))
    one = follow("one")
    done, held, _ = next(one), next(one), next(follow("other"))
    done.ack()

    store.admin.reindex(drop=True)
    assert held.is_held()
    third = follow("third")
    assert ids(third) == ["j", "k"]

    write(closed("late", 0.1))
    store.admin.reindex(drop=True)
    assert ids(one) == ["late"]
    assert ids(follow("other")) == ["i"]
    assert held.ack() == "acked"


def test_groups_that_somebody_else_acknowledges_do_not_come(write, follow, store):
    write(closed("g", 1.0), closed("h", 2.0), closed("i", 3.0))
    held = next(follow("one"))

    store.acknowledge("c", "r", ["g", "h", "unknown"])
    store.acknowledge("c", "r", [])

    assert not held.is_held()
    assert held.ack() == "again"
    assert ids(follow("one")) == ["i"]
    assert ids(store.follow("another", "r", wait_seconds=0)) == ["g", "h", "i"]


@pytest.mark.parametrize(
    ("wanted", "expected"), [("a", "abcd"), ("c", "cabd"), ("d", "dabc"), ("later", "dabc"), ("unknown", "dabc")]
)
def test_a_wanted_group_comes_first_and_one_that_has_not_closed_holds_no_other_up(write, follow, wanted, expected):
    write(*(closed(name, float(at)) for at, name in enumerate("abc")))
    assert ids(follow("one")) == [*"abc"]
    write(closed("d", 4.0))

    delivered = []
    for one in follow("one", wanted=lambda: "" if wanted in delivered else wanted):
        delivered.append(one.group.group_id)  # noqa: PERF401  # it is read while it grows

    assert delivered == [*expected]


def test_a_trajectory_that_cannot_be_read_is_named_and_holds_nobody_up(write, store, follow):
    spoiled = segment_key(store.keys, write(*attempt("a.0-0")))
    write(*attempt("a.1-0"), closed("g", 1.0, "a.0-0", "a.1-0"), closed("h", 2.0))
    content = store.objects.get(spoiled)
    store.objects.put(spoiled, b"x" * len(content))

    first, second = follow("one")

    assert (first.unreadable, [one.trajectory_id for one in first.trajectories]) == (["a.0-0"], ["a.1-0"])
    assert (second.group.group_id, second.unreadable) == ("h", [])


def test_deleted_trajectories_are_left_out_and_hold_nobody_up(write, store, follow):
    write(*attempt("a.0-0"), *attempt("gone.0-0"), closed("g", 1.0, "a.0-0", "gone.0-0"), closed("h", 2.0, "gone.0-0"))
    write(closed("i", 3.0, "not-indexed.0-0"), closed("j", 4.0), closed("k", 0.5))
    held = [next(follow("other"))]

    apply_tombstones(store.redis, store.keys, ["gone.0-0", "group:j", "group:k"], 5.0)

    assert [(one.group.group_id, [t.trajectory_id for t in one.trajectories]) for one in follow("one")] == [
        ("g", ["a.0-0"]),
        ("h", []),
    ]
    assert ids(held) == ["k"]
    assert list(follow("other")) == []


def test_one_group_that_waits_for_its_trajectories_holds_no_other_up(write, follow):
    write(closed("g", 1.0, "a.0-0"), closed("h", 1.0), closed("i", 1.0, "b.0-0"), closed("j", 2.0))
    one = follow("one")
    assert ids(one) == ["h", "j"]

    write(*attempt("a.0-0"), closed("late", 0.5))

    assert ids(follow("one")) == ["h", "j", "late", "g"]


def test_an_answer_that_was_lost_is_given_again(write, settings, keys):
    class Resending(Redis):
        """Sends each script twice and returns the second answer: what a client does when the first one is lost."""

        def execute_command(self, *args, **options):
            if args[0] == "EVALSHA":
                super().execute_command(*args, **options)
            return super().execute_command(*args, **options)

    write(closed("g", 1.0), closed("h", 2.0))
    client = Resending.from_url(settings.redis_url)
    claims = Claims(client, keys, Consumer("c", "r"), 30.0)
    claims.join()

    assert [claims.take("", None, None).group.group_id for _ in range(2)] == ["g", "h"]
    assert claims.take("", None, None) == "none"
    client.close()


def test_a_look_costs_the_same_however_many_groups_were_acknowledged(write, follow, store, redis):
    write(*(closed(f"g{number:04}", float(number)) for number in range(2_000)))
    store.acknowledge("c", "r", [f"g{number:04}" for number in range(1_999)])

    def num_commands():
        return sum(one["calls"] for one in redis.info("commandstats").values())

    def cost_of_a_look(member):
        before = num_commands()
        assert list(member) == []
        return num_commands() - before

    members = [follow("one") for _ in range(5)]
    assert next(members[0]).ack() == "acked"
    costs = [cost_of_a_look(member) for member in members]
    assert min(costs) < 50, "the least: shippers of earlier tests may still be ending"
