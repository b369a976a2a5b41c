"""Declarations of the Lua scripts by which consumers claim closed groups."""

from pathlib import Path

from agent_layer.infra import LuaScript

_LUA = Path(__file__).parent / "lua"


def _claim_script(name: str, commands: str, reads: str = "acked:*", writes: str = "claims:*") -> LuaScript:
    return LuaScript(
        file=_LUA / f"{name}.lua", preludes=(_LUA / "prelude.lua",), commands=commands, reads=reads, writes=writes
    )


JOIN = _claim_script("join", "hset time zadd zrange")
TAKE = _claim_script(
    "take",
    "exists get hdel hget hset sismember time unlink zadd zcard zcount zrange zrangebyscore zrank zrem zscore"
    " zunionstore",
    reads="acked:* group:* groups:*",
    writes="claims:* feeds:*",
)
RENEW = _claim_script("renew", "hget hset time zadd zscore")
POSTPONE = _claim_script("postpone", "hget zadd zrem zscore")
ACK = _claim_script("ack", "hget sadd zrange zrem zscore", reads="", writes="acked:* claims:*")

CLAIM_SCRIPTS = (JOIN, TAKE, RENEW, POSTPONE, ACK)
