"""Acknowledgements are in Redis only: a store that runs on remembers its own."""

import pytest

from agent_layer.store import open_store

from ...builders import closed_group
from ...stored import write_segment


@pytest.fixture(scope="module")
def redis_url(own_redis_url):
    return own_redis_url


@pytest.fixture
def store(settings):
    return open_store(settings)


def forget_everything(store):
    for key in store.redis.scan_iter(match=store.keys.name("*")):
        store.redis.delete(key)
    store.admin.reindex()


def test_a_follower_gets_no_group_again_whose_acknowledgement_redis_forgot(store):
    for number in range(3):
        write_segment(store, closed_group(f"g{number}", closed_at=number))
    following = store.follow("c", "r", wait_seconds=0.05)
    for _ in range(2):
        next(following).ack()
    forget_everything(store)

    assert [delivery.group.group_id for delivery in following] == ["g2"]
    again = store.follow("c", "r", wait_seconds=0.05)
    assert [delivery.group.group_id for delivery in again] == ["g2"]


def test_nor_does_a_later_follower_of_the_store_and_it_waits_for_no_disk(store):
    for number in range(25):
        write_segment(store, closed_group(f"g{number:02}", closed_at=number))
    for delivery in store.follow("c", "r", wait_seconds=0.05):
        if delivery.group.group_id == "g11":
            break
        delivery.ack()
    store.acknowledge("c", "r", [f"g{number}" for number in range(12, 24)])
    forget_everything(store)

    store.redis.config_resetstat()
    assert [one.group.group_id for one in store.follow("c", "r", wait_seconds=0.05)] == ["g11", "g24"]
    num_waits = store.redis.info("commandstats").get("cmdstat_set", {"calls": 0})["calls"]  # each begins with one
    assert num_waits <= 2, "a follower writes the shared clock, and waits for none of the 23"
    assert next(store.follow("other", "r", wait_seconds=0.05)).group.group_id == "g00"
    assert store.redis.scard(store.keys.acked("r", "c")) == 23
