"""Errors as HTTP answers: with a status, and in the shape of the dialect that the client uses.

Each leaves a trace: a count by reason in the metrics, a line in the log, and, unless it is how rollouts end, a finding
of the rollout that asked. Errors of the gateway itself are counted and logged by the server below.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import msgspec
from aiohttp import web

from agent_layer.errors import (
    AgentLayerError,
    BackPressureError,
    BadInputError,
    CaptureError,
    EngineError,
    NotFoundError,
    NotWholeError,
    UnreachableError,
)
from agent_layer.gateway.dialects.refusals import CONTEXT_FULL, INTERNAL_ERROR, RefusedError, refusal, refuse_own_fault
from agent_layer.gateway.http.auth import Access
from agent_layer.gateway.rollouts.counters import Counters

REFUSALS: Final = (RefusedError, AgentLayerError, web.HTTPException)
"""Errors that are answered with a sentence; all others are the gateway's own."""
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_STATUS: dict[type[AgentLayerError], int] = {
    BadInputError: 400,
    NotFoundError: 404,
    NotWholeError: 409,
    CaptureError: 409,
    BackPressureError: 503,
    EngineError: 502,
    UnreachableError: 502,
}


_log = logging.getLogger(__name__)
_MAX_SENTENCE_LENGTH = 300
"""Characters that the log quotes."""
_REPEAT_LOG_SECONDS, _MAX_LOGGED = 60.0, 1024
_ENDINGS = frozenset({"rollout_limit", "rollout_paused", "rollout_closed", CONTEXT_FULL})
"""Reasons that are the normal end of a rollout for its agent."""


@dataclass(frozen=True, kw_only=True)
class ErrorAnswers:
    """Answers requests that fail."""

    access: Access
    counters: Counters
    mask_keys: Callable[[str], str]
    """Removes keys from a text."""
    clock: Callable[[], float] = time.monotonic
    logged_at: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """When a reason was last logged for an address."""

    @web.middleware
    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn errors into answers with one sentence."""
        try:
            return await handler(request)
        except REFUSALS as error:
            return self.refuse(request, error)

    def refuse(self, request: web.Request, error: "RefusedError | AgentLayerError | web.HTTPException") -> web.Response:
        """Return the answer to a request that failed, and leave its traces."""
        refused = _refused(request, error)
        self._record(refused, f"{request.method} {request.path}")
        if refused.reason not in _ENDINGS and (rollout := self.access.identify(request)):
            rollout.refusals |= {refused.reason}
        return refusal(request.path, refused.status, refused.code, refused.message)

    def fail(self, request: web.Request, error: Exception) -> web.Response:
        """Return the answer to a message at which the gateway itself failed, and leave its traces."""
        _log.error("message failed path=%s", request.path, exc_info=error)
        self.counters.add("refused_requests", reason=INTERNAL_ERROR)
        return refuse_own_fault(request.path)

    def _record(self, refused: "_Refusal", address: str) -> None:
        """Count the request, and log it at most once a minute: a log must not fill the disk."""
        self.counters.add("refused_requests", reason=refused.reason)
        now, about = self.clock(), (refused.reason, address)
        if now < self.logged_at.get(about, -math.inf) + _REPEAT_LOG_SECONDS:
            return
        if len(self.logged_at) >= _MAX_LOGGED:
            self.logged_at.clear()
        self.logged_at[about] = now
        sentence = refused.message if address in refused.message else f"{address}: {refused.message}"
        quoted = self.mask_keys(sentence)[:_MAX_SENTENCE_LENGTH]
        _log.info("request refused reason=%s status=%d error=%r", refused.reason, refused.status, quoted)


class _Refusal(NamedTuple):
    status: int
    code: str
    """Code as the client reads it."""
    reason: str
    """Reason for people who look for a cause; one of few."""
    message: str


def _refused(request: web.Request, error: RefusedError | AgentLayerError | web.HTTPException) -> _Refusal:
    match error:
        case RefusedError():
            return _Refusal(error.status, error.code, error.code, error.message)
        case AgentLayerError():
            kind = type(error).__name__
            return _Refusal(_STATUS.get(type(error), 500), kind, kind, str(error))
        case web.HTTPRequestEntityTooLarge():
            sentence = f"{request.method} {request.path}: {error.text}; send less, or raise AGENT_LAYER_MAX_BODY_BYTES"
            return _Refusal(error.status, "request_too_large", "request_too_large", sentence)
        case _:
            reason = "_".join(error.reason.lower().split())
            return _Refusal(error.status, "http", reason, f"{request.method} {request.path}: {error.reason}")


def as_json(record: object, status: int = 200) -> web.Response:
    """Answer with a record."""
    return web.Response(body=msgspec.json.encode(record), status=status, content_type="application/json")
