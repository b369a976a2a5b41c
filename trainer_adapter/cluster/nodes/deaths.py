"""Watch over the parts of a run: it returns the first death, and never ends silently itself.

What a look raises is no death. Redis, or Ray's own state, may be away for a while: the log says so, and the watch goes
on. Where that lasts, or a look fails in another way, the run ends with what was raised: veRL could wait for ever for a
part that is not seen.
"""

import logging
import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import NamedTuple, TypeAlias

from ray.exceptions import RayError
from redis.exceptions import RedisError

from agent_layer.errors import AgentLayerError, EngineError
from trainer_adapter.cluster.end import is_final

log = logging.getLogger(__name__)

MAX_BLIND_SECONDS = 300.0
"""Longest time for which some part cannot be looked at."""
CAUSE_SECONDS = 30.0
"""From what a thread raises until the death behind it is known: a peer's broken connection comes first."""
_AWAY = (RayError, RedisError, AgentLayerError, OSError)


class Death(NamedTuple):
    """What has died, so that the run must end."""

    why: str
    urls: tuple[str, ...] = ()
    """Addresses of dead servers."""


Look: TypeAlias = Callable[[], Death | None]


class Cause:
    """The death for which a run ends: the watch names it, other threads wait for it with what they raise."""

    def __init__(self) -> None:
        self._is_known = Event()
        self.death: EngineError | None = None

    def name(self, death: EngineError) -> None:
        """Let all threads know the death."""
        self.death = death
        self._is_known.set()

    def wait_behind(self, error: BaseException, seconds: float = CAUSE_SECONDS) -> BaseException:
        """Return the death behind an error, once it is known; the error itself where there is none.

        An error that ends the run for good, such as an option that is wrong, needs no death and is not waited for.
        """
        if not is_final(error):
            self._is_known.wait(seconds)
        return self.death or error


def wait_for_death(
    looks: Sequence[Look], is_over: Callable[[], bool], clock: Callable[[], float] = time.monotonic
) -> Death | None:
    """Look at all parts again and again; return their death. One that cannot be looked at hides no other.

    Args:
        looks: at parts; each returns what has died there.
        is_over: waits for the next look; returns whether the run is over.
        clock: in seconds.

    Returns: what has died, or why parts cannot be looked at any more; None: the run is over.
    """
    try:
        return _watch(looks, is_over, clock)
    except BaseException as error:  # noqa: BLE001  # the thread would end without a word
        return _explain_failure(error)


def _watch(looks: Sequence[Look], is_over: Callable[[], bool], clock: Callable[[], float]) -> Death | None:
    blind_since: dict[int, float] = {}
    while not is_over():
        found, faults = _look(looks)
        if found:
            return Death(", ".join(one.why for one in found), tuple(url for one in found for url in one.urls))
        if faults and not blind_since:
            log.warning("watch: cannot look at all parts of the run, goes on: %s", _name(next(iter(faults.values()))))
        elif blind_since and not faults:
            log.warning("watch: sees all parts of the run again")
        now = clock()
        blind_since = {number: blind_since.get(number, now) for number in faults}
        if end := _explain_blindness(faults, {number: now - since for number, since in blind_since.items()}):
            return end
    return None


def _look(
    looks: Sequence[Look],
) -> tuple[list[Death], dict[int, BaseException]]:  # kept: its caller is a loop of states
    """Return what has died, and by the number of a look what it has raised."""
    found, faults = list[Death](), dict[int, BaseException]()
    for number, look in enumerate(looks):
        try:
            found += filter(None, [look()])
        except BaseException as error:  # noqa: BLE001  # another part may have died
            faults[number] = error
    return found, faults


def _explain_blindness(faults: dict[int, BaseException], seconds: dict[int, float]) -> Death | None:
    """Return why the run must end after looks have failed, each for this time; None: it goes on."""
    for number, fault in faults.items():
        if not isinstance(fault, _AWAY):
            return _explain_failure(fault)
        if seconds[number] > MAX_BLIND_SECONDS:
            return Death(f"parts of the run could not be looked at for {seconds[number]:.0f} s: {_name(fault)}")
    return None


def act_on_death(actions: Sequence[Callable[[], object]]) -> None:
    """Take all actions that end a run, whatever one of them raises."""
    for act in actions:
        try:
            act()
        except BaseException as error:  # noqa: BLE001  # the next one ends the run
            log.warning("watch: goes on to end the run: %s", _name(error))


def _explain_failure(error: BaseException) -> Death:
    return Death(f"the watch over the run's parts failed: {_name(error)}")


def _name(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  # an error that cannot be printed still has a name
        return type(error).__name__
