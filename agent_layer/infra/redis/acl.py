"""This file holds what each role may do in Redis: the least that its work needs, as rules of Redis's own ACL.

A script runs with the rights of whoever calls it, so its commands are read from its text. Gateways, workers and
trainers ship what they record, each under its own user. Redis 6.2 tells no reading of a key from writing it;
whoever
only reads is granted no command that writes.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from agent_layer.infra.redis.keys import Keys

Role: TypeAlias = Literal["gateway", "worker", "trainer", "shipper", "reader", "operator"]

_PACKAGE = Path(__file__).parents[2]


class _Duty(NamedTuple):
    """A piece of work. Families of keys are those of ``keys.py``: a word is one key, ``word:*`` all below it."""

    reads: str = ""
    writes: str = ""
    commands: str = ""
    """What is asked outside of scripts."""
    scripts: str = ""
    """Below the package, without '.lua'."""


_INDEX = (
    "t:* b:* v:* values:* zones segments quarantine rewrite policies:* batches:* batch-segments runs group:* groups:*"
    " group-segments events"
)

_CONNECT = _Duty(commands="ping hello")
_QUERY = _Duty(
    reads=f"{_INDEX} dead ordinals reindexing",
    commands="get mget hget hgetall hmget hkeys hvals hscan hexists exists smembers scard zcard xrange xrevrange xread",
    scripts="store/scan store/find store/tally store/count store/audit",
)
_SHIP = _Duty(
    reads="feeds:* acked:* dead replaced:*",
    writes=f"{_INDEX} ordinals outbox outbox-batch claims:*:waiting blobs blob:* unneeded",
    commands="xrange xdel hset hdel hsetnx hget hgetall hmget sadd unlink multi exec",
    scripts="store/blocks store/events store/basis store/death store/merged store/commit store/rewards store/mark"
    " store/blobs",
)
_FOLLOW = _Duty(
    reads="outbox",
    writes="acked:* feeds:* claims:*",
    commands="xlen xread hkeys sadd",
    scripts=" ".join(f"store/claims/{name}" for name in ("shared", "join", "take", "renew", "postpone", "ack")),
)
_LEASE = _Duty(
    writes="q:* outbox",
    commands="xread zrem hdel srem unlink",
    scripts="dispatcher/queue dispatcher/runs dispatcher/ready dispatcher/groups dispatcher/leases dispatcher/claim"
    " dispatcher/heartbeat dispatcher/checkpoint dispatcher/settle dispatcher/reap",
)
_SUBMIT = _Duty(
    writes="q:* outbox",
    commands="xread xrevrange",
    scripts="dispatcher/queue dispatcher/runs dispatcher/ready dispatcher/groups dispatcher/leases dispatcher/add"
    " dispatcher/cancel dispatcher/reap dispatcher/states dispatcher/look dispatcher/run dispatcher/dead"
    " dispatcher/drain",
)
_WATCH_QUEUE = _Duty(
    reads="q:* outbox", commands="xlen time xread xrevrange", scripts="dispatcher/states dispatcher/look"
)
_WATCH_ENGINES = _Duty(
    reads="engine:* engines engine-events gateways", commands="hgetall smembers zrange xread xrevrange time"
)
_DRIVE_ENGINES = _Duty(
    writes="engine:* engines engine-events gateways",
    commands="hset hsetnx hincrby hget hexists del sadd srem xadd zadd zrem multi exec watch unwatch discard",
)
_CARE = _Duty(
    writes="exported:* reindexing judged:* dead replaced:* merging compacting",
    commands="set del unlink srem pttl pexpire scan info hlen hstrlen strlen object|encoding memory|usage",
    scripts="store/forget store/retire store/unneeded store/strays",
)

_DUTIES: dict[Role, tuple[_Duty, ...]] = {
    "gateway": (_CONNECT, _QUERY, _SHIP, _WATCH_ENGINES, _DRIVE_ENGINES),
    "worker": (_CONNECT, _QUERY, _SHIP, _LEASE),
    "trainer": (_CONNECT, _QUERY, _SHIP, _FOLLOW, _SUBMIT, _WATCH_ENGINES, _DRIVE_ENGINES),
    "shipper": (_CONNECT, _SHIP),
    "reader": (_CONNECT, _QUERY, _WATCH_QUEUE, _WATCH_ENGINES),
    "operator": (_CONNECT, _QUERY, _SHIP, _FOLLOW, _SUBMIT, _WATCH_QUEUE, _WATCH_ENGINES, _DRIVE_ENGINES, _CARE),
}

ROLES: tuple[Role, ...] = tuple(_DUTIES)

_DECLARED = {"store": ("",), "dispatcher": ("q", "outbox", "group:", "t:", "dead", "policies:")}
"""Keys that scripts are called with: what the names of others begin with. Redis 7 wants them writable."""

_CALL = re.compile(r"redis\.p?call\(([^,)]*)")


def rules_of(role: Role, keys: Keys, redis: float = 6.2) -> list[str]:
    """Give the rules behind ``ACL SETUSER name``; a user's passwords stay as they are.

    Args:
        role: whose.
        keys: of the namespace; no other namespace is reached.
        redis: version of the server; from 7 on, what is only read cannot be written.
    """
    duties = _DUTIES[role]
    greeting = (
        [] if 7 <= redis < 7.2 else ["+client|setinfo"]
    )  # 7.0 does not know it, and takes no name that it does not know
    commands = {name for duty in duties for name in (*duty.commands.split(), *_commands_in(duty.scripts.split()))}
    written = {name for duty in duties for name in duty.writes.split()}
    read = {name for duty in duties for name in duty.reads.split()} - written
    declared = {
        name for duty in duties for script in duty.scripts.split() for name in _DECLARED[script.partition("/")[0]]
    }
    return [
        *("on", "resetkeys", "resetchannels", "-@all", *greeting),
        *(f"+{name}" for name in sorted(commands)),
        *(f"~{pattern}" for pattern in _patterns(keys, written | declared)),
        *(f"{'%R' if redis >= 7 else ''}~{pattern}" for pattern in _patterns(keys, read - declared)),
    ]


def granted_scripts() -> set[str]:
    """All scripts that some role may run, as ``package/name``."""
    return {name for duties in _DUTIES.values() for duty in duties for name in duty.scripts.split()}


def _commands_in(scripts: list[str]) -> Iterator[str]:
    for script in scripts:
        package, _, name = script.partition("/")
        for call in _CALL.findall((_PACKAGE / package / "lua" / f"{name}.lua").read_text()):
            yield from (name.lower() for name in re.findall(r"'([A-Z]+)'", call))
    if scripts:
        yield from ("evalsha", "script|load")


def _patterns(keys: Keys, families: Iterable[str]) -> list[str]:
    return sorted(keys.name(family) if family else keys.name() for family in families)
