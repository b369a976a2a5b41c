"""Redis connections, retry, scripts, key names, rights, and the embedded server."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.infra.redis.client import AsyncRedis as AsyncRedis
    from agent_layer.infra.redis.client import open_async_redis as open_async_redis
    from agent_layer.infra.redis.client import open_redis as open_redis
    from agent_layer.infra.redis.embedded import find_redis_server as find_redis_server
    from agent_layer.infra.redis.embedded import is_redis_running as is_redis_running
    from agent_layer.infra.redis.keys import Keys as Keys
    from agent_layer.infra.redis.retry import RedisUnreachableError as RedisUnreachableError
    from agent_layer.infra.redis.scripts import LuaScript as LuaScript
    from agent_layer.infra.redis.scripts import list_commands as list_commands
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.infra.redis.client": (
                "AsyncRedis",
                "open_async_redis",
                "open_redis",
            ),
            "agent_layer.infra.redis.embedded": ("find_redis_server", "is_redis_running"),
            "agent_layer.infra.redis.keys": ("Keys",),
            "agent_layer.infra.redis.retry": ("RedisUnreachableError",),
            "agent_layer.infra.redis.scripts": (
                "LuaScript",
                "list_commands",
            ),
        },
    )
