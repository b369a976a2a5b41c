"""Tasks of code repair: drawn from seeds alone, hard enough, and each with a bug that its checks notice."""

import random

import msgspec
import pytest

from agent_layer.errors import BadInputError
from agent_layer.schema import hash_input
from envs.tasksets import list_taskset_names, open_taskset
from envs.tasksets.repair.programs.catalogue import TEMPLATES, run_cases
from envs.tasksets.repair.programs.mutations import find_mutations
from envs.tasksets.repair.programs.template import call
from envs.tasksets.repair.programs.trial import RUNAWAY, load_modules
from envs.tasksets.repair.tasks import draw_problem, failures, find_problem


def test_a_task_set_is_found_by_name_and_by_path():
    assert "repair" in list_taskset_names()
    assert open_taskset("repair").name == open_taskset("envs.tasksets.repair:Repair").name == "repair"


def test_an_unknown_task_set_is_refused_with_those_that_there_are():
    with pytest.raises(BadInputError, match=r"'repare'.*registered: repair"):
        open_taskset("repare")
    with pytest.raises(BadInputError, match=r"lacks .*solve"):
        open_taskset("envs.tasksets.repair:RepairScorer")
    with pytest.raises(BadInputError, match=r"Script\(\) failed"):
        open_taskset("envs.tasksets:Script")


def test_a_task_is_drawn_again_from_its_id():
    problem = draw_problem("eval", 3, 2, 1)

    assert msgspec.json.encode(find_problem(problem.task.id).task) == msgspec.json.encode(problem.task)


@pytest.mark.parametrize(
    "task_id",
    [
        "guess-3",
        "repair-4-train-0-0",
        "repair-1-train-00-0",
        "repair-\u0661-train-0-0",
        f"repair-1-train-0-{'9' * 5000}",
    ],
)
def test_an_id_that_no_task_has_is_refused(task_id):
    with pytest.raises(BadInputError, match="repair-1-train-0-0"):
        find_problem(task_id)


def test_another_seed_gives_other_tasks():
    inputs = [
        hash_input(task)
        for seed in range(4)
        for task in open_taskset("repair").tasks(split="train", seed=seed, level=1, count=4)
    ]

    assert len(set(inputs)) == len(inputs)


def test_no_bug_of_an_eval_task_is_in_a_training_task():
    def bugs(split):
        problems = [draw_problem(split, 0, level, index) for level in range(4) for index in range(3)]
        return {part.bug.id for problem in problems for part in problem.parts if part.bug}

    assert not bugs("train") & bugs("eval")


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_both_sources_of_a_template_behave_alike_and_end(template):
    rng = random.Random(11)
    cases = [*template.edges, *(template.draw(rng) for _ in range(200))]

    right = run_cases(template.source, template.name, cases)

    assert right == run_cases(template.independent, template.name, cases)
    assert RUNAWAY not in right


def test_a_mutation_that_never_ends_is_stopped():
    source = "def count(number):\n    text = [0]\n    while number:\n        text = text + text\n    return text\n"

    (outcome,) = run_cases(source, "loop", [[call("count", 1)]])

    assert outcome == RUNAWAY


def test_mutations_change_one_place_and_still_parse():
    for template in TEMPLATES:
        mutations = find_mutations(template.source)
        assert len(mutations) > 50
        assert len({mutation.apply(template.source) for mutation in mutations}) > len(mutations) * 0.95
        for mutation in mutations:
            assert template.source[mutation.start : mutation.end] == mutation.old


@pytest.mark.parametrize("level", range(4))
def test_the_bugs_of_a_task_fail_tests_that_the_agent_sees_and_checks_that_it_does_not(level):
    for index in range(4):
        problem = draw_problem("train", 2, level, index)

        assert not failures(problem.fixed, [*problem.shown, *problem.hidden])
        assert failures(problem.broken, problem.shown)
        assert len(failures(problem.broken, problem.hidden)) >= 2


def test_one_bug_left_is_noticed():
    problem = draw_problem("train", 0, 3, 0)
    faulty = [part for part in problem.parts if part.bug]

    assert len(faulty) >= 2
    for part in faulty:
        assert failures({**problem.fixed, **part.broken}, problem.hidden)


def test_hidden_calls_are_none_that_the_agent_sees():
    problem = draw_problem("train", 4, 1, 0)
    shown = {msgspec.json.encode(check.calls) for check in problem.shown}

    assert shown.isdisjoint(msgspec.json.encode(check.calls) for check in problem.hidden)


def test_a_random_answer_solves_level_0_in_5_to_30_percent():
    answers, num_solved = [f"{number} {letter}" for number in "123" for letter in "abc"], 0
    problems = [draw_problem("train", 0, 0, index) for index in range(12)]
    for problem in problems:
        ((file, broken),) = problem.broken.items()
        sources = [problem.choices.apply(broken, answer) for answer in answers]
        num_solved += sum(source is not None and not failures({file: source}, problem.hidden) for source in sources)

    assert 0.05 <= num_solved / (len(problems) * len(answers)) <= 0.30


def test_level_0_shows_lines_and_edits_and_never_the_answer():
    problem = draw_problem("train", 0, 0, 0)
    prompt = problem.task.input["prompt"]

    assert all(f"{letter}) " in prompt for letter in "abc")
    assert all(f"\n{number} " in prompt for number in "123")
    assert problem.answer not in prompt
    assert problem.task.sandbox is None
    assert problem.task.limits.turns == 1


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ("2 b", True),
        ("2b", True),
        ("Line 2, edit B.", True),
        ("**2** **b**", True),
        ("2 b or 1 a", False),
        ("", False),
        ("4 a", False),
        ("22 b", False),
        ("2", False),
        ("b", False),
        ("1 a 2 b 3 c", False),
    ],
)
def test_an_answer_names_one_line_and_one_edit(text, is_read):
    problem = draw_problem("train", 0, 0, 0)
    ((_, broken),) = problem.broken.items()
    choices = msgspec.structs.replace(problem.choices, edits=[("", "x"), ("", "y"), ("", "z")])

    assert (choices.apply(broken, text) is not None) == is_read


def test_modules_of_a_repository_import_each_other():
    problem = draw_problem("train", 0, 2, 0)

    assert len(problem.fixed) == 4
    assert set(load_modules(problem.fixed)) == {file.removesuffix(".py") for file in problem.fixed}
