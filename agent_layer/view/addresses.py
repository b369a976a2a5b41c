"""Addresses of pages that show a namespace: each page announces its own while it serves, and commands link to it.

An announcement is a lease in Redis. It carries no token. One of loopback counts only on the machine that wrote it.
"""

import logging
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import Final, cast
from urllib.parse import urlsplit, urlunsplit

from redis.exceptions import RedisError

from agent_layer.errors import AgentLayerError
from agent_layer.infra import Keys, SharedClock, open_redis
from agent_layer.settings import Settings

_LEASE_SECONDS: Final = 15.0
"""An address that was not renewed for this long is of a page that ended."""
_RENEW_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 2.0
"""Seconds to wait for Redis: nothing waits for a link."""

log = logging.getLogger(__name__)


@contextmanager
def announce_page(settings: Settings, address: str) -> Generator[None]:
    """Announce a page during the block, from a thread; a Redis that is away or refuses costs only the links.

    Args:
        settings: of the namespace that the page shows.
        address: of the page; a token in it is left out.
    """
    stop = threading.Event()
    thread = threading.Thread(target=_announce, args=(settings, address, stop), name="page-address", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(2 * _PATIENCE_SECONDS)


def find_page(settings: Settings) -> str | None:
    """Return the address of the page that shows the namespace, without a token; None: none is known.

    ``AGENT_LAYER_VIEW_URL`` comes first, then a page of this machine, then one of any other.
    """
    if settings.view_url:
        return _without_token(settings.view_url)
    try:
        with open_redis(settings) as redis:
            keys = Keys(settings.namespace)
            since = SharedClock(redis, keys).read() - _LEASE_SECONDS
            found = cast("list[bytes]", redis.zrange(keys.pages, since, "+inf", byscore=True))  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    except (RedisError, AgentLayerError):  # a role that may not read it; a link is never a reason to fail
        return None
    entries = [member.decode().partition(" ") for member in found]
    here = socket.gethostname()
    reachable = [(host != here, address) for host, _, address in entries if host == here or not _is_loopback(address)]
    return min(reachable)[1] if reachable else None


def _announce(settings: Settings, address: str, stop: threading.Event) -> None:
    url = settings.redis_url or settings.reader_redis_url
    patience = {"connect_seconds": _PATIENCE_SECONDS, "retry_seconds": _PATIENCE_SECONDS}
    settings = settings.model_copy(update={**patience, "redis_url": url})
    keys, member = Keys(settings.namespace), f"{socket.gethostname()} {_without_token(address)}"
    is_announced = False
    while not stop.is_set():
        try:
            with open_redis(settings) as redis:
                clock = SharedClock(redis, keys)
                while not stop.is_set():
                    now = clock.advance()
                    redis.zadd(keys.pages, {member: now})
                    redis.zremrangebyscore(keys.pages, "-inf", now - _LEASE_SECONDS)
                    is_announced = True
                    stop.wait(_RENEW_SECONDS)
                redis.zrem(keys.pages, member)
        except (RedisError, AgentLayerError) as error:
            if not is_announced:
                log.info("commands print no links, unless AGENT_LAYER_VIEW_URL is set error=%s", error)
            stop.wait(_RENEW_SECONDS)


def _is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _without_token(address: str) -> str:
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/") + "/", "", ""))
