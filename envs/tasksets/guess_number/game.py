"""Rules of the game, and the scores of a finished game; no model, no framework."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

HIGHEST = 6
"""Numbers run from 1 to this."""

MAX_GUESSES = 4

REWARDS = {"found": 1.0, "guesses": -0.05, "contradictions": -0.25}
"""Weight of each score. A found number always ends above 0 (the worst: 1 - 4 x 0.05 - 3 x 0.25), any other below."""


def compare(guess: int | None, hidden: int) -> str:
    """Answer a guess: ``higher``, ``lower``, ``found``, or ``foul`` when it is no number of the game."""
    if guess is None or not 1 <= guess <= HIGHEST:
        return "foul"
    if guess == hidden:
        return "found"
    return "higher" if guess < hidden else "lower"


@dataclass(frozen=True)
class Game:
    """A game so far: the guesses, and the number they look for."""

    hidden: int
    guesses: tuple[int | None, ...] = ()

    @property
    def is_found(self) -> bool:
        """Whether the last guess was the hidden number."""
        return bool(self.guesses) and self.guesses[-1] == self.hidden

    def scores(self) -> dict[str, float]:
        """Return the named scores that ``REWARDS`` weighs."""
        return {
            "found": float(self.is_found),
            "guesses": float(len(self.guesses)),
            "contradictions": float(_count_contradictions(self.hidden, self.guesses)),
        }


def _count_contradictions(hidden: int, guesses: Sequence[int | None]) -> int:
    """Count guesses that earlier answers had ruled out, fouls included."""
    low, high, num_contradictions = 1, HIGHEST, 0
    for guess in guesses:
        if guess is None or not low <= guess <= high:
            num_contradictions += 1
        elif guess < hidden:
            low = guess + 1
        elif guess > hidden:
            high = guess - 1
    return num_contradictions


def chance_without_hints() -> float:
    """Success of guessing any number of the game each time."""
    return 1 - (1 - 1 / HIGHEST) ** MAX_GUESSES


def chance_without_repeats() -> float:
    """Success of guessing a new number each time, deaf to the answers."""
    return 1 - comb(HIGHEST - 1, MAX_GUESSES) / comb(HIGHEST, MAX_GUESSES)
