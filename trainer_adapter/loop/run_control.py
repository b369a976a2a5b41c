"""This file holds how a run stands with the dispatcher: what its engines serve, that it pauses, and why."""

import time
from collections.abc import Generator
from contextlib import contextmanager

from agent_layer.dispatcher import Dispatcher, RunState
from agent_layer.errors import AgentLayerError

_LOOK_SECONDS = 2.0
"""Between two looks while groups are waited for: what ended just before a pause is trained first."""
_SWITCHING = "trainer: engines are given new weights"
"""Reason of a pause, by which it is told from those of others."""


class RunControl:
    """One run, as its trainer asks and tells the dispatcher about it."""

    def __init__(self, run: str, dispatcher: Dispatcher, *, pause_at_switch: bool) -> None:
        self._run = run
        self._dispatcher = dispatcher
        self._pause_at_switch = pause_at_switch
        self._look_at = 0.0
        self._is_failing = False
        dispatcher.end_pause(run, _SWITCHING)  # left by a trainer that was killed

    @contextmanager
    def pause_for_switch(self, policy_version: int) -> Generator[None]:
        """Pause the run while the block gives engines a version, if that is wanted; then say that they serve it.

        It goes on also when the block fails. A run that somebody else paused stays paused.
        """
        if self._pause_at_switch:
            self._dispatcher.begin_pause(self._run, _SWITCHING)
        try:
            yield
            self._dispatcher.serve(self._run, policy_version)
        finally:
            if self._pause_at_switch:
                self._dispatcher.end_pause(self._run, _SWITCHING)

    def begin_wait(self) -> None:
        """Say that groups are waited for from now on."""
        self._look_at = time.monotonic() + _LOOK_SECONDS

    def is_failing(self) -> bool:
        """Whether the run was paused because too many attempts fail; looked up after some seconds of a wait."""
        if not self._is_failing and time.monotonic() >= self._look_at:
            self._is_failing = (state := self._read_state()) is not None and state.is_failing
            self.begin_wait()
        return self._is_failing

    def explain_missing_group(self, waited_seconds: float) -> AgentLayerError:
        """Explain that a wait for groups has ended without any."""
        state = self._read_state()
        if state is not None and state.is_failing:
            return AgentLayerError(
                f"run {self._run}: expected most attempts to succeed, but the dispatcher paused it: {state.paused};"
                f" see 'agent-layer dead list', mend what fails, then 'agent-layer runs resume {self._run}' and train"
                " again"
            )
        subject = f"run {self._run}: expected a group of rollouts to close within {waited_seconds:.0f} s, but none did"
        if state is not None and state.paused is not None:
            why = f" ({state.paused})" if state.paused else ""
            return AgentLayerError(
                f"{subject}; it is paused{why}: 'agent-layer runs resume {self._run}', then train again"
            )
        return AgentLayerError(
            f"{subject}; is a worker running? 'agent-layer workers' and 'agent-layer dead list' tell"
        )

    def _read_state(self) -> RunState | None:
        return next(iter(self._dispatcher.runs([self._run])), None)
