"""Acknowledgements are in Redis only: a follower that runs on remembers its own."""

from agent_layer.store import open_store

from ...builders import closed_group
from ...stored import write_segment


def test_a_follower_gets_no_group_again_whose_acknowledgement_redis_forgot(settings):
    store = open_store(settings)
    for number in range(3):
        write_segment(store, closed_group(f"g{number}", closed_at=number))
    following = store.follow("c", "r", wait_seconds=0.05)
    for _ in range(2):
        next(following).ack()
    for key in store.redis.scan_iter(match=store.keys.name("*")):
        store.redis.delete(key)
    store.admin.reindex()

    assert [delivery.group.group_id for delivery in following] == ["g2"]
    again = store.follow("c", "r", wait_seconds=0.05)
    assert [delivery.group.group_id for delivery in again] == ["g2"]
