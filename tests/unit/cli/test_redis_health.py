"""The doctor's findings about a Redis: eviction and persistence, who can reach it, whether its Lua is safe."""

import pytest

from agent_layer.cli.services.doctor import ServerFacts, has_lua_holes, judge, look_at_redis
from agent_layer.errors import BadInputError
from agent_layer.settings import Settings

SOUND = ServerFacts(
    "rediss://redis.example:6379", "redis", "8.2.2", has_aof=True, eviction="noeviction", is_open=False, wait="own file"
)


@pytest.mark.parametrize(
    ("make", "version", "has_holes"),
    [
        *(("redis", version, True) for version in ("6.2.14", "6.2.19", "7.0.15", "7.2.10", "7.4.5", "8.0.3", "8.2.1")),
        *(("redis", version, False) for version in ("6.2.20", "7.2.11", "7.4.6", "8.0.4", "8.2.2", "8.4.0", "9.0.0")),
        *(("valkey", version, True) for version in ("7.2.10", "8.0.5", "8.1.3")),
        *(("valkey", version, False) for version in ("7.2.11", "8.1.4", "9.1.2")),
    ],
)
def test_holes_in_lua_are_known_by_series_and_patch(make, version, has_holes):
    assert has_lua_holes(make, version) == has_holes


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({"has_aof": False}, "bad", "append-only file is off"),
        ({"eviction": "allkeys-lru"}, "bad", "maxmemory-policy is allkeys-lru"),
        ({"is_open": True}, "bad", "every client that reaches redis.example may do everything"),
        ({"is_torn": True}, "note", "redis-cli bgrewriteaof"),
        ({"is_open": True, "url": "rediss://127.0.0.1:1"}, "note", "may do everything"),
        ({"url": "redis://redis.example:1"}, "note", "travel readable to redis.example"),
        ({"version": "7.0.15"}, "note", "reached over the network, and it has known holes in Lua"),
    ],
)
def test_each_fault_of_a_server_is_named(changes, state, words):
    findings = list(judge(SOUND._replace(**changes)))

    assert len([one for one in findings if one.state != "ok"]) == 1
    assert any(one.state == state and words in one.finding for one in findings)


def test_a_sound_server_and_one_on_a_private_socket_have_nothing_said_against_them():
    assert [one.state for one in judge(SOUND)] == ["ok"]
    assert [one.state for one in judge(SOUND._replace(url="unix:///s", version="6.2.14", is_open=True))] == ["ok"]


def test_a_server_that_is_too_old_is_refused():
    with pytest.raises(BadInputError, match=r"expected Redis 6\.2 or newer, found 5\.0\.1"):
        list(judge(SOUND._replace(version="5.0.1")))


def test_our_own_program_is_looked_at_without_being_started(tmp_path, redis_programs):
    own = Settings(dir=tmp_path, redis_server=redis_programs["carried"])

    (found,) = look_at_redis(own)

    assert found.state == "ok"
    assert f"{redis_programs['carried']}, that redis_server names" in found.finding
    assert not list(tmp_path.iterdir())
