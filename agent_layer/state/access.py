"""What a gateway and its clients must have in common: the operator's key, the namespace, the object store.

Redis knows the key by a salted digest, so that a gateway sees that clients have another one. The key itself is in the
settings of gateways and clients, or in the directory of the gateway that minted it.
"""

from hashlib import scrypt
from secrets import token_bytes
from typing import cast

from redis import Redis

from agent_layer.infra import Keys
from agent_layer.schema import GatewayFacts
from agent_layer.settings import Settings

_COST = 1 << 12
"""Passes of scrypt, some milliseconds: a short key is not guessed from its digest in passing."""
_SALT_BYTES = 16


def record_operator_key(redis: Redis, keys: Keys, key: str) -> None:
    """Record by which key gateways of the namespace are opened."""
    salt = token_bytes(_SALT_BYTES)
    redis.set(keys.operator_key, salt + _digest(key, salt))


def is_operator_key(redis: Redis, keys: Keys, key: str) -> bool | None:
    """Return whether this key is the recorded one; None: none is recorded."""
    stored = cast("bytes | None", redis.get(keys.operator_key))
    return None if stored is None else stored == stored[:_SALT_BYTES] + _digest(key, stored[:_SALT_BYTES])


def find_mismatch(settings: Settings, facts: GatewayFacts) -> str | None:
    """Return why what a gateway records never becomes a trajectory where these settings look; None: it does."""
    pairs = [("namespace", "AGENT_LAYER_NAMESPACE", settings.namespace, facts.namespace)]
    if facts.objects is not None and settings.objects_location.startswith("s3://"):
        pairs.append(("object store", "AGENT_LAYER_OBJECTS_URL", settings.objects_location, facts.objects))
    for subject, variable, own, other in pairs:
        if own.rstrip("/") != other.rstrip("/"):
            return (
                f"expected it to record into our {subject} {own!r}, found {other!r}, where no attempt of ours is ever"
                f" whole; set {variable} of both to the same"
            )
    return None


def _digest(key: str, salt: bytes) -> bytes:
    return scrypt(key.encode("utf-8", "surrogateescape"), salt=salt, n=_COST, r=8, p=1)
