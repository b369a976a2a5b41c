"""Watch over the parts of a run: it returns the first death, and never ends silently itself.

What a look raises is no death. Redis, or Ray's own state, may be away for a while: the log says so, and the watch goes
on. Where that lasts, or a look fails in another way, the run ends with what was raised: veRL could wait for ever for a
part that is not seen.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from ray.exceptions import RayError
from redis.exceptions import RedisError

from agent_layer.errors import AgentLayerError

log = logging.getLogger(__name__)

MAX_BLIND_SECONDS = 300.0
"""Longest time for which some part cannot be looked at."""
_AWAY = (RayError, RedisError, AgentLayerError, OSError)


class Death(NamedTuple):
    """What has died, so that the run must end."""

    why: str
    urls: tuple[str, ...] = ()
    """Addresses of dead servers."""


Look: TypeAlias = Callable[[], Death | None]


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
    blind_since: float | None = None
    while not is_over():
        found, faults = _look(looks)
        if found:
            return Death(", ".join(one.why for one in found), tuple(url for one in found for url in one.urls))
        if faults and blind_since is None:
            blind_since = clock()
            log.warning("watch: cannot look at all parts of the run, goes on: %s", _name(faults[0]))
        elif not faults and blind_since is not None:
            blind_since = None
            log.warning("watch: sees all parts of the run again")
        if why := _explain_blindness(faults, clock() - (blind_since or clock())):
            return Death(why)
    return None


def _look(looks: Sequence[Look]) -> tuple[list[Death], list[Exception]]:  # kept: its caller is a loop of states
    """Return what has died, and what looks have raised."""
    found, faults = list[Death](), list[Exception]()
    for look in looks:
        try:
            found += filter(None, [look()])
        except Exception as error:  # noqa: BLE001  # the thread would end without a word
            faults.append(error)
    return found, faults


def _explain_blindness(faults: Sequence[Exception], seconds: float) -> str | None:
    """Return why the run must end after looks have failed for this time; None: it goes on."""
    if broken := [fault for fault in faults if not isinstance(fault, _AWAY)]:
        return f"the watch over the run's parts failed: {_name(broken[0])}"
    if seconds > MAX_BLIND_SECONDS:
        return f"parts of the run could not be looked at for {seconds:.0f} s: {_name(faults[0])}"
    return None


def act_on_death(actions: Sequence[Callable[[], object]]) -> None:
    """Take all actions that end a run, whatever one of them raises."""
    for act in actions:
        try:
            act()
        except Exception as error:  # noqa: BLE001  # the next one ends the run
            log.warning("watch: goes on to end the run: %s", _name(error))


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
