"""Control of one run at the dispatcher: the version that its engines serve, and pauses."""

import time
from collections.abc import Generator
from contextlib import contextmanager

from agent_layer.dispatcher import Dispatcher, RunState
from agent_layer.errors import AgentLayerError

_LOOK_SECONDS = 2.0
"""Interval of polls during a wait: groups that closed just before a pause are trained first."""
_SWITCHING = "trainer: engines are given new weights"
"""Pause reason that identifies pauses made by the trainer."""


class RunControl:
    """Reads and changes the state of one run at the dispatcher, for its trainer."""

    def __init__(self, run: str, dispatcher: Dispatcher, *, pause_at_switch: bool) -> None:
        self._run = run
        self._dispatcher = dispatcher
        self._pause_at_switch = pause_at_switch
        self._look_at = 0.0
        self._is_failing = False
        self._served: int | None = None
        """Policy version that was last reported as served; None: none yet."""
        dispatcher.end_pause(run, _SWITCHING)  # left by a trainer that was killed

    @contextmanager
    def pause_for_switch(self, policy_version: int) -> Generator[None]:
        """Context manager around a switch of the engines: pause the run if configured; afterwards report the served
        version.

        The run resumes also when the block fails. A run that a user paused stays paused.
        """
        if self._pause_at_switch:
            self._dispatcher.begin_pause(self._run, _SWITCHING)
        try:
            yield
            self.report_served(policy_version)
        finally:
            if self._pause_at_switch:
                self._dispatcher.end_pause(self._run, _SWITCHING)

    def report_served(self, policy_version: int) -> None:
        """Report the version that the engines serve."""
        self._served = policy_version
        self.serve_again()

    def serve_again(self) -> None:
        """Report the version that the engines serve once more: Redis may have forgotten it."""
        if self._served is not None:
            self._dispatcher.serve(self._run, self._served)

    def begin_wait(self) -> None:
        """Restart the interval of polls."""
        self._look_at = time.monotonic() + _LOOK_SECONDS

    def is_failing(self) -> bool:
        """Whether the run was paused because too many attempts fail; polled after some seconds of a wait."""
        if not self._is_failing and time.monotonic() >= self._look_at:
            self._is_failing = (state := self._read_state()) is not None and state.is_failing
            self.begin_wait()
        return self._is_failing

    def explain_missing_group(self, waited_seconds: float) -> AgentLayerError:
        """Return the error that explains why no group closed."""
        state = self._read_state()
        if state is not None and state.is_failing:
            return AgentLayerError(
                f"run {self._run}: expected most attempts to succeed, but the dispatcher paused it: {state.paused};"
                f" see 'agent-layer dead list', fix what fails, then 'agent-layer runs resume {self._run}' and train"
                " again"
            )
        subject = f"run {self._run}: expected a group of rollouts to close within {waited_seconds:.0f} s, but none did"
        if state is not None and state.paused is not None:
            why = f" ({state.paused})" if state.paused else ""
            return AgentLayerError(
                f"{subject}; it is paused{why}: 'agent-layer runs resume {self._run}', then train again"
            )
        return AgentLayerError(
            f"{subject}; is a worker running? 'agent-layer workers' and 'agent-layer dead list' show why"
        )

    def _read_state(self) -> RunState | None:
        return next(iter(self._dispatcher.runs([self._run])), None)
