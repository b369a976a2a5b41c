"""Questions over a world: a chain of facts, the name or year at its end, and the articles that tell it."""

import re
from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Final

import msgspec

from agent_layer.schema import Limits, RewardSpec, Task
from envs.tasksets.generated import TaskKey, choose_split
from envs.tasksets.search.library import SearchInput
from envs.tasksets.search.world import Entity, Fact, World, draw_world

NAME: Final = "search"
VERSION: Final = "1"
"""Raise it when worlds, tasks or the scorer change."""
LEVELS: Final = range(4)
SOLVED: Final = "solved"
CITATION_F1: Final = "citation_f1"
_HOW: Final = (
    "Find it with 'search' and 'open'. End with the two lines 'Answer: ', with the name or the year alone, and"
    " 'Sources: ', with the numbers of the articles that it follows from."
)


class SearchGrading(msgspec.Struct, frozen=True, kw_only=True):
    """What the scorer knows."""

    values: list[str]
    """Spellings of the answer, as ``plain_name`` returns them."""
    evidence: list[int]
    """Articles from which the answer follows, each needed."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One task with all that is known of it."""

    task: Task
    world: World
    path: Sequence[Fact]
    """One fact a hop; each but the first is about the object of the one before."""
    grading: SearchGrading

    @property
    def answer(self) -> str:
        """The name or year at the end of the path."""
        return self.path[-1].value


@lru_cache(maxsize=1024)
def draw_problem(key: TaskKey) -> Problem:
    """Return the problem of a task; equal keys give equal bytes."""
    rng = key.make_rng(VERSION)
    world_name = f"{key.split}-{key.seed}"
    world = draw_world(world_name)
    while True:
        path = _draw_path(world, key.level + 1, rng)
        if path is None:
            continue
        phrase = path[0].subject.name
        for fact in path:
            phrase = fact.relation.phrase.format(phrase)
        if path[-1].value in phrase or choose_split(phrase) != key.split:
            continue
        return _make_problem(key, world_name, world, path, phrase)


def plain_name(text: str) -> str:
    """Return a name without case, quotes, a final stop, articles and doubled spaces."""
    words = re.findall(r"\w+", text.casefold())
    return " ".join(words[1:] if words[:1] == ["the"] else words)


def _draw_path(world: World, num_hops: int, rng: Random) -> list[Fact] | None:
    """Return facts that lead from one thing to the next, each told in another article; None: these end too early."""
    path: list[Fact] = []
    entity: Entity | None = rng.choice(world.entities)
    while len(path) < num_hops:
        if entity is None:
            return None
        facts = world.facts[entity.article]
        is_last = len(path) == num_hops - 1
        fact = rng.choice([one for one in facts if is_last or one.object is not None])
        path.append(fact)
        entity = fact.object
    names = {fact.subject.name for fact in path} | {path[-1].value}
    is_spread = len({fact.article for fact in path}) == num_hops
    return path if is_spread and len(names) == num_hops + 1 else None


def _make_problem(key: TaskKey, world_name: str, world: World, path: Sequence[Fact], phrase: str) -> Problem:
    spelled = plain_name(path[-1].value)
    grading = SearchGrading(
        values=list(dict.fromkeys([spelled, spelled.removeprefix("river ")])),
        evidence=sorted(fact.article for fact in path),
    )
    task = Task(
        id=key.id,
        run=NAME,
        split=key.split,
        task_type=NAME,
        input=msgspec.to_builtins(SearchInput(world=world_name, prompt=f"Name {phrase}.\n{_HOW}")),
        grading=msgspec.to_builtins(grading),
        scorer="envs.tasksets.search.search:SearchScorer",
        rewards={SOLVED: RewardSpec(), CITATION_F1: RewardSpec(weight=0.0, required=False)},
        limits=Limits(turns=6 * len(path) + 4, wall_seconds=300, observation_tokens=2000),
        labels={"taskset": NAME, "taskset_version": VERSION, "level": str(key.level)},
        calls_optional=key.split == "eval",
    )
    return Problem(task=task, world=world, path=path, grading=grading)
