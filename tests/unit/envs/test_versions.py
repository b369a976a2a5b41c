"""This file holds how code is told apart from what it was: what it declares, else the file in which it stands."""

import importlib

import pytest

from envs.registry import environment_named, verifier_hash_of, version_of

MAZE = """
class Maze:
    async def reset(self, task): ...
    async def step(self, action): ...
    def state(self): ...
    async def close(self): ...

class Declared(Maze):
    version = 3

async def walk(task, rollout): ...
async def other(task, rollout): ...
walk.version = "w1"
"""


@pytest.fixture
def maze(write_module):
    """``maze("more code")``: a module with environments; gives its name."""

    def write(name, more=""):
        write_module(name, MAZE + more)
        return name

    return write


def test_an_environment_is_its_file_unless_it_declares_a_version(maze):
    before, same, changed = maze("maze_a"), maze("maze_b"), maze("maze_c", "\n# more\n")

    (name, version) = environment_named(f"{before}:Maze")
    assert name == "maze_a:Maze"
    assert version == environment_named(f"{same}:Maze")[1] != environment_named(f"{changed}:Maze")[1]
    assert environment_named(f"{changed}:Declared")[1] == "3"


def test_an_agent_is_no_environment_but_may_declare_its_version(maze):
    module = maze("maze_d")

    assert environment_named(f"{module}:walk") == (None, "w1")
    assert environment_named(f"{module}:other") == (None, None)


def test_what_has_neither_file_nor_version_has_none(maze):
    module = importlib.import_module(maze("maze_e"))

    assert version_of(module.walk) == "w1"
    assert version_of(module.other) == version_of(module.Maze)
    assert version_of(len) is None


def test_scorers_of_one_version_are_two_and_one_scorer_of_two_versions_too(maze):
    first, second = importlib.import_module(maze("maze_f")), importlib.import_module(maze("maze_g"))

    hashes = [verifier_hash_of(one) for one in (first.walk, first.other, second.walk, len)]
    assert len(set(hashes)) == 4
    before = verifier_hash_of(second.other)
    verifier_hash_of.cache_clear()
    second.other.version = 2
    assert verifier_hash_of(second.other) != before
