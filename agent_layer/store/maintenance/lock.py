"""Cooperative lock for maintenance: at most one process rewrites stored objects at a time.

Correctness does not depend on it; it saves two processes from doing the same work.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

from redis import Redis
from redis.exceptions import LockError
from redis.lock import Lock

from agent_layer.errors import BadInputError, LeaseLostError
from agent_layer.infra import Keys


class MaintenanceLock:
    """A held lock; it expires unless it is renewed."""

    def __init__(self, lock: Lock, subject: str, seconds: float) -> None:
        self._lock = lock
        self._subject = subject
        self._seconds = seconds
        self._renewed_at = time.monotonic()

    def renew(self) -> None:
        """Renew the lock; cheap, because it asks Redis only after a third of the lock's time.

        Raises: LeaseLostError: the lock had expired, and another process holds it.
        """
        now = time.monotonic()
        if now - self._renewed_at < self._seconds / 3:
            return
        try:
            self._lock.reacquire()
        except LockError as error:
            if not self._lock.acquire(blocking=False):
                raise LeaseLostError(
                    f"{self._subject}: lost the maintenance lock to another process after a long pause;"
                    " nothing is lost, run it again"
                ) from error
        self._renewed_at = now


def check_permission(redis: Redis, keys: Keys) -> None:
    """Refuse a Redis user without the rights for maintenance, before anything changes.

    Raises: UnreachableError: this user is not an operator; see ``acl.py``.
    """
    redis.exists(keys.merging)  # no other role may ask for this key


def check_index_complete(redis: Redis, keys: Keys) -> None:
    """Refuse to change stored objects when the index is incomplete, or the user is not allowed to.

    Raises:
        BadInputError: a rebuild of the index is running or was stopped.
        UnreachableError: see ``check_permission``.
    """
    check_permission(redis, keys)
    if redis.exists(keys.reindexing):
        raise BadInputError(
            f"namespace {keys.namespace!r}: expected a whole index, found a rebuild that did not end;"
            " wait for it, or run 'agent-layer store reindex' again"
        )


@contextmanager
def maintenance_lock(redis: Redis, keys: Keys, wait_seconds: float, seconds: float) -> Generator[MaintenanceLock]:
    """Hold the maintenance lock inside the block, after waiting for it.

    Args:
        redis: of the namespace.
        keys: of the namespace.
        wait_seconds: longest wait.
        seconds: time after which a lock that is not renewed expires.

    Raises: LeaseLostError: another process held it all that time.
    """
    subject = f"maintenance of namespace {keys.namespace!r}"
    lock = redis.lock(keys.compacting, timeout=seconds, blocking_timeout=wait_seconds, thread_local=False)
    if not lock.acquire():
        raise LeaseLostError(
            f"{subject}: another process held the lock to compact or collect garbage for"
            f" {wait_seconds:g} s; run it again later"
        )
    try:
        yield MaintenanceLock(lock, subject, seconds)
    finally:
        with suppress(LockError):  # it had expired
            lock.release()
