"""Policy versions of runs: number, run and the location of the weights."""

from collections.abc import Callable, Iterable
from typing import cast

from redis import Redis

from agent_layer.errors import CorruptRecordError
from agent_layer.infra import Keys
from agent_layer.schema import PolicyVersion, decode, encode


def register_policy(redis: Redis, keys: Keys, policy: PolicyVersion, append: Callable[[PolicyVersion], object]) -> None:
    """Register a version; the first registration of a number wins.

    Args:
        redis: server of the index.
        keys: of the namespace.
        policy: the version.
        append: writes it to the caller's log. It runs first: a version that only Redis knew would be lost with it.
    """
    if get_policy(redis, keys, policy.run, policy.number) is None:
        append(policy)
        restore_policies(redis, keys, [policy])


def restore_policies(redis: Redis, keys: Keys, policies: Iterable[PolicyVersion]) -> None:
    """Register versions again that Redis may have forgotten; their records are in a log."""
    for policy in policies:
        redis.sadd(keys.runs, policy.run)
        redis.hsetnx(keys.policies(policy.run), str(policy.number), encode(policy))


def get_policy(redis: Redis, keys: Keys, run: str, number: int) -> PolicyVersion | None:
    """Read one version; None when the run has none of this number."""
    stored = redis.hget(keys.policies(run), str(number))
    return _decode_policy(stored) if isinstance(stored, bytes) else None


def list_policies(redis: Redis, keys: Keys, run: str) -> list[PolicyVersion]:
    """Read all versions of a run, oldest number first."""
    stored = cast("dict[bytes, bytes]", redis.hgetall(keys.policies(run)))
    return sorted(map(_decode_policy, stored.values()), key=lambda policy: policy.number)


def newest_number(redis: Redis, keys: Keys, run: str) -> int | None:
    """Read the highest version number; None when the run has no version."""
    numbers = cast("list[bytes]", redis.hkeys(keys.policies(run)))
    return max(map(int, numbers), default=None)


def newest_policy(redis: Redis, keys: Keys, run: str) -> PolicyVersion | None:
    """Read the version with the highest number; None when the run has none."""
    number = newest_number(redis, keys, run)
    return None if number is None else get_policy(redis, keys, run, number)


def behind_seconds(redis: Redis, keys: Keys, run: str, version: int, now: float) -> float:
    """Return for how long an engine has been without the version after its own; if that is not known, the newest.

    Args:
        redis: with the registry of versions.
        keys: of the namespace.
        run: that the engine serves.
        version: that it has.
        now: seconds since the epoch.

    Returns: seconds; 0: it has the newest version.
    """
    newest = newest_policy(redis, keys, run)
    if newest is None or newest.number <= version:
        return 0.0
    missed = get_policy(redis, keys, run, version + 1) or newest
    return max(0.0, now - missed.created_at)


def _decode_policy(stored: bytes) -> PolicyVersion:
    if isinstance(policy := decode(stored), PolicyVersion):
        return policy
    raise CorruptRecordError(
        f"policy index: expected policy versions, found {type(policy).__name__}; reindex the store"
    )
