"""This file holds whose turn it is to change objects that are stored already: one process at a time, as a rule.

Nothing breaks where two of them do it after all; it saves them from doing the same work.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

from redis import Redis
from redis.exceptions import LockError
from redis.lock import Lock

from agent_layer.errors import BadInputError, LeaseLostError
from agent_layer.infra.redis import Keys


class MaintenanceLock:
    """The right to go on; it expires unless it is kept."""

    def __init__(self, lock: Lock, subject: str, seconds: float) -> None:
        self._lock = lock
        self._subject = subject
        self._seconds = seconds
        self._kept_at = time.monotonic()

    def renew(self) -> None:
        """Call it often; it asks Redis now and then.

        Raises: LeaseLostError: the turn had expired, and another process has it by now.
        """
        now = time.monotonic()
        if now - self._kept_at < self._seconds / 3:
            return
        try:
            self._lock.reacquire()
        except LockError as error:
            if not self._lock.acquire(blocking=False):
                raise LeaseLostError(
                    f"{self._subject}: expected to keep its turn, found another process at work after a long pause;"
                    " nothing is lost, run it again"
                ) from error
        self._kept_at = now


def check_permission(redis: Redis, keys: Keys) -> None:
    """Stop before anything is changed whom Redis allows only a part of what care needs.

    Raises: UnreachableError: this user is no operator; see ``acl.py``.
    """
    redis.exists(keys.merging)  # no other role may ask for this key


def check_index_complete(redis: Redis, keys: Keys) -> None:
    """Refuse to change what is stored where the index is not whole, or the user not allowed to.

    Raises:
        BadInputError: it is being rebuilt, or that did not end.
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
    """Wait for the turn, and give it back at the end.

    Args:
        redis: of the namespace.
        keys: of the namespace.
        wait_seconds: longest wait.
        seconds: when a process that does not keep its turn loses it.

    Raises: LeaseLostError: another process is at work for all that time.
    """
    subject = f"care of namespace {keys.namespace!r}"
    lock = redis.lock(keys.compacting, timeout=seconds, blocking_timeout=wait_seconds, thread_local=False)
    if not lock.acquire():
        raise LeaseLostError(
            f"{subject}: expected the turn to compact or to collect garbage, found another process at work for"
            f" {wait_seconds:g} s; run it again later"
        )
    try:
        yield MaintenanceLock(lock, subject, seconds)
    finally:
        with suppress(LockError):  # it had expired
            lock.release()
