"""One trainer of a run, among all processes that share its Redis: ``hold_run`` sees those of one directory only."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from redis import Redis
from redis.exceptions import RedisError

from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.infra import Keys
from agent_layer.settings import Settings

_SECONDS = 60
"""Until the name of a killed trainer lapses."""
_PER_LAPSE = 4
"""Renewals in that time."""


@contextmanager
def claim_run(redis: Redis, settings: Settings, run: str) -> Generator[None]:
    """Context manager: no process of another directory trains the run during the block.

    One of the same directory takes the place of a killed one at once, because a lock of the kernel tells them apart.

    Raises: BadInputError: one does, or was killed within the last 60 seconds.
    """
    key, own = Keys(settings.namespace).trainer(run), f"{settings.dir.resolve()} on {settings.host}"
    found = None if redis.set(key, own, nx=True, ex=_SECONDS) else redis.get(key)
    if isinstance(found, bytes) and found.decode() != own:
        raise BadInputError(
            f"run {run}: expected no other trainer at this Redis, found one of {found.decode()}; stop it, or choose"
            f" another run; the name of one that was killed is free after {_SECONDS} s"
        )
    has_ended = Event()

    def renew() -> None:
        while not has_ended.wait(_SECONDS / _PER_LAPSE):
            with suppress(RedisError, AgentLayerError):  # Redis is away: the next renewal claims the run again
                redis.set(key, own, ex=_SECONDS)

    redis.set(key, own, ex=_SECONDS)
    renewal = Thread(target=renew, name="claim-run", daemon=True)
    renewal.start()
    try:
        yield
    finally:
        has_ended.set()
        renewal.join()
        with suppress(RedisError, AgentLayerError):  # it lapses
            if redis.get(key) == own.encode():
                redis.delete(key)
