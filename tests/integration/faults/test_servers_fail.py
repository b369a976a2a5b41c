"""S3 that refuses, hangs or disconnects, Redis that refuses writes: shipping resumes afterwards, nothing is lost."""

import pytest
from redis import Redis

from agent_layer.errors import UnreachableError
from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.recorder import Recorder, open_recorder
from agent_layer.schema.reward import Reward
from agent_layer.store.store import open_store

from ...waiting import scaled
from .conftest import REFUSALS, patient

MOODS = ("hangs", "resets", *REFUSALS)


def mostly_long(*moods):
    """Return all moods; a usual run tries only these, because all kinds of refusal take the same way."""
    return [mood if mood in moods else pytest.param(mood, marks=pytest.mark.long) for mood in MOODS]


def reward(name: str) -> Reward:
    return Reward(trajectory_id="r.0-0", reward_id=name, run="r", at=1.0, name=name, score=1.0)


@pytest.mark.parametrize("mood", mostly_long("hangs", "resets", "is full", "says it is corrupt"))
def test_what_s3_does_not_take_stays_in_the_log_and_arrives_later(s3_settings, proxy, ship_here, mood):
    recorder = Recorder(s3_settings)
    name = recorder.append(reward("a"))
    recorder.close()
    proxy.mood = mood

    with pytest.raises(UnreachableError, match="expected to store"):
        ship_here(open_objects(s3_settings))
    assert not recorder.is_settled(name)
    assert 2 <= proxy.num_spoiled <= 12

    proxy.mood = None
    assert ship_here(open_objects(patient(s3_settings))) == 1
    assert recorder.is_settled(name)
    assert [one.name for one in open_store(patient(s3_settings)).get("r.0-0").rewards] == ["a"]


def test_a_shipper_outlives_an_outage_of_s3(s3_settings, proxy, shipper_output, wait_until):
    proxy.mood = "is broken"
    settings = s3_settings.model_copy(update={"retry_seconds": scaled(1.0)})  # a slow answer is another complaint
    recorder = open_recorder(settings)
    recorder.append(reward("a"))

    wait_until(lambda: "shipping failed" in shipper_output(settings))
    assert recorder.flush(timeout=1.0).pending == 1
    proxy.mood = None
    assert recorder.flush(timeout=scaled(60)).pending == 0
    assert shipper_output(settings).count("shipping failed") == 1


@pytest.mark.parametrize("mood", MOODS)
def test_whoever_asks_s3_directly_gets_one_sentence_after_a_few_attempts(s3_settings, proxy, mood):
    objects = open_objects(s3_settings)
    proxy.mood = mood

    with pytest.raises(UnreachableError, match=r"expected to read 'key', found .*; see ") as refused:
        objects.get("key")
    assert "\n" not in str(refused.value)
    assert 1 <= proxy.num_spoiled <= 12


@pytest.mark.parametrize("mood", mostly_long("hangs", "slows down", "has forgotten who we are"))
def test_a_short_fault_of_s3_is_not_noticed(s3_settings, proxy, mood):
    hangs = {"retry_seconds": scaled(2.0)}  # each time for half of that
    objects = open_objects(s3_settings.model_copy(update=hangs) if mood == "hangs" else patient(s3_settings))
    objects.put("key", b"content")
    proxy.mood, proxy.num_spoils_left = mood, 2

    assert objects.get("key") == b"content"


@pytest.mark.parametrize(
    ("spoil", "mend"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
        (("CLIENT", "PAUSE", "60000", "WRITE"), ("CLIENT", "UNPAUSE")),
    ],
    ids=["is out of memory", "is read-only", "stands still"],
)
def test_what_redis_does_not_take_stays_in_the_log_and_arrives_later(settings, own_redis, spoil, mend):
    own_settings = settings.model_copy(update={"redis_url": own_redis.url})
    with Redis.from_url(own_settings.redis_url) as redis:
        redis.execute_command(*spoil)
        recorder = open_recorder(own_settings)
        recorder.append(reward("a"))

        assert recorder.flush(timeout=1.0).pending == 1
        redis.execute_command(*mend)
        assert recorder.flush(timeout=scaled(60)).pending == 0
        store = open_store(own_settings)
        assert [one.name for one in store.get("r.0-0").rewards] == ["a"]
        assert store.admin.check().findings == []
