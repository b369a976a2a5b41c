"""Tracing session of a process: settings, recorder, instrumented clients."""

import atexit
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_layer.recorder import open_recorder
from agent_layer.settings import Settings, load_settings
from tracer.core import SYSTEM, ClockAndIds, Rollout, Scope, Sink, enter_process_scope, propagate_context, warn_once
from tracer.integrations import instrument
from tracer.transport import GatewayClient, connect_gateway, rollout_from_environment

if TYPE_CHECKING:
    from agent_layer.recorder import FlushReport


@dataclass(frozen=True, kw_only=True)
class Session:
    """Where this process opens and records rollouts."""

    settings: Settings
    sink: Sink
    clock: ClockAndIds = SYSTEM
    inherited: Rollout | None = None
    """The rollout that this process was started for; its starter opens and ends it."""

    @property
    def gateway(self) -> GatewayClient | None:
        """Client of the gateway that opens rollouts; None: this process records them, at text level."""
        settings = self.settings
        if not settings.gateway_urls:
            return None
        return connect_gateway(
            settings.gateway_urls,
            settings.api_key,
            connect_seconds=settings.connect_seconds,
            answer_seconds=settings.seal_seconds + settings.connect_seconds,
        )


class _Process:
    """Session of the whole process, set by ``init``."""

    session: Session | None = None


_OVERRIDE: ContextVar[Session | None] = ContextVar("tracer_tracing", default=None)


def init(settings: Settings | None = None, **overrides: object) -> None:
    """Begin tracing in this process. A second call changes nothing, unless it passes settings.

    Args:
        settings: default: read from the environment.
        overrides: single settings by name, such as ``run="r"``.

    Raises: BadInputError: a setting has an invalid value.
    """
    if _Process.session is None or settings is not None or overrides:
        _Process.session = _begin(settings or load_settings(**overrides), is_read=settings is None)
    instrument()


def _begin(settings: Settings, *, is_read: bool) -> Session:
    """Return a new session, inside the rollout that the environment names, if the settings come from there."""
    rollout = rollout_from_environment(settings) if is_read else None
    if rollout is None:
        return Session(settings=settings, sink=open_recorder(settings))
    enter_process_scope(Scope(rollout=rollout))
    atexit.register(rollout.abandon_unfinished)
    return Session(settings=settings, sink=rollout.sink, inherited=rollout)


def active_session() -> Session:
    """Return the session of this context; begins tracing if needed."""
    if (override := _OVERRIDE.get()) is not None:
        return override
    if _Process.session is None:
        init()
    assert _Process.session is not None
    return _Process.session


@contextmanager
def use_session(session: Session) -> Generator[None]:
    """Context manager: rollouts that begin inside, also in threads and tasks it starts, use this session."""
    token = _OVERRIDE.set(session)
    try:
        instrument()
        with propagate_context():
            yield
    finally:
        _OVERRIDE.reset(token)


def flush(timeout: float | None = None) -> "FlushReport":
    """Wait until all records of this process are in the store.

    Args:
        timeout: seconds; None: the setting ``flush_seconds``. What is not stored by then is counted as pending.

    Returns: at once where nothing can be stored, for example without Redis. ``error`` says why, and stderr once.
    """
    session = active_session()
    report = session.sink.flush(timeout)
    if report.error is not None:
        where = f"{report.pending} records wait in {session.settings.log_dir} until it is mended"
        warn_once("tracer.flush", f"{report.error}; {where}")
    return report
