"""Retry of Redis commands until a deadline, and the error that follows.

There is one retry loop, around each command. A new connection is part of the command that needs it.
"""

import re
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import TypeVar, cast

from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError as RedisConnectionError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError as RedisTimeoutError,
    TryAgainError,
)
from redis.retry import Retry

from agent_layer.errors import UnreachableError
from agent_layer.infra.backoff import Backoff

T = TypeVar("T")

BACKOFF = Backoff(0.05, 1.0)

_PASSING = re.compile(r"\b(LOADING|READONLY|OOM|MISCONF|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOREPLICAS|UNBLOCKED|BUSY)\b")
"""Codes of temporary refusals. Redis 6.2 wraps them into an error of the script."""

_NOT_ALLOWED = re.compile(r"\bNOPERM\b|can't (run this command|access at least one)|no permissions")

_MIGRATION = (
    "its hash slot moves to another node key by key, and a namespace is served by one node: finish that migration, or"
    " undo it ('redis-cli --cluster fix')"
)
_REMEDIES = {
    "OOM": "raise its maxmemory, or free some of it",
    "READONLY": "point AGENT_LAYER_REDIS_URL at the server that takes writes",
    "LOADING": "wait until it has read its append-only file",
    "MISCONF": "free its disk, or restart it where a sync has failed",
    "MOVED": "name a node of the cluster by redis:// or rediss://, and let this machine reach every node",
    "ASK": _MIGRATION,
    "TRYAGAIN": _MIGRATION,
    "CLUSTERDOWN": "let a node serve every slot; 'redis-cli --cluster check' names those without",
}
_CODES: dict[type[RedisError], str] = {
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
    MovedError: "MOVED",
    AskError: "ASK",
    TryAgainError: "TRYAGAIN",
    MasterDownError: "MASTERDOWN",
    ClusterDownError: "CLUSTERDOWN",
}
"""Codes that redis-py takes out of the text. A class stands before its parent."""

_is_asking: ContextVar[bool] = ContextVar("is_asking", default=False)


class RedisUnreachableError(UnreachableError, RedisError):
    """Redis did not serve a command in time. It is a RedisError, too, so code that catches those catches it."""


class TimedRetry(Retry):
    """redis-py's retry with a deadline instead of a count; it also retries temporary refusals, such as LOADING.

    Each retry uses a new connection, so that the client leaves a server that lost its role to another one.

    Args:
        server: its name in errors.
        seconds: time after which a command fails.
        revive: begins each next try, with the server's code for its refusal, or an empty one. Where this machine
            refuses it a file (EMFILE, ENOSPC), that try has failed.
        follow: called with the answer of a node of a cluster that is not the one to ask.
    """

    def __init__(
        self,
        server: str,
        seconds: float,
        revive: Callable[[str], object] = lambda _: None,
        follow: Callable[[MovedError], object] = lambda _: None,
    ) -> None:
        super().__init__(NoBackoff(), 0)
        self._server = server
        self._seconds = seconds
        self._revive = revive
        self._follow = follow

    def call_with_retry(
        self,
        do: Callable[[], T],
        fail: Callable[..., object],
        is_retryable: Callable[[Exception], bool] | None = None,  # noqa: ARG002  # redis-py's; no caller here passes it
        with_failure_count: bool = False,  # noqa: FBT001, FBT002  # redis-py's
    ) -> T:
        """See redis-py's Retry.

        Raises: RedisUnreachableError: the server could not in time, or this user may not.
        """
        if _is_asking.get():
            return do()
        token = _is_asking.set(True)
        try:
            return self._ask(do, lambda error, num: fail(error, num) if with_failure_count else fail(error))
        finally:
            _is_asking.reset(token)

    def _ask(self, do: Callable[[], T], fail: Callable[[Exception, int], object]) -> T:
        waits = BACKOFF.delays(self._seconds)
        num_failures, attempt = 0, do
        while True:
            try:
                return attempt()
            except RedisUnreachableError:
                raise
            except (RedisError, OSError) as error:
                if not _passes(error):
                    if _is_forbidden(error):
                        raise self._forbidden(error) from error
                    raise  # not from itself: a cycle would keep all that the callers hold
                if isinstance(error, MovedError):
                    self._follow(error)
                num_failures += 1
                fail(error, num_failures)
                if (wait := next(waits, None)) is None:
                    raise self._gave_up(error) from error
                time.sleep(wait)
                attempt = partial(self._do_revived, do, _code(error))

    def _do_revived(self, do: Callable[[], T], code: str) -> T:
        self._revive(code)
        return do()

    def _gave_up(self, error: Exception) -> RedisUnreachableError:
        remedy = _REMEDIES.get(_code(error), "start it, or correct AGENT_LAYER_REDIS_URL")
        found = str(error) or type(error).__name__
        return RedisUnreachableError(
            f"Redis at {self._server}: expected it to serve within {self._seconds:g} s, found {found!r}; {remedy}"
        )

    def _forbidden(self, error: Exception) -> RedisUnreachableError:
        return RedisUnreachableError(
            f"Redis at {self._server}: expected this user to be allowed what its role needs, found {str(error)!r};"
            " 'agent-layer store acl' prints the rights of each role"
        )


def _is_forbidden(error: Exception) -> bool:
    return isinstance(error, NoPermissionError) or bool(_NOT_ALLOWED.search(str(error)))


def _passes(error: Exception) -> bool:
    """Whether the same command may succeed later."""
    if isinstance(error, ResponseError):
        return bool(_code(error))
    return isinstance(error, RedisConnectionError | RedisTimeoutError | OSError)


def _code(error: Exception) -> str:
    """Redis's code for a temporary refusal; empty for an error of the command."""
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return code
    found = _PASSING.search(str(error))
    return cast("str", found[1]) if found else "LOADING" if "loading the dataset" in str(error) else ""
