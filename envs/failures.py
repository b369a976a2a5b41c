"""Classifies failures of agents: by the policy, the infrastructure or the user's code."""

from collections.abc import Iterator
from typing import cast

import msgspec

from agent_layer.errors import AgentFailedError, BadInputError, SandboxError, UnreachableError
from agent_layer.recorder import KeyScrubber
from agent_layer.schema import Cause, RolloutStatus

_LIMIT_CODE = "rollout_limit"
"""Error code with which the gateway refuses calls when the task's turns or tokens are used up."""
_LONGEST_ERROR = 2000
_SCRUBBER = KeyScrubber(())


class ModelCallError(AgentFailedError):
    """The gateway or engine refused a model call. The second argument is the HTTP status."""

    def __init__(self, message: str, status_code: int) -> None:
        super().__init__(message, status_code)
        self.status_code = status_code

    def __str__(self) -> str:
        return str(self.args[0])


class RefusedTaskError(BadInputError):
    """The gateway refuses every attempt at this task."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How the run of an attempt ended."""

    status: RolloutStatus = "completed"
    cause: Cause | None = None
    """None for a plain completion."""
    error: str | None = None
    is_own: bool = True
    """False: it ended because of another attempt, and does not count as a failure of its task."""


class EndedError(AgentFailedError):
    """The agent ended in another process, which reported how."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending = ending

    def __str__(self) -> str:
        return self.ending.error or self.ending.status


def classify_failure(error: BaseException) -> Ending:
    """Classify an agent's error, including the errors that caused it.

    Out of turns or tokens: the policy used them up, and the attempt is scored. No answer, status 500 and above, or
    a lost sandbox: the infrastructure failed. Everything else is the agent's own fault.
    """
    if isinstance(error, EndedError):
        return error.ending
    chain = list(_chain(error))
    text = describe_error(error)
    if any(getattr(one, "code", None) == _LIMIT_CODE or _LIMIT_CODE in describe_error(one) for one in chain):
        return Ending(status="truncated", cause="policy", error=text)
    if any(_is_infrastructure(one) for one in chain):
        return Ending(status="lost", cause="infra", error=text)
    return Ending(status="failed", cause="user", error=text)


def describe_error(error: BaseException) -> str:
    """Return an error of foreign code as text that a record can hold, without keys of rollouts."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  # its __str__ is foreign code
        text = type(error).__name__
    return _SCRUBBER.scrub_text(text)[:_LONGEST_ERROR]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes and contexts, each once."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting.extend(cause for cause in (one.__cause__, one.__context__) if cause is not None)
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(cast("BaseExceptionGroup[BaseException]", one).exceptions)


def _is_infrastructure(error: BaseException) -> bool:
    status = getattr(error, "status_code", None)
    is_refusal = isinstance(status, int) and status >= 500
    return is_refusal or isinstance(error, ConnectionError | TimeoutError | UnreachableError | SandboxError)
