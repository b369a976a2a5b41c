"""The list of server makes for these tests; a missing one is named here."""

import pytest
from redis import Redis


@pytest.mark.parametrize(("name", "versions"), [("carried", {7}), ("redis7", range(7, 100)), ("redis6", {6})])
def test_the_contract_runs_over_redis_of_this_make(started_redis, name, versions):
    with Redis.from_url(started_redis(name)) as redis:
        server = redis.info()

    assert int(server["redis_version"].partition(".")[0]) in versions  # Valkey reports a compatible Redis version
    assert server["aof_enabled"] == 1
    assert server["maxmemory_policy"] == "noeviction"
