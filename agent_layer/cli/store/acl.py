"""``store acl``: Redis users of least privilege, one for each role.

Gateways, workers and trainers ship what they record, each under its own user. A script runs with the rights of its
caller, so each script's declaration adds to the rights of every role that runs it. Redis 6.2 cannot grant reading a
key without writing it; a role that only reads is granted no command that writes.
"""

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple, TypeAlias, get_args

import typer

from agent_layer.dispatcher import INSPECT, LEASE_SCRIPTS, SUBMIT_SCRIPTS
from agent_layer.errors import BadInputError
from agent_layer.infra import ADVANCE_CLOCK, GREET, Keys, LuaScript, list_commands
from agent_layer.store import (
    AUDIT_ROWS,
    CLAIM_SCRIPTS,
    COMMIT,
    COUNT_ORPHAN_BITS,
    ENTER_REWARDS,
    FETCH_MEMBERS,
    FORGET,
    HOLD_BLOBS,
    MARK_COMMITTED,
    RELEASE_UNNEEDED,
    RESTORE,
    RETIRE,
)

Role: TypeAlias = Literal["gateway", "worker", "trainer", "shipper", "reader", "operator"]


def acl(
    context: typer.Context,
    role: Annotated[str | None, typer.Option(help=f"One of {', '.join(get_args(Role))}; without it, all.")] = None,
    user: Annotated[str | None, typer.Option(help="Name of the user; without it, agent-layer-ROLE.")] = None,
    redis: Annotated[float, typer.Option(min=6.2, help="Version of the server; from 7 on, rules are tighter.")] = 6.2,
) -> None:
    """Print redis-cli lines that create a Redis user for each role of this namespace."""
    if role is not None and role not in ROLES:
        raise BadInputError(f"--role {role}: expected one of {', '.join(ROLES)}; correct it")
    if user is not None and role is None:
        raise BadInputError("--user: expected --role beside it, found none; say whose rights the user is to have")
    for one in (role,) if role else ROLES:
        name = user or f"agent-layer-{one}"
        typer.echo(" ".join(("ACL", "SETUSER", name, *acl_rules(one, Keys(context.obj.namespace), redis))))
    typer.echo("then give each a password: ACL SETUSER NAME '>PASSWORD', and ACL SAVE", err=True)


class _Duty(NamedTuple):
    """A piece of work: the scripts that it runs, and what it does in Redis outside of them."""

    reads: str = ""
    """Families of keys, as in ``LuaScript``."""
    writes: str = ""
    commands: str = ""
    scripts: tuple[LuaScript, ...] = ()

    def families_read(self) -> set[str]:
        return {name for families in (self.reads, *(one.reads for one in self.scripts)) for name in families.split()}

    def families_written(self) -> set[str]:
        return {name for families in (self.writes, *(one.writes for one in self.scripts)) for name in families.split()}

    def families_declared(self) -> set[str]:
        return {name for one in self.scripts for name in one.keys}

    def all_commands(self) -> set[str]:
        return {*self.commands.split(), *list_commands(self.scripts)}


_INDEX = (
    "t:* b:* v:* values:* zones segments quarantine rewrite policies:* batches:* batch-segments runs group:* groups:*"
    " group-segments events steps"
)

