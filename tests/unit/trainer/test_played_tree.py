"""The tree at the end of the demo: what was played, how often, and what it misses."""

import pytest
from rich.console import Console

from envs.tasksets.guess_number.game import HIGHEST, MAX_GUESSES, Game, compare
from trainer_adapter.demo.rollout_log import draw_games, grow_tree

BISECTION = {(): 3, (3, "lower"): 1, (3, "lower", 1, "higher"): 2, (3, "higher"): 5}
BISECTION |= {(3, "higher", 5, "lower"): 4, (3, "higher", 5, "higher"): 6}


def play(hidden, strategy):
    """Play one game by a strategy: next guess by guesses and replies so far."""
    seen, guesses = (), []
    while len(guesses) < MAX_GUESSES:
        guesses.append(strategy[seen])
        if (reply := compare(guesses[-1], hidden)) in ("found", "foul"):
            break
        seen += (guesses[-1], reply)
    return Game(hidden, tuple(guesses))


def read_text(games):
    console = Console(width=100)
    with console.capture() as captured:
        console.print(draw_games(games))
    return captured.get()


def test_a_branch_counts_the_games_that_came_there_and_those_that_ended_there():
    root = grow_tree([play(hidden, BISECTION) for hidden in range(1, HIGHEST + 1) for _ in range(2)])

    (opening,) = root.following.values()
    assert (opening.num_games, opening.num_found) == (12, 2)
    higher = opening.following["higher", 5]
    assert (higher.num_games, higher.num_found) == (6, 2)
    assert sum(branch.num_found for branch in higher.following.values()) == 4


def test_a_tree_that_finds_every_number_says_so():
    text = read_text([play(hidden, BISECTION) for hidden in range(1, HIGHEST + 1)])

    assert "every hidden number is found" in text
    assert len(text.splitlines()) == 8


def test_the_numbers_that_are_missed_are_named_with_their_share():
    games = [Game(2, (1, 6, 4, 3)), Game(2, (1, 6, 4, 2)), Game(3, (1, 6, 4, 3))]

    text = read_text(games)

    assert "missed: 2 in 1 of 2 games" in text
    assert "lower, guess 3" in text


@pytest.mark.parametrize("guess", [None, 9])
def test_a_guess_that_is_no_number_of_the_game_is_a_branch_too(guess):
    assert ("no number" if guess is None else "guess 9") in read_text([Game(1, (guess,))])


def test_it_has_at_most_twenty_lines_however_much_was_tried():
    tried = [
        Game(6, (first, second, third)) for first in range(1, 6) for second in range(1, 6) for third in range(1, 6)
    ]

    lines = read_text(tried).splitlines()

    assert 10 < len(lines) <= 20
