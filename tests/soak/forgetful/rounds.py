"""Rounds of a soak: each causes one fault under load, and awaits that the line serves again without a hand."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from line import Line
from servers import ReplicatedServer
from shim import REFUSALS, Control
from waiting import WaitExpired, wait_until

__all__ = ["FAULTS", "Rounds"]

_BACK_SECONDS = 30.0
_STUCK_SECONDS = 90.0
_LAG_SECONDS = 1.0
"""Longest time that a replica is behind when it is promoted."""
_GAP_SECONDS = 1.0
"""Longest time between two faults of one round."""
_CLOCKS = (-60.0, 60.0, 0.0)


@dataclass
class Rounds:
    """What happened, and which rounds did not end well."""

    line: Line
    chance: random.Random
    combined: list[str] = field(default_factory=list[str])
    """Faults that ``combine`` draws from."""
    history: list[str] = field(default_factory=list[str])
    breaches: list[str] = field(default_factory=list[str])
    seconds_until_back: list[float] = field(default_factory=list[float])

    def await_first_group(self) -> None:
        """Wait until all parts have started."""
        wait_until(lambda: self._serves_since(0.0), _STUCK_SECONDS, "the first group", self.line.log("gateway"))

    def run(self, number: int, fault: str) -> bool:
        """Cause one fault under load; return whether the line serves again."""
        line = self.line
        self._pass_time(self.chance.uniform(0.5, 2.5))
        happened = FAULTS[fault](self)
        line.counts[fault] += 1
        began = time.monotonic()
        try:
            wait_until(lambda: self._serves_since(began), _BACK_SECONDS, "a group that was submitted since")
        except WaitExpired:
            self.breaches.append(f"not back within {_BACK_SECONDS:g} s: round {number}, {fault} ({happened})")
            try:
                wait_until(lambda: self._serves_since(began), _STUCK_SECONDS, "a group that was submitted since")
            except WaitExpired:
                self.breaches.append(f"not back at all: round {number}, {fault} ({happened})")
        seconds = time.monotonic() - began
        self.seconds_until_back.append(seconds)
        self.history.append(f"round {number}: {fault}: {happened}; served again after {seconds:.1f} s")
        return not any(breach.startswith("not back at all") for breach in self.breaches)

    def _pass_time(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:  # wait: how long the load lasts before a fault, not for anything
            self.line.tend()
            time.sleep(0.1)

    def _serves_since(self, began: float) -> bool:
        """Whether a group came that was submitted after a moment."""
        self.line.tend()
        time.sleep(0.1)
        submitted: set[object] = set()
        for note in self.line.read_journal():
            if note["what"] == "submitted" and float(str(note["at"])) > began:
                submitted.add(note["subject"])
            elif note["what"] == "received" and note["subject"] in submitted:
                return True
        return False

    def cut(self) -> str:
        """Kill Redis, and lose a part of what was not on disk."""
        return self.line.server.cut(self.chance)

    def promote(self) -> str:
        """Promote a replica that is behind."""
        server = self.line.server
        assert isinstance(server, ReplicatedServer)
        lag = self.chance.uniform(0.0, _LAG_SECONDS)
        server.fall_behind()
        self._pass_time(lag)
        return f"{server.promote()}, {lag:.2f} s behind"

    def flush(self) -> str:
        """Empty Redis while it runs."""
        with self.line.server.connect() as redis:
            redis.flushall()
        return "FLUSHALL"

    def empty(self) -> str:
        """Start Redis without its data."""
        return self.line.server.empty()

    def move_clock(self) -> str:
        """Move the clock of Redis."""
        seconds = self.chance.choice(_CLOCKS)
        self.line.server.control.move_clock(seconds)
        return f"clock of Redis {seconds:+g} s"

    def refuse(self) -> str:
        """Refuse descriptors, space or writes to one process, and to those that it starts."""
        happened, seconds = self._begin_refusals({**self.line.controls, "redis": self.line.server.control})
        self._pass_time(seconds)
        return happened

    def _begin_refusals(self, controls: dict[str, Control]) -> tuple[str, float]:
        """Return what begins, and for how many seconds it lasts."""
        name, what = self.chance.choice(sorted(controls)), self.chance.choice(sorted(REFUSALS))
        seconds, share = self.chance.uniform(0.3, 3.0), self.chance.choice([0.1, 0.5, 1.0])
        controls[name].refuse(what, seconds, share)
        return f"{what} in {name} for {seconds:.1f} s, {share:.0%} of the calls", seconds

    def combine(self) -> str:
        """Cause two faults, the second one while the line suffers from the first."""
        faults = self.chance.choices(self.combined, k=2)
        happened: list[str] = []
        for fault in sorted(faults, key=lambda one: one != "refuse"):  # it lasts, so it is the first
            if fault == "refuse":  # of the line's processes: a Redis that may not start is started by us
                happened.append(self._begin_refusals(self.line.controls)[0])
            else:
                happened.append(FAULTS[fault](self))
            self._pass_time(self.chance.uniform(0.0, _GAP_SECONDS))
        return ", then ".join(happened)


FAULTS: dict[str, Callable[[Rounds], str]] = {
    "cut": Rounds.cut,
    "promote": Rounds.promote,
    "flush": Rounds.flush,
    "empty": Rounds.empty,
    "clock": Rounds.move_clock,
    "refuse": Rounds.refuse,
    "combined": Rounds.combine,
}
