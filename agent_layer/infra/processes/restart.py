"""This file holds what follows from a worker's death: how long to wait before the next, and when to give up."""

from dataclasses import dataclass

_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 0.5, 30.0
_LONG_LIFE_SECONDS = 60.0
"""Who has lived for so long died of something new."""
_MOST_UNSEEN = 5
"""So many deaths in a row before the first heartbeat, and nobody is started any more."""


@dataclass
class Deaths:
    """Deaths in a row of the workers of one slot."""

    num_short: int = 0
    """Soon after their start."""
    num_unseen: int = 0
    """Before their first heartbeat."""

    def note(self, *, was_seen: bool, lived_seconds: float) -> None:
        """Count one more."""
        self.num_unseen = 0 if was_seen else self.num_unseen + 1
        self.num_short = 0 if was_seen and lived_seconds > _LONG_LIFE_SECONDS else self.num_short + 1

    @property
    def delay_seconds(self) -> float:
        """Before the next start."""
        if self.num_short == 0:
            return 0.0
        return min(_FIRST_DELAY_SECONDS * 2 ** min(self.num_short - 1, 16), _LONGEST_DELAY_SECONDS)

    @property
    def is_hopeless(self) -> bool:
        """Whether another start would end as those before."""
        return self.num_unseen >= _MOST_UNSEEN
