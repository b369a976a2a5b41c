"""The operator's key of a gateway: the settings' own, or one that is minted once and kept in their directory.

A gateway that restarts so has the key that its clients have. Workers on other machines must be given it.
"""

import secrets
from pathlib import Path
from typing import cast

from redis import Redis

from agent_layer.errors import BadInputError
from agent_layer.infra import Keys, hold_lock, make_private, open_redis, replace_file
from agent_layer.settings import Settings
from agent_layer.state import is_operator_key, record_operator_key


def operator_key_path(settings: Settings) -> Path:
    """Return the file of the key that was minted in the settings' directory."""
    return settings.dir.absolute() / "operator.key"


def find_api_key(settings: Settings) -> str | None:
    """Return the settings' operator key, or the one that is kept in their directory; None: there is none."""
    file = operator_key_path(settings)
    return settings.api_key or (file.read_text().strip() if file.is_file() else None) or None


def ensure_api_key(settings: Settings) -> Settings:
    """Return the settings with an operator key: their own, or the kept one, which is minted where there is none."""
    if settings.api_key:
        return settings
    file = operator_key_path(settings)
    make_private(file.parent)
    with hold_lock(file.with_suffix(".lock")):
        if (key := find_api_key(settings)) is None:
            key = f"ok-{secrets.token_urlsafe(24)}"
            replace_file(file, key.encode(), sync=True)
    return settings.model_copy(update={"api_key": key})


def claim_operator_key(settings: Settings) -> Settings:
    """Return the settings with an operator key, and record it as that of the namespace.

    Raises:
        BadInputError: the settings name none, and workers are up that have another than the kept one: they would be
            refused. UnreachableError: Redis does not answer.
    """
    claimed, keys = ensure_api_key(settings), Keys(settings.namespace)
    key = cast("str", claimed.api_key)
    with open_redis(settings) as redis:
        is_known = is_operator_key(redis, keys, key)
        if is_known is False and not settings.api_key and (num_workers := _count_workers(settings, redis, keys)):
            raise BadInputError(
                f"operator key of namespace {settings.namespace!r}: expected the one that its {num_workers} running"
                f" workers have, found another in {operator_key_path(settings)}; set AGENT_LAYER_API_KEY to theirs, or"
                " stop them first"
            )
        if not is_known:
            record_operator_key(redis, keys, key)
    return claimed


def _count_workers(settings: Settings, redis: Redis, keys: Keys) -> int:
    """Return how many workers sent a heartbeat within the time of a lease."""
    seconds, _ = redis.time()  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    return redis.zcount(keys.queue("workers"), (seconds - settings.lease_seconds) * 1000, "+inf")
