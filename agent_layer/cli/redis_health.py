"""This file holds what the doctor says of Redis: how old it is, what it forgets, and who can reach it."""

import subprocess
from collections.abc import Iterator
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from agent_layer.cli.diagnosis import Diagnosis
from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.settings import Settings
from agent_layer.store.clients import open_redis
from agent_layer.store.embedded import find_redis_server

__all__ = ["ServerFacts", "has_lua_holes", "judge", "look_at_redis"]

_OLDEST = (6, 2)
_MENDED = {
    "redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}
"""First patch of each series without CVE-2024-31449, 2024-46981, 2025-46817, -46818, -46819 and -49844: holes in Lua,
through which a script takes over the server. A series between these was never mended; one after the last never had
them."""

_HOLES = "it has known holes in Lua (CVE-2025-49844 among them) unless your distribution mended them"


class ServerFacts(NamedTuple):
    """What a Redis that runs is like."""

    url: str
    make: str
    """redis or valkey."""
    version: str
    has_aof: bool
    eviction: str
    is_open: bool
    """Whoever reaches it may do everything."""


def look_at_redis(settings: Settings) -> Iterator[Diagnosis]:
    """Look at the server that the settings name, or at the program of our own."""
    try:
        yield from judge(_ask(settings, settings.redis_url)) if settings.redis_url else _judge_own(settings)
    except AgentLayerError as error:
        yield Diagnosis("redis", "bad", str(error))


def judge(facts: ServerFacts) -> Iterator[Diagnosis]:
    """Say what is wrong with a server, or could be better."""
    _check_age(facts.url, facts.version)
    if facts.has_aof:
        yield Diagnosis("redis", "ok", f"{facts.make} {facts.version}, append-only file on")
    else:
        finding = "its append-only file is off, so that a crash forgets what was queued"
        yield Diagnosis("redis", "bad", f"{finding}; run 'redis-cli config set appendonly yes'")
    if facts.eviction != "noeviction":
        finding = f"its maxmemory-policy is {facts.eviction}, so that it may drop any key"
        yield Diagnosis("redis", "bad", f"{finding}; run 'redis-cli config set maxmemory-policy noeviction'")
    yield from _judge_reach(facts)


def has_lua_holes(make: str, version: str) -> bool:
    """Whether this version came out before the known holes in Lua were mended."""
    major, minor, patch = _parts(version)
    mended = _MENDED[make]
    return patch < mended[major, minor] if (major, minor) in mended else (major, minor) < max(mended)


def _judge_reach(facts: ServerFacts) -> Iterator[Diagnosis]:
    parts = urlsplit(facts.url)
    is_local = parts.scheme == "unix" or parts.hostname in ("localhost", "127.0.0.1", "::1", None)
    if parts.scheme != "unix" and facts.is_open:
        finding = f"whoever reaches {parts.hostname} may do everything in it"
        remedy = "give each role a user, as 'agent-layer store acl' prints them"
        yield Diagnosis("redis", "note" if is_local else "bad", f"{finding}; {remedy}")
    if parts.scheme == "redis" and not is_local:
        yield Diagnosis("redis", "note", f"passwords and records travel readable to {parts.hostname}; use rediss://")
    if parts.scheme != "unix" and has_lua_holes(facts.make, facts.version):
        yield Diagnosis(
            "redis", "note", f"{facts.version} is reached over the network, and {_HOLES}; install a newer one"
        )


def _judge_own(settings: Settings) -> Iterator[Diagnosis]:
    program = find_redis_server(settings)
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    version = answer.partition("v=")[2].partition(" ")[0]
    _check_age(program, version)
    yield Diagnosis("redis", "ok", f"{version} at {program}, started when it is needed")
    if has_lua_holes("valkey" if "alkey" in answer else "redis", version):
        yield Diagnosis("redis", "note", f"{_HOLES}; it is served on a private socket only")


def _ask(settings: Settings, url: str) -> ServerFacts:
    with open_redis(settings) as redis:
        server = cast("dict[str, object]", redis.info())  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    is_valkey = "valkey_version" in server
    return ServerFacts(
        url=url,
        make="valkey" if is_valkey else "redis",
        version=str(server["valkey_version" if is_valkey else "redis_version"]),
        has_aof=bool(server.get("aof_enabled")),
        eviction=str(server.get("maxmemory_policy", "noeviction")),
        is_open=not url.startswith("unix:") and _is_open(url, settings.connect_seconds),
    )


def _is_open(url: str, limit_seconds: float) -> bool:
    """Whether it answers who says no password."""
    parts = urlsplit(url)
    anonymous = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    limits = {"socket_connect_timeout": limit_seconds, "socket_timeout": limit_seconds}
    stranger = Redis.from_url(anonymous, retry=Retry(NoBackoff(), 0), **limits)  # pyright: ignore[reportUnknownMemberType]  # untyped
    with stranger:
        try:
            return bool(stranger.ping())  # pyright: ignore[reportUnknownMemberType]
        except RedisError:
            return False


def _check_age(subject: str, version: str) -> None:
    if _parts(version)[:2] < _OLDEST:
        raise BadInputError(f"{subject}: expected Redis 6.2 or newer, found {version}; install a newer one")


def _parts(version: str) -> tuple[int, int, int]:
    major, minor, patch = (int(part) for part in f"{version}.0.0".split(".")[:3])
    return major, minor, patch
