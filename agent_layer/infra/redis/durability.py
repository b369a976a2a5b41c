"""Waits until Redis cannot forget what it has answered.

A server that syncs its append-only file once a second forgets the last one or two at a power loss, and a replica that
is promoted lacks what had not reached it. What was decided therefore leaves Redis only behind one of these waits:

    always     the server syncs before it answers: no wait
    own file   we can read its append-only file: we sync it ourselves (milliseconds)
    WAITAOF    from Redis 7.2 and Valkey 8 on: up to a second where the server syncs once a second
    age        any other server: until it says that a sync which began later has ended; two seconds if it says nothing

Each new connection greets its server. So a change of the server is known before the first command to the new one.
"""

import hashlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar, cast

from redis import Redis
from redis.connection import AbstractConnection
from redis.exceptions import NoPermissionError, NoScriptError, ReadOnlyError, ResponseError

from agent_layer.infra.redis.keys import Keys
from agent_layer.infra.redis.retry import RedisUnreachableError
from agent_layer.infra.redis.scripts import LuaScript
from agent_layer.schema import new_id

T = TypeVar("T")
WaitKind: TypeAlias = Literal["always", "own file", "WAITAOF", "age"]

GREET = LuaScript(
    file=Path(__file__).parent / "lua" / "greet.lua",
    commands="hmget hset",
    writes="q:server",
)

AGE_SECONDS = 2.0
"""A server that syncs once a second has synced after this time (``flushAppendOnlyFile`` postpones a write for 2 s)."""
_MAX_BLOCK_MS = 1_000
"""A wait is cut into blocks of this length, below the socket's time limit."""
_POLL_SECONDS = 0.001
_SYNC_SECONDS = 1.25
"""A server that syncs once a second, when the second of its clock changes, has begun within this time."""
_SYNC_POLL_SECONDS = 0.02
_WHOLE_VALKEY = 9
_REWRITE_SECONDS = 5.0
_MARK_SECONDS = 2.5
"""Time for a write to appear in the append-only file, before the file is looked for again."""


