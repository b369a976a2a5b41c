"""The search tree that the policy plays, from the stored games of its newest versions.

It shows what a success rate cannot: which number is opened with, what is asked after "higher" and "lower", and which
hidden numbers the tree misses.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
from rich.console import Group
from rich.text import Text
from rich.tree import Tree

from agent_layer.schema import Task, Trajectory
from agent_layer.store import Store
from envs.tasksets import Game, compare

_MAX_LINES = 16
"""Guesses that are shown, the most frequent ones."""
_NO_NUMBER = "a word that is no number"


@dataclass
class Branch:
    """A guess after certain replies."""

    num_games: int = 0
    """Games that came here."""
    num_found: int = 0
    """Games whose hidden number it was."""
    following: dict[tuple[str, int | None], "Branch"] = field(default_factory=dict[tuple[str, int | None], "Branch"])
    """Branches by reply and next guess; the reply before the first guess is empty."""


def read_games(store: Store, run: str, oldest_version: int) -> list[Game]:
    """Return the games of a run in which a version from ``oldest_version`` on guessed."""
    rows = store.scan(run=run, policy=(oldest_version, None), status="completed")
    found = store.read(rows, contents=False)
    return [_read_game(trajectory.task, trajectory) for _, trajectory in found if trajectory.task]


def grow_tree(games: Iterable[Game]) -> Branch:
    """Return the root of the tree of all guesses and replies; the openings follow it."""
    root = Branch()
    for game in games:
        branch, reply = root, ""
        root.num_games += 1
        for guess in game.guesses:
            branch = branch.following.setdefault((reply, guess), Branch())
            branch.num_games += 1
            reply = compare(guess, game.hidden)
        branch.num_found += game.is_found
    return root


def draw_games(games: Sequence[Game]) -> Group:
    """Return the tree of these games, at most 20 lines, and which hidden numbers they miss."""
    root = grow_tree(games)
    shown = _most_frequent(root, _MAX_LINES)
    tree = Tree("", hide_root=True, guide_style="dim")
    for opening, branch in _in_order(root):
        _draw(tree, opening, branch, shown)
    title = Text(f"how it plays, in its last {len(games)} games:", style="bold")
    return Group(title, tree, _describe_missed(games))


def _draw(parent: Tree, key: tuple[str, int | None], branch: Branch, shown: set[int]) -> None:
    if id(branch) not in shown:
        return
    reply, guess = key
    line = Text(f"{reply}, " if reply else "", style="dim")
    line.append("guess " if guess else "", style="dim").append(str(guess or _NO_NUMBER), style="bold cyan")
    line.append(f"  {branch.num_games} games", style="dim")
    if branch.num_found:
        line.append(f"  found {branch.num_found}", style="green")
    node = parent.add(line)
    for then, child in _in_order(branch):
        _draw(node, then, child, shown)


def _most_frequent(root: Branch, number: int) -> set[int]:
    """Return the ids of the most frequent branches; the parent of each is as frequent, so it is among them."""
    found: list[Branch] = []
    level = list(root.following.values())
    while level:
        found += level
        level = [child for branch in level for child in branch.following.values()]
    return {id(branch) for branch in sorted(found, key=lambda branch: -branch.num_games)[:number]}


def _in_order(branch: Branch) -> list[tuple[tuple[str, int | None], Branch]]:
    """Return what follows, most frequent first."""
    return sorted(branch.following.items(), key=lambda item: -item[1].num_games)


def _describe_missed(games: Sequence[Game]) -> Text:
    """Return which hidden numbers are not always found."""
    played = Counter(game.hidden for game in games)
    missed = Counter(game.hidden for game in games if not game.is_found)
    if not missed:
        return Text("every hidden number is found", style="green")
    parts = [f"{hidden} in {missed[hidden]} of {played[hidden]} games" for hidden in sorted(missed)]
    return Text(f"missed: {', '.join(parts)}", style="yellow")


class _Input(msgspec.Struct, frozen=True):
    hidden: int


def _read_game(task: Task, trajectory: Trajectory) -> Game:
    words = [str((step.action.message or {}).get("content") or "").strip() for step in trajectory.steps]
    hidden = msgspec.convert(task.input, _Input).hidden
    return Game(hidden, tuple(int(word) if word.isdecimal() else None for word in words))
