"""Declarations of the Lua scripts of the index: every change of it."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from agent_layer.infra import LuaScript
from agent_layer.store.segments.fields import COLUMNS, FIELDS, MAX_LISTED, rest_name
from agent_layer.store.segments.scripts import KEY_PRELUDE

_LUA = Path(__file__).parent / "lua"

INDEX_PRELUDE = (KEY_PRELUDE, _LUA / "prelude.lua")
"""How rows are indexed in bitmaps and columns; scripts of maintenance begin with it, too."""

_EVENTS, _REWARD_BASIS, _BLOB_REFS, _DEATH, _MERGED, _ACCEPTED = (
    _LUA / f"{name}.lua" for name in ("events", "reward_basis", "blob_refs", "death", "merged", "accepted")
)


def _lua_list(names: Iterable[str]) -> str:
    return "{" + ", ".join(f"'{name}'" for name in names) + "}"


def _lua_table(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name} = {value}" for name, value in values.items()) + "}"


_LISTED = (str(field.bitmap) for field in FIELDS if field.is_listed)
INDEX_CONSTANTS = "".join(
    f"local {name} = {table}\n"
    for name, table in {
        "COLUMNS": _lua_list(COLUMNS),
        "SINGLE": _lua_table({one.name: f"'{one.bitmap}'" for one in FIELDS if one.bitmap and one.kind == "text"}),
        "LISTS": _lua_table({one.name: f"'{one.bitmap}'" for one in FIELDS if one.bitmap and one.kind == "json"}),
        "COUNTED": _lua_table(dict.fromkeys((*_LISTED, "bucket"), "true")),
        "REST": _lua_table({str(one.bitmap): f"'{rest_name(str(one.bitmap))}'" for one in FIELDS if one.is_bounded}),
        "MAX_LISTED": str(MAX_LISTED),
    }.items()
)
"""Lua tables that prelude.lua needs: columns; field → bitmap of its one value, or of each value in its JSON list; names
of the bitmaps whose values are listed. Rewards lie in buckets, which are listed, too. REST: bitmap of a bounded field →
that of all values beyond MAX_LISTED."""

_COMMIT_CONSTANTS = "".join(
    f"local {name} = {_lua_list(field.name for field in FIELDS if field.origin == origin)}\n"
    for name, origin in {"OPENING": "started", "ENDING": "outcome"}.items()
)

_ROWS = "t:* b:* v:* values:* zones events"

FETCH_MEMBERS = LuaScript(file=_LUA / "members.lua", preludes=(KEY_PRELUDE,), commands="getrange hget", reads="b:*")

COMMIT = LuaScript(
    file=_LUA / "commit.lua",
    constants=INDEX_CONSTANTS + _COMMIT_CONSTANTS,
    preludes=(*INDEX_PRELUDE, _EVENTS, _REWARD_BASIS, _BLOB_REFS, _DEATH, _MERGED, _ACCEPTED),
    commands="bitcount bitpos del exists expire get getbit hdel hexists hget hgetall hkeys hmget hset hsetnx hvals sadd"
    " scard set setbit setnx setrange sismember srem xadd zadd zrem",
    reads="dead replaced:* feeds:* acked:*",
    writes=f"{_ROWS} ordinals rewrite runs policies:* batches:* batch-segments group:* groups:* group-segments blob:*"
    " blobs unneeded claims:*:waiting steps",
)
RESTORE = LuaScript(
    file=_LUA / "restore.lua",
    constants=INDEX_CONSTANTS,
    preludes=(*INDEX_PRELUDE, _EVENTS, _BLOB_REFS, _ACCEPTED),
    commands="bitcount bitpos exists expire get getbit hexists hget hmget hset sadd scard set setbit setnx setrange"
    " sismember xadd zadd",
    reads="dead replaced:*",
    writes=f"{_ROWS} ordinals runs blob:* blobs steps group:*",
)
ENTER_REWARDS = LuaScript(
    file=_LUA / "rewards.lua",
    constants=INDEX_CONSTANTS,
    preludes=(*INDEX_PRELUDE, _EVENTS, _REWARD_BASIS),
    commands="bitpos del hdel hget hmget hset hvals sadd scard setbit setnx setrange sismember srem xadd",
    writes=f"{_ROWS} steps",
)
MARK_COMMITTED = LuaScript(
    file=_LUA / "mark.lua",
    preludes=(KEY_PRELUDE, _MERGED),
    commands="get hexists hget hset sadd",
    reads="replaced:* q:server",
    writes="segments rewrite",
)
FORGET = LuaScript(
    file=_LUA / "forget.lua",
    constants=INDEX_CONSTANTS,
    preludes=(*INDEX_PRELUDE, _EVENTS, _BLOB_REFS, _DEATH),
    commands="bitpos del exists get hdel hget hkeys hmget hset hsetnx sadd scard setbit setnx setrange sismember srem"
    " xadd zrem",
    writes=f"{_ROWS} dead rewrite group:* groups:* group-segments blob:* unneeded",
)
RETIRE = LuaScript(
    file=_LUA / "retire.lua",
    preludes=(KEY_PRELUDE,),
    commands="hdel hexists hget hset",
    reads="dead",
    writes="t:* group-segments batch-segments",
)
