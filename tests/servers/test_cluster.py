"""A namespace is legal in a Redis Cluster: all keys of one command are in one hash slot."""

import threading

import pytest
from redis.cluster import key_slot

from agent_layer.dispatcher import connect
from agent_layer.recorder import Recorder
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.task import Task
from agent_layer.shipper.direct import DirectDestination
from agent_layer.shipper.ship import Shipper
from agent_layer.store import open_store

from ..queues import open_queue


@pytest.fixture
def servers():
    """The cluster alone."""
    return ("directory", "redis7")


@pytest.fixture
def played(settings, keys):
    """``played()``: a task is queued, leased, recorded, shipped, accepted, shipped, followed and searched for."""

    def play():
        store, dispatcher = open_store(settings), connect(settings)
        dispatcher.submit([Task(id="a", run="r", input=1)])
        (lease,) = open_queue(dispatcher).claim("w", 1)
        own = {"trajectory_id": lease.trajectory_id, "run": "r"}
        recorder = Recorder(settings)
        recorder.append(Reward(**own, reward_id="a", at=1.0, name="a", score=1.0))
        recorder.append(Outcome(**own, status="completed", ended_at=2.0))
        recorder.close()
        open_queue(dispatcher).heartbeat("w", b"{}", [(lease, "running")])
        open_queue(dispatcher).commit(lease, Outcome(**own, status="completed", ended_at=2.0))
        destination = DirectDestination(keys, store.redis, store.objects)
        Shipper(settings.log_dir, destination, threading.Event()).ship_pending()
        for one in store.follow("c", "r", wait_seconds=0.1):
            one.ack()
        store.query(order="reward", run="r", accepted=True)
        store.admin.reindex(drop=True)
        assert store.get(lease.trajectory_id).accepted
        assert store.admin.check().findings == []
        return store

    return play


def test_a_cluster_takes_every_command(played, redis_programs):
    if "redis7" not in redis_programs:
        pytest.skip("no Redis 7 to make a cluster of")

    assert played().redis.info("cluster")["cluster_enabled"] == 1


def test_every_key_that_is_made_lies_in_the_slot_of_its_namespace(played, keys):
    found = list(played().redis.scan_iter("*"))

    assert len(found) > 10
    assert {key_slot(key) for key in found if keys.namespace.encode() in key} == {key_slot(keys.name().encode())}
    assert all(b"{" in key for key in found)
