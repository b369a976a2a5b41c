"""Infrastructure: Redis, object stores, processes. The only importers of redis, boto3 and ctypes."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "backoff": "Backoff",
        "batches": "batched",
        "busy_clock": "BusyClock",
        "counts": "format_count format_number mean quantile",
        "extras": "find_extra install_command",
        "files": "make_beside make_private replace_file sync_path write_beside",
        "lines": "LineReader append_line read_lines",
        "objects.base": "ObjectEntry ObjectStore",
        "objects.filesystem": "open_objects",
        "objects.memory": "MemoryObjects",
        "processes.addresses": "free_port is_free is_listening is_responding reachable_host",
        "processes.detached": "LOCK_DESCRIPTOR Detached start_detached",
        "processes.file_limit": "raise_file_limit",
        "processes.locks": "hold_alone hold_lock is_locked share_lock try_lock",
        "processes.marked": "kill_marked",
        "processes.owned_directories": (
            "find_owned_directories hold_owned_directory is_owned_directory_held make_owned_directory"
            " remove_stale_directories remove_tree"
        ),
        "processes.pulse": "probe_pulse read_pulse write_pulse",
        "processes.reaper": (
            "KILL_NOW REAPER_PROGRAM ChildExitPipe become_subreaper die_with_parent exit_like kill_descendants"
            " list_children reap"
        ),
        "processes.restart": "RestartHistory RestartPolicy",
        "processes.supervised": "ORPHAN_SECONDS SupervisedProcess start_supervised supervised_command",
        "redis.client": "AsyncRedis open_async_redis open_redis",
        "redis.clock": "ADVANCE_CLOCK CLOCK_PRELUDE SharedClock",
        "redis.durability": "GREET WaitKind durable_writes greet_again may_be_torn read_server_change"
        " rewrite_torn_file",
        "redis.embedded": "is_redis_running temporary_home",
        "redis.key_table": "describe_lost",
        "redis.keys": "Keys",
        "redis.programs": "find_redis_server",
        "redis.retry": "RedisUnreachableError",
        "redis.scripts": "LuaScript list_commands",
    },
)