class DurableWrites:
    """The waits of one client's processes; threads that sync the file at the same time share one.

    See ``durable_writes``.

    Args:
        keys: of the namespace.
        num_replicas: replicas that must hold a write before it counts.
        seconds: longest wait.
    """

    def __init__(self, keys: Keys, num_replicas: int = 0, seconds: float = 30.0) -> None:
        self._keys = keys
        self._num_replicas = num_replicas
        self._seconds = seconds
        self.server_id = ""
        """Run id of the server that the newest connection leads to; empty: not known."""
        self._process_id = ""
        self._kind: WaitKind | None = None
        self._options: dict[str, str] = {}
        """What the server says of its append-only file."""
        self._files: dict[int, int] = {}
        """Descriptors of its files, by inode: the kernel reports a lost write to those that were open then."""
        weakref.finalize(self, _close_files, self._files)
        self._lock = threading.Lock()
        self._num_begun = self._num_done = 0

    def greet(self, connection: AbstractConnection) -> None:
        """Begin a connection, and note a server that is not the one before; redis-py calls this."""
        connection.on_connect()
        server = _read_server(connection)
        if (server_id := server.get("run_id", "")) != self.server_id:
            _send_greeting(connection, self._keys, server_id)
            self.server_id, self._process_id, self._kind = server_id, server["process_id"], None

    def complete(self, redis: Redis, write: Callable[[], T]) -> T:
        """Call ``write`` and return its result once Redis cannot forget it; where the server changes, call it again.

        Args:
            redis: client of the writes.
            write: writes, or reads what others wrote; it does no harm twice.

        Raises: RedisUnreachableError: the server did not sync in time, or too few replicas have it.
        """
        if not self.server_id:
            redis.ping()  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        while True:
            server_id = self.server_id
            result = write()
            self.wait(redis)
            if server_id == self.server_id:
                return result

    def wait(self, redis: Redis) -> None:
        """Wait until all that the server has answered so far is durable. See ``complete``."""
        num_begun = self._num_begun
        with self._lock:
            if self._num_done > num_begun:  # a wait began and ended meanwhile
                return
            self._num_begun += 1
            number, kind = self._num_begun, self.find_kind(redis)
            if kind in ("always", "own file"):
                self._wait(redis, kind)
                self._num_done = number
                return
        self._wait(redis, kind)  # for up to some seconds, side by side with others

    def find_kind(self, redis: Redis) -> WaitKind:
        """Return how this server is waited for."""
        if self._kind is None:
            redis.ping()  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py; a connection tells of its server
            self._kind = self._probe(redis)
        return self._kind

    def _probe(self, redis: Redis) -> WaitKind:
        options = self._options = _read_options(redis)
        if options.get("appendonly") == "yes" and options.get("appendfsync") == "always":
            return "always"
        try:
            if options.get("appendonly") != "no" and _is_local(redis) and self._sync_file(redis):
                return "own file"
            self._wait_for_server(redis, "WAITAOF", 1)
        except (ResponseError, RedisUnreachableError) as error:
            if not _is_refusal(error):
                raise
            return "age"  # it does not know the command, has no append-only file, or this user may not
        return "WAITAOF"

    def _wait(self, redis: Redis, kind: WaitKind) -> None:
        match kind:
            case "always":
                pass
            case "own file":
                if not self._sync_file(redis):
                    self._kind = None
                    raise RedisUnreachableError(
                        f"Redis: expected a write to appear in its append-only file within {_MARK_SECONDS:g} s, found"
                        " none; see the server's log"
                    )
            case "WAITAOF":
                self._wait_for_server(redis, "WAITAOF", 1)
                return
            case "age":
                self._wait_for_sync(redis)
        if self._num_replicas:
            self._wait_for_server(redis, "WAIT")

    def _wait_for_server(self, redis: Redis, command: Literal["WAIT", "WAITAOF"], *local: int) -> None:
        """Write, then wait on the same connection: the server waits for that connection's writes, and all before."""
        deadline, block_ms = time.monotonic() + self._seconds, min(_MAX_BLOCK_MS, round(self._seconds * 500))
        while True:
            pipeline = redis.pipeline(transaction=False)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
            pipeline.set(self._keys.synced, new_id())
            pipeline.execute_command(command, *local, self._num_replicas, block_ms)  # pyright: ignore[reportUnknownMemberType]
            answer = cast("list[int | list[int]]", pipeline.execute())[1]
            synced = answer if isinstance(answer, list) else [answer]
            if all(num >= wanted for num, wanted in zip(synced, [*local, self._num_replicas], strict=True)):
                return
            if time.monotonic() > deadline:
                raise RedisUnreachableError(
                    f"Redis: expected its newest writes on disk and at {self._num_replicas} replicas within"
                    f" {self._seconds:g} s, found {command} at {synced}; look after disk and replicas, or lower"
                    " AGENT_LAYER_REDIS_REPLICAS"
                )

    def _wait_for_sync(self, redis: Redis) -> None:
        """Wait until a sync that began after this call has ended; where the server does not tell, give it time.

        Once no sync runs, all that was answered is in the file, and the next second brings a sync of it. After one that
        failed, the server has to write its file again.
        """
        deadline, idle_since = time.monotonic() + self._seconds, None
        while True:
            facts = _read_persistence(redis)
            if not facts.get("aof_enabled"):
                time.sleep(AGE_SECONDS)
                return
            now = time.monotonic()
            if facts["aof_last_write_status"] != "ok":
                idle_since = None
                rewrite_unsynced_file(redis)
            elif facts["aof_pending_bio_fsync"] == 0:
                idle_since = idle_since or now
                if now - idle_since >= _SYNC_SECONDS:
                    return
            if now > deadline:
                raise RedisUnreachableError(
                    f"Redis: expected its newest writes on disk within {self._seconds:g} s, found that its syncs take"
                    " longer; look after its disk"
                )
            time.sleep(_SYNC_POLL_SECONDS)

    def _sync_file(self, redis: Redis) -> bool:
        """Write, find it in the append-only file, and sync that; False where it does not appear.

        A write that was answered may still be in the server's memory, because it writes nothing while it syncs. The
        kernel reports a failure once, to the server or to us, so our sync counts only if none of the server's failed.

        Raises: RedisUnreachableError: syncs fail for as long as a wait may last, or this user may not begin a new file.
        """
        deadline, mark, sizes = time.monotonic() + _MARK_SECONDS, "", dict[int, int]()
        latest = time.monotonic() + self._seconds
        while time.monotonic() < deadline:
            try:
                self._open_files()
            except FileNotFoundError:  # rewritten meanwhile
                continue
            if not self._files:
                return False
            found = {inode: os.fstat(file).st_size for inode, file in self._files.items()}
            if found.keys() != sizes.keys() or any(found[inode] < size for inode, size in sizes.items()):
                mark, sizes = new_id(), found  # first, or the server restarted or rewrites its file
                redis.set(self._keys.synced, mark)
                deadline = time.monotonic() + _MARK_SECONDS
            if any(_contains(file, sizes[inode], mark) for inode, file in self._files.items()):
                error = _sync_files(self._files.values())
                if error is None and not _has_failed_sync(_read_persistence(redis)):
                    return True
                is_rewritten = rewrite_unsynced_file(redis) if error is None else _rewrite_file(redis, self._seconds)
                if time.monotonic() > latest or (error and not is_rewritten):
                    raise RedisUnreachableError(
                        f"Redis: expected its newest writes on disk within {self._seconds:g} s, found that its"
                        f" append-only file is not synced ({error or 'the server says so'}); look after its disk"
                    )
                mark, sizes = "", {}
            time.sleep(_POLL_SECONDS)
        return False

    def _open_files(self) -> None:  # kept: raises in its caller's try
        """Open the files to which the server appends now, and close the others. Raises: FileNotFoundError."""
        paths = {path.stat().st_ino: path for path in self._find_files()}
        _close_files(self._files, keep=paths)
        for inode, path in paths.items():
            if inode not in self._files:
                self._files[inode] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _find_files(self) -> list[Path]:
        return _list_files(self._options) if self._options else _list_open_files(self._process_id)


