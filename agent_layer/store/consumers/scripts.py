"""Declarations of the Lua scripts by which consumers claim closed groups."""

from pathlib import Path

from agent_layer.infra import CLOCK_PRELUDE, LuaScript

_LUA = Path(__file__).parent / "lua"


def _claim_script(name: str, commands: str, reads: str = "acked:*", writes: str = "claims:*") -> LuaScript:
    return LuaScript(
        file=_LUA / f"{name}.lua",
        preludes=(CLOCK_PRELUDE, _LUA / "prelude.lua"),
        commands=commands,
        reads=reads,
        writes=writes,
    )


JOIN = _claim_script("join", "get hset set zadd zrange", writes="claims:* clock")
TAKE = _claim_script(
    "take",
    "exists get hdel hget hset set sismember unlink zadd zcard zcount zrange zrangebyscore zrank zrem zscore"
    " zunionstore",
    reads="acked:* group:* groups:*",
    writes="claims:* clock feeds:*",
)
RENEW = _claim_script("renew", "get hget hset set zadd zscore", writes="claims:* clock")
POSTPONE = _claim_script("postpone", "hget zadd zrem zscore")
ACK = _claim_script("ack", "hget sadd zrange zrem zscore", reads="", writes="acked:* claims:*")

CLAIM_SCRIPTS = (JOIN, TAKE, RENEW, POSTPONE, ACK)
