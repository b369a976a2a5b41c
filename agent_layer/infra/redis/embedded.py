"""The embedded Redis server, which the agent layer starts when no URL names one.

It listens on a private unix socket only and logs every write to an append-only file. Each user holds a shared flock on
``users.lock`` until its process ends. A supervisor (``supervisor.py``) waits for the exclusive lock and then stops the
server, so the last user stops it, even if that user is killed. If the supervisor is killed, the server ends with it:
``acquire_server`` starts both again, and clients call it whenever they lose the connection. ``programs.py`` chooses the
server.
"""

import os
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, RedisError, ResponseError
from redis.retry import Retry

from agent_layer.errors import BadInputError, UnreachableError
from agent_layer.infra.files import make_private
from agent_layer.infra.processes.detached import Detached, start_detached
from agent_layer.infra.processes.locks import hold_lock, share_lock, try_lock
from agent_layer.infra.redis.programs import find_redis_server, hand_over
from agent_layer.settings import Settings

_MAX_SOCKET_PATH_LENGTH = 100
_held: dict[Path, int] = {}
"""Locks of this process by directory. The kernel releases them when the process ends, or ``temporary_home`` does."""
_END_SECONDS = 5.0
_MAX_PACKED_BYTES = 256
"""Longest value of a hash that Redis keeps in one piece of memory; 64 if not set, which few rewards fit."""


def acquire_server(settings: Settings) -> Path:
    """Start the server unless it runs, hold it until this process ends, and return its socket.

    Raises: UnreachableError: it cannot be started or does not answer.
    """
    directory = settings.dir.absolute() / "redis"
    _make_own(directory)
    socket = socket_path(directory)
    with hold_lock(directory / "start.lock"):
        users = directory / "users.lock"
        if users not in _held:  # once per process; a forked child shares the lock, and so keeps the server too
            _held[users] = share_lock(users)
        _ensure_answer(settings, directory, socket)
    return socket


@contextmanager
def temporary_home(prefix: str) -> Generator[Path]:
    """Make a directory (``Settings.dir``) for this block. Its server has ended before the directory is removed."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        try:
            yield Path(name)
        finally:
            _release(Path(name) / "redis")


def _release(directory: Path) -> None:
    """End this process's use of a server; wait until it has ended, unless another process uses it."""
    if (users := _held.pop(directory / "users.lock", None)) is None:
        return
    os.close(users)
    deadline = time.monotonic() + _END_SECONDS
    while (keeper := try_lock(directory / "keeper.lock")) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if keeper is not None:
        os.close(keeper)


def is_redis_running(settings: Settings) -> bool:
    """Whether the server of this directory runs; it is not started."""
    socket = socket_path(settings.dir.absolute() / "redis")
    return socket.exists() and _answers(socket, settings.connect_seconds)


def socket_path(directory: Path) -> Path:
    """Where the server of this directory listens; a long path is replaced by a short one found by its hash."""
    path = directory / "redis.sock"
    if len(os.fsencode(path)) < _MAX_SOCKET_PATH_LENGTH:
        return path
    name = blake2b(os.fsencode(directory), digest_size=8).hexdigest()
    short = Path(tempfile.gettempdir()) / f"agent-layer-{os.getuid()}-{name}"
    _make_own(short)
    return short / "redis.sock"


def _make_own(directory: Path) -> None:
    try:
        make_private(directory)
    except OSError as error:
        raise BadInputError(
            f"directory {directory}: expected to be made or there, found {error.strerror!r}; choose another --dir"
        ) from error
    if directory.stat().st_uid != os.getuid() or directory.is_symlink():
        raise UnreachableError(
            f"directory {directory}: expected to be this user's own, found another's; choose another --dir"
        )
    directory.chmod(0o700)


def _ensure_answer(settings: Settings, directory: Path, socket: Path) -> None:
    """Wait until the server answers; start it with its keeper once no other two are there, or still about to end."""
    deadline, keeper = time.monotonic() + settings.connect_seconds, None
    while not _answers(socket, settings.connect_seconds):
        if keeper is None and (lock := try_lock(directory / "keeper.lock")) is not None:
            program = find_redis_server(settings, directory)
            hand_over(directory, program)
            keeper = _start(program.path, directory, socket, lock)
            os.close(lock)
        elif time.monotonic() > deadline or (keeper and keeper.has_ended()):
            raise UnreachableError(
                f"own Redis server in {directory}: expected an answer within {settings.connect_seconds:g} s, found"
                f" none; read {directory / 'redis.log'}"
            )
        time.sleep(0.005)


def _start(program: str, directory: Path, socket: Path, lock: int) -> Detached:  # kept: the options of the server
    # fmt: off
    command = [
        program, "--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700", "--dir", str(directory),
        "--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction",
        "--hash-max-ziplist-value", str(_MAX_PACKED_BYTES),
    ]
    # fmt: on
    arguments = ["-m", "agent_layer.infra.redis.supervisor", str(directory / "users.lock"), *command]
    return start_detached(arguments, os.environ, directory / "redis.log", lock)


def _answers(socket: Path, limit_seconds: float) -> bool:
    """Whether a server listens; one that still reads its append-only file is waited for."""
    with Redis(unix_socket_path=str(socket), retry=Retry(NoBackoff(), 0), socket_timeout=limit_seconds) as redis:
        while True:
            try:
                return bool(redis.ping())  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
            except BusyLoadingError:
                time.sleep(0.05)
            except ResponseError:  # a refusal is an answer
                return True
            except RedisError:
                return False
