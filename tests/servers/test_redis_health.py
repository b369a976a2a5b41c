"""``agent-layer doctor`` asks a Redis of any make how it is set up."""

import pytest
from redis import Redis

from agent_layer.cli.services.doctor import look_at_redis
from agent_layer.infra.processes.addresses import free_port
from agent_layer.settings import Settings


@pytest.mark.parametrize("name", ["carried", pytest.param("redis6", marks=pytest.mark.other_make)])
def test_a_server_that_runs_is_asked(start_redis, name):
    url = f"redis://127.0.0.1:{(port := free_port())}"
    with Redis.from_url(start_redis(name, "--port", str(port), "--bind", "127.0.0.1")) as admin:
        open_to_all = {one.finding.partition(";")[0]: one.state for one in look_at_redis(Settings(redis_url=url))}
        admin.config_set("requirepass", "secret")
        admin.config_set("maxmemory-policy", "allkeys-lru")
        guarded = list(look_at_redis(Settings(redis_url=url.replace("//", "//:secret@"))))

    assert open_to_all["every client that reaches 127.0.0.1 may do everything in it"] == "note"
    assert any("known holes" in finding for finding in open_to_all) == (name == "redis6")
    assert [one.state for one in guarded if "maxmemory-policy" in one.finding] == ["bad"]
    assert not any("may do everything" in one.finding or "secret" in one.finding for one in guarded)
