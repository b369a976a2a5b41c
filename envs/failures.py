"""Classifies failures of agents: by the policy, the infrastructure or the user's code."""

from collections.abc import Iterator
from typing import Final, cast

import msgspec

from agent_layer.errors import AgentFailedError, BadInputError, BoxExhaustedError, SandboxError, UnreachableError
from agent_layer.recorder import KeyScrubber
from agent_layer.schema import Cause, PolicyFault, RolloutStatus, WallFault
from agent_layer.schema.sandbox import EndOfBox
from tracer.core import describe_traceback

CONTEXT_FULL: Final = "context_length_exceeded"
"""Error code of a call that does not fit into the model's context, or into the task's ``context_tokens``."""
_LIMIT_CODES: Final = ("rollout_limit", CONTEXT_FULL)
"""Error codes of calls that the gateway refuses because the policy used up what it has. The first: turns or tokens."""
_OUT_OF_TURNS: Final = frozenset(
    {
        "agents.exceptions.MaxTurnsExceeded",
        "langgraph.errors.GraphRecursionError",
        "pydantic_ai.exceptions.UsageLimitExceeded",
    }
)
"""Errors by which frameworks say that the policy used up the turns or tokens that its agent allows."""
_OUT_OF_TIME: Final = " seconds is used up"
_POLICY_SHARE, _INFRA_SHARE = 0.5, 0.2
_MAX_ERROR_LENGTH = 2000
_SCRUBBER = KeyScrubber(())


class ModelCallError(AgentFailedError):
    """The gateway or engine refused a model call. The second argument is the HTTP status."""

    def __init__(self, message: str, status_code: int) -> None:
        super().__init__(message, status_code)
        self.status_code = status_code

    def __str__(self) -> str:
        return str(self.args[0])


class ContextFullError(ModelCallError):
    """A model call does not fit into the context, and nothing can make room."""


class RefusedTaskError(BadInputError):
    """Every attempt at this task would be refused, by the gateway or because no sandbox can be as it asks."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How the run of an attempt ended."""

    status: RolloutStatus = "completed"
    cause: Cause | None = None
    """None for a plain completion."""
    error: str | None = None
    traceback: str | None = None
    """Where the agent raised it, in its own code; None: no error of the agent ended it."""
    is_self_inflicted: bool = False
    """What the attempt's own commands did ended it."""
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

    Out of turns, tokens, context or room in its box: the policy used them up, and the attempt is scored. No answer,
    status 500 and above, or a lost sandbox: the infrastructure failed. Everything else is the agent's own fault.
    """
    if isinstance(error, EndedError):
        return error.ending
    chain = list(_chain(error))
    text = describe_error(error)
    is_self_inflicted = is_of_box_commands(error)
    if is_self_inflicted or any(is_out_of_budget(one) for one in chain):
        return Ending(status="truncated", cause="policy", error=text, is_self_inflicted=is_self_inflicted)
    found = describe_traceback(error)
    if any(_is_infrastructure(one) for one in chain):
        return Ending(status="lost", cause="infra", error=text, traceback=found)
    return Ending(status="failed", cause="user", error=text, traceback=found)


def is_of_box_commands(error: BaseException) -> bool:
    """Whether the commands of a sandbox, or files that they left, led to an error."""
    return any(isinstance(one, BoxExhaustedError) for one in _chain(error))


def is_out_of_budget(error: BaseException) -> bool:
    """Whether the policy used up turns, tokens or context: a model call was refused, or its framework says so."""
    if any(f"{kind.__module__}.{kind.__qualname__}" in _OUT_OF_TURNS for kind in type(error).__mro__):
        return True
    text = describe_error(error)
    return any(getattr(error, "code", None) == code or code in text for code in _LIMIT_CODES)


def end_with_box(end: EndOfBox) -> Ending:
    """Return how an attempt ends whose box did: what its own commands did to it is the policy's."""
    if end.cause != "policy":
        return Ending(status="lost", cause=end.cause, error=end.why)
    return Ending(status="truncated", cause=end.cause, error=end.why, is_self_inflicted=True)


class TimeSpent(msgspec.Struct, frozen=True, kw_only=True):
    """What took the time of an attempt that used up ``wall_seconds`` or ``idle_seconds``."""

    seconds: float
    """All of it."""
    command_seconds: float = 0.0
    """Part in which its own commands ran."""
    waited_seconds: float = 0.0
    """Part in which it waited for an engine or the gateway."""
    is_commanding: bool = False
    """Whether a command of its own ran at the end."""


def is_out_of_time(ending: Ending) -> bool:
    """Whether the gateway refused a call because the attempt's time was over, which says nothing of what took it."""
    return (ending.status, ending.cause) == ("truncated", "policy") and _OUT_OF_TIME in (ending.error or "")


def blame_for_time(error: str, spent: TimeSpent, fault: WallFault) -> Ending:
    """Return how an attempt ends that used up its time.

    The policy's: a command of its own ran at the end, or they took more than half of the time. Else the
    infrastructure's: waits took more than a fifth. Else the user's: what its agent did is not known.

    Args:
        error: which limit.
        spent: what took the time.
        fault: what the task says.
    """
    is_own = spent.is_commanding or spent.command_seconds > _POLICY_SHARE * spent.seconds
    if fault == "policy" or (fault == "auto" and is_own):
        why = f"{error}; its own commands took {spent.command_seconds:.1f} s" if is_own else error
        return Ending(status="truncated", cause="policy", error=why, is_self_inflicted=is_own)
    if fault == "auto" and spent.waited_seconds > _INFRA_SHARE * spent.seconds:
        return Ending(
            status="lost", cause="infra", error=f"{error} with a model call in flight for {spent.waited_seconds:.1f} s"
        )
    return Ending(status="failed", cause="user", error=error)


def blame_policy(ending: Ending, fault: PolicyFault | None) -> Ending:
    """Return how an attempt ended whose last model call did not fit into the context, or missed its form.

    An agent that failed then did so because of the policy. One that went on ended as it says.
    """
    if fault is None or (ending.status, ending.cause) != ("failed", "user"):
        return ending
    return msgspec.structs.replace(ending, status="truncated", cause="policy")


def describe_error(error: BaseException) -> str:
    """Return an error of foreign code as text that a record can hold, without keys of rollouts."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  # its __str__ is foreign code
        text = type(error).__name__
    return _SCRUBBER.scrub_text(text)[:_MAX_ERROR_LENGTH]


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
