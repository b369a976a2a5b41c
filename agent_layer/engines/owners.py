"""Holds for owners that push weights into their engines themselves and are no Python program: begun and ended apart."""

from collections.abc import Iterable

import msgspec
from redis import Redis

from agent_layer.engines.join import open_engine_registry
from agent_layer.errors import BadInputError, EngineError
from agent_layer.settings import Settings


class PushedVersion(msgspec.Struct, frozen=True, kw_only=True):
    """Weights that an owner has pushed."""

    number: int
    """Policy version."""
    location: str
    """Directory or name of the weights."""


def hold_engines(settings: Settings, redis: Redis, urls: Iterable[str], seconds: float) -> list[str]:
    """Let the calls to engines wait until ``release_engines``; return their addresses.

    Args:
        settings: name the namespace.
        redis: holds the registry.
        urls: addresses of the engines.
        seconds: longest wait for calls in flight.

    Raises: EngineError: an engine is not registered, or calls are in flight for longer; all serve as before.
    """
    held = open_engine_registry(settings, redis).hold(_addresses(urls), seconds)
    return list(held.epochs)


def release_engines(settings: Settings, redis: Redis, urls: Iterable[str], pushed: PushedVersion | None) -> list[str]:
    """Let calls go to held engines again; return their addresses.

    Args:
        settings: name the namespace.
        redis: holds the registry.
        urls: engines that have the version; others stay out of service until a later hold and release.
        pushed: that they have now; None: nothing was pushed, and they serve what they served.

    Raises: EngineError: an engine is not held, as one that was registered again meanwhile, or another driver moved it;
        or nothing was pushed into one that served nothing before the hold, which stays out of service. All others are
        released.
    """
    addresses = _addresses(urls)
    held = open_engine_registry(settings, redis).find_hold(addresses)
    if pushed is None:
        held.cancel()
    else:
        held.release(pushed.number, pushed.location)
    if others := [url for url in addresses if url not in held.epochs]:
        raise EngineError(
            f"engine {', '.join(others)}: expected its calls to be held, found that they are not; 'agent-layer engines"
            " hold' does that, and 'engines list' shows the state of each; the others are released"
        )
    if pushed is not None:
        return list(held.epochs)
    if others := [url for url in held.epochs if url not in held.serving]:
        raise EngineError(
            f"engine {', '.join(others)}: expected that it served before the hold, but it never served, or a switch"
            " left it half-way; release it with the version and location of its weights"
        )
    return list(held.epochs)


def _addresses(urls: Iterable[str]) -> list[str]:
    """Return addresses without /v1 and slash.

    Raises: BadInputError: there are none.
    """
    found = [url.strip().rstrip("/").removesuffix("/v1") for url in urls]
    if not found:
        raise BadInputError("engines: expected the address of at least one, found none")
    return found
