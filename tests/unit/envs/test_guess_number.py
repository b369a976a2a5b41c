"""Rules of the demo's game."""

from itertools import product

import pytest

from envs.tasksets.guess_number.game import (
    HIGHEST,
    MAX_GUESSES,
    REWARDS,
    Game,
    chance_without_hints,
    chance_without_repeats,
    compare,
)


def reward(game: Game) -> float:
    return sum(REWARDS[name] * score for name, score in game.scores().items())


@pytest.mark.parametrize(("guess", "answer"), [(1, "higher"), (4, "lower"), (3, "found"), (7, "foul"), (None, "foul")])
def test_the_oracle_answers(guess, answer):
    assert compare(guess, 3) == answer


def played(hidden, guesses):
    """Cut a list of intended guesses where the game would end."""
    for length, guess in enumerate(guesses, 1):
        if compare(guess, hidden) in ("found", "foul"):
            return Game(hidden, guesses[:length])
    return Game(hidden, guesses)


def test_a_reward_above_zero_means_found_and_nothing_else_does():
    games = [
        played(hidden, guesses)
        for hidden in range(1, HIGHEST + 1)
        for guesses in product([*range(1, HIGHEST + 2), None], repeat=MAX_GUESSES)
    ]

    assert all((reward(game) > 0) == game.is_found for game in games)


def test_a_guess_that_the_answers_ruled_out_is_a_contradiction():
    assert Game(5, (3, 2, 3, 5)).scores() == {"found": 1.0, "guesses": 4.0, "contradictions": 2.0}


def test_halving_always_finds_the_number():
    for hidden in range(1, HIGHEST + 1):
        low, high, guesses = 1, HIGHEST, []
        while not guesses or guesses[-1] != hidden:
            guesses.append((low + high) // 2)
            low, high = (guesses[-1] + 1, high) if guesses[-1] < hidden else (low, guesses[-1] - 1)
        assert len(guesses) <= MAX_GUESSES


def test_the_chances_are_those_of_counting():
    deaf = [len(set(guesses)) == MAX_GUESSES for guesses in product(range(HIGHEST), repeat=MAX_GUESSES)]
    hits = [0 in guesses for guesses in product(range(HIGHEST), repeat=MAX_GUESSES)]

    assert chance_without_hints() == pytest.approx(sum(hits) / len(hits))
    assert chance_without_repeats() == pytest.approx(
        sum(hit and different for hit, different in zip(hits, deaf, strict=True)) / sum(deaf)
    )
