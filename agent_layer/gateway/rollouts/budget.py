"""The limits of an attempt: calls, tokens, time and context."""

import math
import time
from collections.abc import Callable
from typing import Final

import msgspec

from agent_layer.schema import JsonObject, Limits

_CAPS: Final = ("max_tokens", "max_completion_tokens")


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one attempt, whose time runs from its opening at the gateway."""

    limits: Limits = Limits()
    max_side_calls: int | None = None
    """Bound of calls of role ``aux``, which spend none of the limits but time; None: no bound."""
    clock: Callable[[], float] = time.monotonic
    opened_at: float = msgspec.field(default_factory=time.monotonic)

    def spent(self, num_calls: int | None, num_sampled: int | None, num_side_calls: int | None = None) -> str | None:
        """Name the limit that is reached; None: another call may be made. Counts that are None have no limit here."""
        for name, used, limit in (
            ("model calls", num_calls, self.limits.turns),
            ("sampled tokens", num_sampled, self.limits.tokens),
            ("side calls (AGENT_LAYER_MAX_SIDE_CALLS)", num_side_calls, self.max_side_calls),
            ("seconds", self.clock() - self.opened_at, self.limits.wall_seconds),
        ):
            if used is not None and limit is not None and used >= limit:
                return f"{limit:g} {name}"
        return None

    def seconds_left(self) -> float | None:
        """Until the time is over; None: it never is."""
        wall = self.limits.wall_seconds
        return None if wall is None else max(0.0, self.opened_at + wall - self.clock())

    def cap(self, sampling: JsonObject, num_sampled: int, num_prompt: int | None = None) -> JsonObject:
        """What to change so that an answer's length stays within the tokens that are left.

        A request that names no length gets none, unless its prompt was counted: a cap above what fits in the engine's
        context would be refused there. Calls that run side by side are capped each for itself.
        """
        limits = self.limits
        if limits.tokens is None and (limits.context_tokens is None or num_prompt is None):
            return {}
        named = {name: value for name in _CAPS if isinstance(value := sampling.get(name), int | float)}
        most: list[int] = []
        if limits.tokens is not None:
            num_choices = sampling.get("n")
            num_shares = max(1, num_choices) if isinstance(num_choices, int) else 1
            most.append(max(1, (limits.tokens - num_sampled) // num_shares))
        if limits.context_tokens is not None and num_prompt is not None:
            most.append(max(1, limits.context_tokens - num_prompt))
            named = named or {_CAPS[0]: math.inf}
        return {name: min(most) for name, value in named.items() if value > min(most)}