def durable_writes(redis: Redis, keys: Keys) -> DurableWrites:
    """Return the waits of the client's connections, or, for a client that ``open_redis`` did not make, new ones."""
    greet = redis.connection_pool.connection_kwargs.get("redis_connect_func")
    owner = getattr(greet, "__self__", None)
    return owner if isinstance(owner, DurableWrites) else DurableWrites(keys)


def read_server_change(redis: Redis, keys: Keys) -> bytes:
    """Return the name of the server's last change; empty after it was emptied, until ``greet_again``.

    As long as it stays the same, the server forgets nothing: a step that relies on earlier ones compares it.
    """
    return cast("bytes | None", redis.hget(keys.queue("server"), "change")) or b""


def greet_again(redis: Redis, keys: Keys) -> None:
    """Note the server once more, after it was emptied."""
    server_id = str(redis.info("server")["run_id"])  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    GREET.load(redis)(keys=[keys.name()], args=[server_id, new_id()])


def may_be_torn(facts: Mapping[str, object]) -> bool:
    """Whether the file of a server that restarted may hold half of a transaction, by what ``INFO`` says.

    A power loss may tear the file inside a transaction. Redis leaves the rest of it out at the next start, and runs it
    at the one after that; see ``rewrite_torn_file``. Valkey 9 cuts it off.
    """
    is_free = int(str(facts.get("valkey_version", "0")).partition(".")[0]) >= _WHOLE_VALKEY
    return not is_free and bool(facts.get("aof_enabled")) and facts.get("aof_last_rewrite_time_sec") == -1


def rewrite_torn_file(redis: Redis) -> None:
    """Let a server that restarted begin its append-only file again, from memory, where that may be torn.

    Waits for the end, for some seconds: until then, another restart would bring half of a forgotten decision back.
    """
    if not may_be_torn(_read_facts(redis)) or not _begin_rewrite(redis):
        return
    deadline = time.monotonic() + _REWRITE_SECONDS
    while may_be_torn(_read_facts(redis)) and time.monotonic() < deadline:
        time.sleep(10 * _POLL_SECONDS)


def rewrite_unsynced_file(redis: Redis) -> bool:
    """Let a server whose sync failed begin its append-only file again, from memory, where this user may.

    No later sync writes what one failed to write (Rebello et al. 2020, Can applications recover from fsync failures?).
    The server refuses writes until a sync succeeds, and begins none without a write: it would refuse for ever. Redis
    7.0 does so even then, and has to be restarted. Waits for the end, for some seconds; returns whether it came.
    """
    facts = _read_facts(redis)
    is_redis7 = str(facts.get("redis_version")).startswith("7.0.") and "valkey_version" not in facts
    return _has_failed_sync(facts) and not is_redis7 and _rewrite_file(redis, _REWRITE_SECONDS)


def _rewrite_file(redis: Redis, max_seconds: float) -> bool:
    """Begin the append-only file again, and wait for the end, at most this long; return whether it came."""
    has_begun, deadline = _begin_rewrite(redis), time.monotonic() + max_seconds
    while is_rewriting := _is_rewriting(_read_facts(redis)):
        if time.monotonic() > deadline:
            break
        time.sleep(10 * _POLL_SECONDS)
    return has_begun and not is_rewriting


def _close_files(files: dict[int, int], keep: Container[int] = ()) -> None:
    for inode in [one for one in files if one not in keep]:
        os.close(files.pop(inode))


def _sync_files(files: Iterable[int]) -> OSError | None:  # kept: a failure is an answer
    """Sync files; return what the kernel says of one whose bytes it lost."""
    try:
        for file in files:
            os.fsync(file)
    except OSError as error:
        return error
    return None


