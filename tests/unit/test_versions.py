"""This file holds how code is told apart from what it was: what it declares, else the file in which it stands."""

import importlib

import pytest

from envs.versions import environment_named, version_of

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
def maze(tmp_path, monkeypatch):
    """``maze("more code")``: a module with environments; gives its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, more=""):
        (tmp_path / f"{name}.py").write_text(MAZE + more)
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


def test_two_functions_of_one_file_are_two_and_what_has_no_file_has_no_version(maze):
    module = importlib.import_module(maze("maze_e"))

    assert version_of(module.walk) == "w1"
    assert None is not version_of(module.other) != version_of(module.Maze)
    assert version_of(len) is None
