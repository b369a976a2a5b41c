"""Versions of user code: the declared one, else a hash of the file that defines it."""

import importlib

import pytest

from envs.registry import code_version, describe_environment, hash_scorer

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
    """``maze("more code")``: a module with environments; returns its name."""

    def write(name, more=""):
        write_module(name, MAZE + more)
        return name

    return write


def test_an_environment_is_its_file_unless_it_declares_a_version(maze):
    before, same, changed = maze("maze_a"), maze("maze_b"), maze("maze_c", "\n# more\n")

    (name, version) = describe_environment(f"{before}:Maze")
    assert name == "maze_a:Maze"
    assert version == describe_environment(f"{same}:Maze")[1] != describe_environment(f"{changed}:Maze")[1]
    assert describe_environment(f"{changed}:Declared")[1] == "3"


def test_an_agent_is_no_environment_but_may_declare_its_version(maze):
    module = maze("maze_d")

    assert describe_environment(f"{module}:walk") == (None, "w1")
    assert describe_environment(f"{module}:other") == (None, None)


def test_what_has_neither_file_nor_version_has_none(maze):
    module = importlib.import_module(maze("maze_e"))

    assert code_version(module.walk) == "w1"
    assert code_version(module.other) == code_version(module.Maze)
    assert code_version(len) is None


def test_scorers_of_one_version_are_two_and_one_scorer_of_two_versions_too(maze):
    first, second = importlib.import_module(maze("maze_f")), importlib.import_module(maze("maze_g"))

    hashes = [hash_scorer(one) for one in (first.walk, first.other, second.walk, len)]
    assert len(set(hashes)) == 4
    before = hash_scorer(second.other)
    hash_scorer.cache_clear()
    second.other.version = 2
    assert hash_scorer(second.other) != before