_CONNECT = _Duty(commands="ping hello info cluster|slots")
_QUERY = _Duty(
    reads=f"{_INDEX} dead ordinals reindexing cooled",
    commands="get mget hget hgetall hmget hkeys hvals hscan hexists exists smembers scard zcard zmscore zrangebylex"
    " xrange xrevrange xread",
    scripts=(FETCH_MEMBERS, AUDIT_ROWS),
)
_WAIT = _Duty(writes="synced", commands="set wait hget", scripts=(GREET,))
_SHIP = _Duty(
    reads="feeds:* acked:* dead replaced:* cooled",
    writes=f"{_INDEX} ordinals outbox outbox-batch q:server q:restoring",
    commands=(
        "xrange xdel hset hdel hsetnx hget hgetall hmget sadd unlink multi exec"
        " set pexpire del exists time"  # restores the index
    ),
    scripts=(COMMIT, RESTORE, ENTER_REWARDS, MARK_COMMITTED, HOLD_BLOBS, ADVANCE_CLOCK),
)
_FOLLOW = _Duty(
    reads="outbox",
    writes="acked:* feeds:* claims:*",
    commands="xlen xread hkeys sadd smismember get time",
    scripts=CLAIM_SCRIPTS,
)
_TRAIN = _Duty(writes="trainer:*", commands="set get del")
_LEASE = _Duty(writes="q:* outbox", commands="blpop get time xread zrem hdel srem unlink", scripts=LEASE_SCRIPTS)
_SUBMIT = _Duty(writes="q:* outbox", commands="get time xread xrevrange", scripts=SUBMIT_SCRIPTS)
_WATCH_QUEUE = _Duty(reads="q:* outbox", commands="get xlen time xread xrevrange", scripts=(INSPECT,))
_WATCH_ENGINES = _Duty(
    reads="engine:* engines engine-events gateways clock",
    commands="get hgetall smembers zrange xread xrevrange time multi exec",
)
_DRIVE_ENGINES = _Duty(
    writes="engine:* engines engines-left engine-keys engine-events gateways",
    commands="hset hsetnx hincrby hget hmget hkeys hexists hdel del sadd srem xadd zadd zrem zscore zremrangebyscore"
    " multi exec watch unwatch discard",
    scripts=(ADVANCE_CLOCK,),
)
_OPEN_DOORS = _Duty(reads="q:workers", writes="data-loss operator-key", commands="get set time zcount")
_WATCH_LOSS = _Duty(reads="data-loss", commands="get")
_LINK = _Duty(reads="pages clock", commands="get zrange time")
_SHOW_PAGE = _Duty(writes="pages", commands="get zadd zrem zremrangebyscore zrange time", scripts=(ADVANCE_CLOCK,))
_MAINTAIN = _Duty(
    writes="exported:* reindexing cooled judged:* dead replaced:* merging compacting data-loss",
    commands="set del unlink srem pttl pexpire scan info hlen hstrlen strlen object|encoding memory|usage",
    scripts=(FORGET, RETIRE, RELEASE_UNNEEDED, COUNT_ORPHAN_BITS),
)

_DUTIES: dict[Role, tuple[_Duty, ...]] = {
    "gateway": (_CONNECT, _QUERY, _WAIT, _SHIP, _WATCH_ENGINES, _DRIVE_ENGINES, _OPEN_DOORS),
    "worker": (_CONNECT, _QUERY, _WAIT, _SHIP, _LEASE, _LINK),
    "trainer": (_CONNECT, _QUERY, _WAIT, _SHIP, _FOLLOW, _SUBMIT, _TRAIN, _WATCH_ENGINES, _DRIVE_ENGINES, _SHOW_PAGE),
    "shipper": (_CONNECT, _WAIT, _SHIP),
    "reader": (_CONNECT, _QUERY, _WATCH_QUEUE, _WATCH_ENGINES, _WATCH_LOSS, _LINK),
    "operator": (
        *(_CONNECT, _QUERY, _WAIT, _SHIP, _FOLLOW, _SUBMIT, _WATCH_QUEUE, _WATCH_ENGINES, _DRIVE_ENGINES),
        *(_MAINTAIN, _SHOW_PAGE, _OPEN_DOORS, _TRAIN),
    ),
}

ROLES: tuple[Role, ...] = tuple(_DUTIES)


def acl_rules(role: Role, keys: Keys, redis: float = 6.2) -> list[str]:
    """Return the rules behind ``ACL SETUSER name``; a user's passwords stay as they are.

    Args:
        role: whose rights.
        keys: of the only namespace that the rules reach.
        redis: version of the server; from 7 on, a key that is only read is not writable.
    """
    duties = _DUTIES[role]
    greeting = [] if 7 <= redis < 7.2 else ["+client|setinfo"]  # 7.0 rejects names of commands that it does not know
    commands = set[str]().union(*(duty.all_commands() for duty in duties))
    if redis >= 7.2 and "wait" in commands:
        commands.add("waitaof")
    declared = set[str]().union(*(duty.families_declared() for duty in duties))
    written = set[str]().union(*(duty.families_written() for duty in duties))
    read = set[str]().union(*(duty.families_read() for duty in duties)) - written
    return [
        *("on", "resetkeys", "resetchannels", "-@all", *greeting),
        *(f"+{name}" for name in sorted(commands)),
        *(f"~{pattern}" for pattern in _patterns(keys, written | declared)),
        *(f"{'%R' if redis >= 7 else ''}~{pattern}" for pattern in _patterns(keys, read - declared)),
    ]


def granted_scripts() -> set[LuaScript]:
    """Return all scripts that some role may run."""
    return {script for duties in _DUTIES.values() for duty in duties for script in duty.scripts}


def _patterns(keys: Keys, families: Iterable[str]) -> list[str]:
    return sorted(keys.name(family) if family else keys.name() for family in families)
