"""Solutions of code repair: right ones behave as the original, wrong ones do not."""

import ast
import sys
from types import ModuleType

import msgspec
import pytest

from envs.tasksets import open_taskset
from envs.tasksets.repair.programs.catalogue import TEMPLATES, make_probes, run_cases
from envs.tasksets.repair.programs.rewrites import list_rewrites, rewrite
from envs.tasksets.repair.scorer import _PLAYER_SOURCE, _claim
from envs.tasksets.repair.scripts import fresh_checks, write_near_miss
from envs.tasksets.repair.tasks import draw_problem, failures

LEVELS = [1, 2, 3]


def _files(problem, script):
    return {**problem.broken, **{path: text for path, text in script.files.items() if text is not None}}


@pytest.mark.parametrize("level", LEVELS)
def test_twenty_rewrites_of_a_task_pass_its_checks(level):
    problem = draw_problem("train", 1, level, 0)

    scripts = open_taskset("repair").rewrites(problem.task)

    assert len({msgspec.json.encode(script.files) for script in scripts}) >= 20
    assert [script.name for script in scripts if failures(_files(problem, script), problem.hidden)] == []


@pytest.mark.parametrize("level", LEVELS)
def test_the_checks_of_a_task_notice_mutants_that_fresh_calls_notice(level):
    problem = draw_problem("train", 1, level, 0)
    fresh = fresh_checks(problem)

    scripts = open_taskset("repair").mutants(problem.task)
    noticed = [script for script in scripts if failures(_files(problem, script), problem.hidden)]

    assert all(failures(_files(problem, script), fresh) for script in scripts)
    assert len(scripts) >= 15
    assert len(noticed) >= 0.95 * len(scripts)


def test_most_rewrites_fit_most_templates():
    for template in TEMPLATES:
        probes = make_probes(template)[:10]
        right = run_cases(template.source, template.name, probes)
        singles = [name for name in list_rewrites() if " and " not in name]
        same = [run_cases(rewrite(template.source, name), template.name, probes) == right for name in singles]
        assert sum(same) >= len(singles) - 2


@pytest.mark.parametrize("level", range(4))
def test_a_near_miss_is_wrong(level):
    problem = draw_problem("eval", 0, level, 0)
    script = write_near_miss(problem)

    if level == 0:
        assert script.result != problem.answer
    else:
        assert failures(_files(problem, script), problem.hidden)
        assert len(failures(_files(problem, script), problem.shown)) <= len(failures(problem.broken, problem.shown))


def test_the_reference_edits_a_unique_piece_of_each_file():
    problem = draw_problem("train", 0, 3, 1)
    script = open_taskset("repair").solve(problem.task)
    sources = dict(problem.broken)

    for message in script.replies[:-2]:
        (call,) = message["tool_calls"]
        edit = msgspec.json.decode(call["function"]["arguments"])
        assert sources[edit["path"]].count(edit["old"]) == 1
        sources[edit["path"]] = sources[edit["path"]].replace(edit["old"], edit["new"])

    assert sources == problem.fixed
    assert not script.replies[-1].get("tool_calls")


@pytest.mark.parametrize("level", range(4))
def test_there_are_twenty_cheats_of_different_kinds(level):
    problem = draw_problem("train", 0, level, 0)
    scripts = open_taskset("repair").cheats(problem.task)

    assert len({script.name for script in scripts}) == len(scripts) >= 20
    assert all(problem.answer not in (script.result, script.files) for script in scripts if level == 0)


def test_tests_in_the_repository_are_python_that_imports_its_modules():
    problem = draw_problem("train", 0, 2, 0)

    for path, text in problem.task.files.items():
        names = [node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
        assert all(f"{name}.py" in problem.broken for name in names), path


RAISER = "def f(number):\n    if number < 0:\n        raise ValueError\n    return number\n"
LOOKALIKES = ["{'raises': 'ValueError'}", "[False, 'ValueError']", "(False, 'ValueError')", "'ValueError'"]


@pytest.mark.parametrize("returned", LOOKALIKES)
def test_to_return_what_raising_looks_like_is_not_to_raise(returned, monkeypatch):
    player = ModuleType("player")
    exec(_PLAYER_SOURCE, player.__dict__)  # as the box does
    expected = [_claim(one) for one in ({"raises": "ValueError"}, 1)]

    def play(source):
        judged = ModuleType("judged")
        exec(source, judged.__dict__)
        monkeypatch.setitem(sys.modules, "judged", judged)
        (found,) = player.play_all([("judged", [("f", [-1]), ("f", [1])])])
        return found

    assert play(RAISER) == expected
    assert play(RAISER.replace("raise ValueError", f"return {returned}")) != expected
