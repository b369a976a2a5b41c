"""Redis clients; no other file makes one. All replies are bytes."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TypedDict, cast
from urllib.parse import quote, urlsplit

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import Connection
from redis.exceptions import BusyLoadingError, RedisError, ResponseError, TimeoutError as RedisTimeoutError
from redis.retry import Retry

from agent_layer.errors import BadInputError, UnreachableError
from agent_layer.infra.redis.durability import DurableWrites, rewrite_unsynced_file
from agent_layer.infra.redis.embedded import acquire_server
from agent_layer.infra.redis.keys import Keys
from agent_layer.infra.redis.retry import BACKOFF, TimedRetry
from agent_layer.infra.redis.slot import find_route, read_owners, route_options
from agent_layer.settings import Settings

_SLACK_SECONDS = 1.0
"""How much longer than it asked for a blocked read may take."""


def open_redis(settings: Settings) -> Redis:
    """Connect to the server that the settings name, or to the embedded one, which is started if it does not run.

    The client retries each command for ``retry_seconds``; then it raises RedisUnreachableError.

    Raises:
        UnreachableError: it does not answer within connect_seconds.
        BadInputError: logs go to an ingest server, whose Redis would not be one of our own.
    """
    url = _answering_url(settings)
    durable = DurableWrites(Keys(settings.namespace), settings.redis_replicas, settings.retry_seconds)
    route = route_options(url, find_route(url, settings.namespace))
    retry, greet = _timed_retry(settings, url), durable.greet
    return _Client.from_url(url, retry=retry, redis_connect_func=greet, **route, **_limits(settings))  # pyright: ignore[reportUnknownMemberType]  # untyped


def open_async_redis(settings: Settings) -> AsyncRedis:
    """As ``open_redis``, for asyncio. This client tries each command once and raises redis-py's own errors.

    The call blocks until the server has answered once; make it in a thread.
    """
    url = _answering_url(settings)
    route = route_options(url, find_route(url, settings.namespace), is_async=True)
    return _AsyncClient.from_url(url, retry=AsyncRetry(NoBackoff(), 0), **route, **_limits(settings))  # pyright: ignore[reportUnknownMemberType]  # untyped


class _Client(Redis):
    """A client that gives up a blocked read by its own clock; it then asks again.

    A server ends such reads by its wall clock: one that goes back by an hour would block them for an hour.
    """

    def execute_command(self, *args: object, **options: object) -> object:
        return super().execute_command(*args, max_seconds=_max_seconds(args), **options)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped

    def parse_response(
        self, connection: Connection, command_name: str, *, max_seconds: float | None = None, **options: object
    ) -> object:
        if max_seconds is not None and not _can_read(connection, max_seconds):
            raise RedisTimeoutError(f"Timeout after {max_seconds:g} s of a blocked read")
        return super().parse_response(connection, command_name, **options)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped


def _can_read(connection: Connection, seconds: float) -> bool:
    """Whether an answer came. An interrupted wait closes the connection: the next command would get its answer."""
    try:
        return connection.can_read(seconds)
    except BaseException:
        connection.disconnect()  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        raise


class _AsyncClient(AsyncRedis):
    """As ``_Client``, but it raises RedisTimeoutError where that one asks again.

    redis-py writes under ``asyncio.wait_for``, which on Python 3.11 loses a cancellation that meets its end.
    """

    async def execute_command(self, *args: object, **options: object) -> object:
        task = asyncio.current_task()
        num_cancelled = task.cancelling() if task else 0
        try:
            async with asyncio.timeout(_max_seconds(args)):
                answer = cast("object", await super().execute_command(*args, **options))  # pyright: ignore[reportUnknownMemberType]  # untyped
        except TimeoutError as error:
            raise RedisTimeoutError("Timeout of a blocked read") from error
        if task and task.cancelling() > num_cancelled:
            raise asyncio.CancelledError
        return answer


def _max_seconds(command: Sequence[object]) -> float | None:
    """Return the time after which an answer to a command that blocks is overdue; None: it does not block."""
    if command[0] == "BLPOP":
        return float(str(command[-1])) + _SLACK_SECONDS
    if command[0] != "XREAD" or b"BLOCK" not in command:
        return None
    return int(str(command[command.index(b"BLOCK") + 1])) / 1000 + _SLACK_SECONDS


class _Limits(TypedDict):
    socket_connect_timeout: float
    socket_timeout: float


def _limits(settings: Settings) -> _Limits:
    """No command may block for longer than ``retry_seconds``."""
    return {"socket_connect_timeout": settings.connect_seconds, "socket_timeout": settings.retry_seconds}


def _timed_retry(settings: Settings, url: str) -> TimedRetry:
    """Retry for a client; it restarts the embedded server first, which ends when its supervisor is killed."""

    def revive(code: str) -> None:
        with suppress(UnreachableError):  # then the next try says so
            if settings.redis_url is None:
                acquire_server(settings)
            if code == "MISCONF":
                with _open_probe(settings, url) as probe, suppress(RedisError):
                    rewrite_unsynced_file(probe)

    server, seconds, route = _without_password(url), settings.retry_seconds, find_route(url, settings.namespace)
    return TimedRetry(server, seconds, revive, route.follow) if route else TimedRetry(server, seconds, revive)


def _answering_url(settings: Settings) -> str:
    """URL of a server that has just answered."""
    if settings.redis_url is None:
        if settings.ingest_url is not None:
            raise BadInputError(
                "Redis: expected AGENT_LAYER_REDIS_URL beside AGENT_LAYER_INGEST_URL, found none, and one of our own"
                " would never hold what is sent there; set it to the Redis that ingest uses, or unset"
                " AGENT_LAYER_INGEST_URL"
            )
        return f"unix://{quote(str(acquire_server(settings)))}"
    if "#" in settings.redis_url:
        raise BadInputError(
            f"setting redis_url: expected no '#', which ends an address, found"
            f" {_without_password(settings.redis_url)}#…; write it as %23 in AGENT_LAYER_REDIS_URL"
        )
    limit = settings.connect_seconds
    try:
        _find_node(settings, settings.redis_url)
    except (TypeError, ValueError) as error:  # TypeError: redis-py passes an unknown query parameter on
        raise BadInputError(
            f"setting redis_url: expected redis://HOST:PORT, rediss://HOST:PORT or unix:///SOCKET with parameters of"
            f" redis-py, found {_without_password(settings.redis_url)} ({error}); correct AGENT_LAYER_REDIS_URL"
        ) from error
    except RedisError as error:
        raise UnreachableError(
            f"Redis at {_without_password(settings.redis_url)}: expected an answer within {limit:g} s, found"
            f" {str(error) or type(error).__name__!r}; {_remedy(error)}"
        ) from error
    return settings.redis_url


def _remedy(error: RedisError) -> str:
    if "certificate" in str(error).lower():
        return "name the certificate of its authority in AGENT_LAYER_REDIS_URL, as rediss://…?ssl_ca_certs=FILE"
    return "start it, correct AGENT_LAYER_REDIS_URL, or unset it to have one of our own"


def _find_node(settings: Settings, url: str) -> None:
    """Ping once; wait for a server that is still loading its append-only file. In a cluster, find the slot's owner."""
    route = find_route(url, settings.namespace)
    waits = BACKOFF.delays(settings.retry_seconds)
    with _open_probe(settings, url) as probe:
        while True:
            try:
                probe.ping()  # pyright: ignore[reportUnknownMemberType]
            except BusyLoadingError:
                if (wait := next(waits, None)) is None:
                    raise
                time.sleep(wait)
            except ResponseError as error:
                if "MISCONF" not in str(error):
                    raise
                break  # it answers; its first command waits, and helps it
            else:
                break
        if route is not None:
            route.learn(read_owners(probe, Keys(settings.namespace).name()))


def _open_probe(settings: Settings, url: str) -> Redis:
    """Return a client that tries once."""
    limit_seconds = settings.connect_seconds
    return Redis.from_url(  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        url,
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=limit_seconds,
        socket_timeout=limit_seconds,
        **route_options(url, find_route(url, settings.namespace)),
    )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
