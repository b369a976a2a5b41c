"""Common cheats as data: many, each with a name of its own, and all of them Python that can be imported."""

import ast

from envs.grading import common_cheats

WRONG = "def f(x):\n    return 0\n"


def test_there_are_many_ideas_with_names_of_their_own():
    cheats = common_cheats("pkg/a.py", WRONG, "f")

    assert len({cheat.name for cheat in cheats}) == len(cheats) >= 50


def test_each_keeps_the_wrong_solution_and_is_python():
    for cheat in common_cheats("pkg/a.py", WRONG, "f"):
        assert cheat.files["pkg/a.py"].startswith(WRONG), cheat.name
        for path, text in cheat.files.items():
            if path.endswith(".py"):
                ast.parse(text, path)
