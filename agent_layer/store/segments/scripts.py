"""Declarations of the Lua scripts that count which trajectories need a blob."""

from pathlib import Path

from agent_layer.infra import LuaScript

_LUA = Path(__file__).parent / "lua"

KEY_PRELUDE = _LUA / "keys.lua"
"""Names of keys, and which owners are deleted; the scripts of the index begin with it, too."""

HOLD_BLOBS = LuaScript(
    file=_LUA / "blobs.lua",
    preludes=(KEY_PRELUDE,),
    commands="hexists hget hset hsetnx sadd",
    reads="dead",
    writes="t:* blob:* blobs",
)
RELEASE_UNNEEDED = LuaScript(
    file=_LUA / "unneeded.lua",
    preludes=(KEY_PRELUDE,),
    commands="exists hdel hexists hget sadd srandmember srem",
    reads="dead reindexing",
    writes="blob:* blobs unneeded",
)
