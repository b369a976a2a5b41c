"""Note that Redis lost data: a process found that what it had written is gone, or is as it was before.

Owners announce again what they own, and ``store reindex`` rebuilds the index. The rest is lost, and this note says so.
"""

from typing import cast

from redis import Redis

from agent_layer.infra import Keys

_KEPT_SECONDS = 86_400


def record_loss(redis: Redis, keys: Keys) -> None:
    """Note that Redis was found to have lost data just now; the note is kept for a day."""
    seconds, _ = redis.time()  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    redis.set(keys.data_loss, str(seconds), ex=_KEPT_SECONDS)


def forget_loss(redis: Redis, keys: Keys) -> None:
    """Remove the note: the index is rebuilt, and who did it knows."""
    redis.delete(keys.data_loss)


def read_loss(redis: Redis, keys: Keys) -> float | None:
    """Return when the last loss was noticed, in seconds since the epoch; None: none was in the last day."""
    found = cast("bytes | None", redis.get(keys.data_loss))
    return None if found is None else float(found)
