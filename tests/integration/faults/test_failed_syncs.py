"""A server whose disk fails to sync: nothing counts as durable meanwhile, and it takes writes again without a hand."""

import os
from contextlib import suppress

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from agent_layer.errors import UnreachableError
from agent_layer.infra.redis import durability
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.durability import durable_writes
from agent_layer.infra.redis.keys import Keys

from ...soak.forgetful.shim import Control, Shim, find_compiler
from ...waiting import scaled, wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_compiler() is None, reason="no C compiler for the faults"),
]


@pytest.fixture
def disk(tmp_path):
    """What the server's disk refuses."""
    return Control(tmp_path / "disk")


@pytest.fixture
def failing(settings, start_redis, tmp_path, disk):
    """``failing(make)``: settings of a server with that disk."""

    def start(make):
        url = start_redis(make, **Shim(tmp_path).environment(disk))
        return settings.model_copy(update={"redis_url": url, "retry_seconds": scaled(30.0)})

    return start


def has_failed(redis):
    return redis.info("persistence")["aof_last_write_status"] == "err"


@pytest.mark.parametrize("make", ["carried", pytest.param("redis6", marks=pytest.mark.other_make)])
def test_a_write_is_durable_only_once_the_file_that_failed_to_sync_is_written_again(
    failing, disk, make, settings, monkeypatch
):
    settings = failing(make)
    sync, num_syncs = os.fsync, 0

    def sync_after_the_server(file):
        nonlocal num_syncs
        num_syncs += 1
        if num_syncs == 1:  # the kernel told the server of the lost bytes, and will not tell us
            wait_until(lambda: has_failed(plain))
            disk.end_refusals()
        sync(file)

    with open_redis(settings) as redis, Redis.from_url(settings.redis_url) as plain:
        waits = durable_writes(redis, Keys(settings.namespace))
        waits.complete(redis, lambda: redis.set("a", 1))
        disk.refuse("EIO of syncs", scaled(60.0), 1.0)
        monkeypatch.setattr(durability.os, "fsync", sync_after_the_server)
        waits.complete(redis, lambda: redis.set("a", 2))

        facts = plain.info("persistence")
        assert num_syncs > 1
        assert facts["aof_last_write_status"] == "ok"
        assert facts["aof_last_rewrite_time_sec"] >= 0


@pytest.mark.other_make
def test_redis_7_0_says_that_it_has_to_be_restarted(failing, disk):
    settings = failing("redis7")
    with Redis.from_url(settings.redis_url) as plain:
        plain.set("a", 1)  # it has made its file
        disk.refuse("EIO of syncs", scaled(60.0), 1.0)
        with suppress(ResponseError):  # the sync of the first write may have failed already
            plain.set("a", 2)
        wait_until(lambda: has_failed(plain))
        disk.end_refusals()

    with (
        open_redis(settings.model_copy(update={"retry_seconds": 0.5})) as redis,
        pytest.raises(UnreachableError, match="restart it where a sync has failed"),
    ):
        redis.set("a", 3)
