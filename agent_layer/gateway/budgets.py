"""This file holds what an attempt may use up, and what of it is left: model calls, sampled tokens, time."""

import time
from collections.abc import Callable

import msgspec

from agent_layer.schema.record import JsonObject
from agent_layer.schema.task import Limits

__all__ = ["Budget"]

_CAPS = ("max_tokens", "max_completion_tokens")


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one attempt, whose time runs from its opening at the gateway."""

    limits: Limits = Limits()
    clock: Callable[[], float] = time.monotonic
    opened_at: float = msgspec.field(default_factory=time.monotonic)

    def spent(self, num_calls: int, num_sampled: int) -> str | None:
        """Name the limit that is reached; None: another call may be made."""
        for name, used, limit in (
            ("model calls", num_calls, self.limits.turns),
            ("sampled tokens", num_sampled, self.limits.tokens),
            ("seconds", self.clock() - self.opened_at, self.limits.wall_seconds),
        ):
            if limit is not None and used >= limit:
                return f"{limit:g} {name}"
        return None

    def seconds_left(self) -> float | None:
        """Until the time is over; None: it never is."""
        wall = self.limits.wall_seconds
        return None if wall is None else max(0.0, self.opened_at + wall - self.clock())

    def cap(self, asked: JsonObject, num_sampled: int) -> JsonObject:
        """What to change so that an answer's length stays within the tokens that are left.

        A request that names no length gets none: a cap above what fits in the engine's context would be refused there.
        Calls that run side by side are capped each for itself.
        """
        if self.limits.tokens is None:
            return {}
        num_choices = asked.get("n")
        num_shares = max(1, num_choices) if isinstance(num_choices, int) else 1
        share = max(1, (self.limits.tokens - num_sampled) // num_shares)
        named = {name: value for name in _CAPS if isinstance(value := asked.get(name), int | float)}
        return {name: share for name, value in named.items() if value > share}