def _is_rewriting(facts: Mapping[str, object]) -> bool:
    return bool(facts.get("aof_rewrite_in_progress") or facts.get("aof_rewrite_scheduled"))


def _has_failed_sync(facts: Mapping[str, object]) -> bool:
    """Whether writes are refused although all of them are in the file; a full disk leaves some in memory."""
    return facts.get("aof_last_write_status") == "err" and not facts.get("aof_buffer_length")


def _begin_rewrite(redis: Redis) -> bool:
    """Return whether it has begun: this user may not ('doctor' says so), or it is under way."""
    try:
        redis.bgrewriteaof()  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    except (ResponseError, RedisUnreachableError) as error:
        if not _is_refusal(error):
            raise
        return False
    return True


def _read_facts(redis: Redis) -> dict[str, object]:
    return {**redis.info("server"), **redis.info("persistence")}  # pyright: ignore[reportUnknownMemberType]  # untyped


def _read_persistence(redis: Redis) -> dict[str, object]:  # kept: a refusal is an answer
    """Return the facts of ``INFO persistence``; nothing where this user may not ask."""
    try:
        return cast("dict[str, object]", redis.info("persistence"))  # pyright: ignore[reportUnknownMemberType]
    except (ResponseError, RedisUnreachableError) as error:
        if not _is_refusal(error):
            raise
        return {}


def _read_server(connection: AbstractConnection) -> dict[str, str]:  # kept: a refusal is an answer
    """Return the facts of ``INFO server``; nothing where this user may not ask."""
    try:
        answer = _ask(connection, "INFO", "server").decode()
    except NoPermissionError:
        return {}
    return dict(line.split(":", 1) for line in answer.splitlines() if ":" in line)


def _send_greeting(connection: AbstractConnection, keys: Keys, server_id: str) -> None:
    sha = hashlib.sha1(GREET.text.encode(), usedforsecurity=False).hexdigest()
    try:
        if _ask(connection, "HGET", keys.queue("server"), "id") == server_id.encode():
            return
        change = new_id()
        try:
            _ask(connection, "EVALSHA", sha, 1, keys.name(), server_id, change)
        except NoScriptError:
            _ask(connection, "SCRIPT LOAD", GREET.text)
            _ask(connection, "EVALSHA", sha, 1, keys.name(), server_id, change)
    except (NoPermissionError, ReadOnlyError):  # a reader, or a replica: neither decides anything
        return


def _ask(connection: AbstractConnection, *command: str | int) -> bytes:
    connection.send_command(*command)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    return cast("bytes", connection.read_response())


def _read_options(redis: Redis) -> dict[str, str]:  # kept: a refusal is an answer
    """Return what the server says of its append-only file; nothing where this user may not ask, as those of roles."""
    if redis.connection_pool.connection_kwargs.get("username") not in (None, "", "default"):
        return {}
    try:
        found = {**redis.config_get("*append*"), **redis.config_get("dir")}  # pyright: ignore[reportUnknownMemberType]  # untyped
    except (ResponseError, RedisUnreachableError) as error:
        if not _is_refusal(error):
            raise
        return {}
    return {name: value for name, value in found.items() if name is not None and value is not None}


def _is_refusal(error: Exception) -> bool:
    """Whether the server answered, and refused the command itself."""
    return isinstance(error, ResponseError) or isinstance(error.__cause__, ResponseError)


def _is_local(redis: Redis) -> bool:
    where = cast("dict[str, object]", redis.connection_pool.connection_kwargs)
    return "path" in where or where.get("host") in ("localhost", "127.0.0.1", "::1")


def _list_open_files(process_id: str) -> list[Path]:
    """Return the append-only files that a process of this machine has open; none where we may not look."""
    try:
        paths = [file.readlink() for file in Path(f"/proc/{process_id}/fd").iterdir()]
    except OSError:
        return []
    return [path for path in paths if path.suffix == ".aof" and os.access(path, os.R_OK)]


def _list_files(options: Mapping[str, str]) -> list[Path]:
    """Return the files that the server appends to: the only one of Redis 6, all increments from 7 on."""
    directory, name = Path(options.get("dir", "/nowhere")), options.get("appendfilename", "appendonly.aof")
    try:
        if "appenddirname" not in options:
            return [file] if os.access(file := directory / name, os.R_OK) else []
        directory /= options["appenddirname"]
        lines = [line.split() for line in (directory / f"{name}.manifest").read_text().splitlines()]
    except OSError:
        return []
    return [directory / line[1] for line in lines if line[-1] == "i" and os.access(directory / line[1], os.R_OK)]


def _contains(file: int, offset: int, mark: str) -> bool:
    return mark.encode() in os.pread(file, max(0, os.fstat(file).st_size - offset), offset)
