"""Generated sets without boxes, arithmetic and search: right answers are paid, all others are not."""

import asyncio
import os
import random
import re
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BadInputError
from agent_layer.schema import Action, Step, Trajectory, hash_input
from envs.grading import ScoringRun
from envs.scorers import load_scorer
from envs.script import Script
from envs.tasksets import list_taskset_names, open_taskset, read_key
from envs.tasksets.arithmetic import read_number
from envs.tasksets.gate.script_judge import ScriptJudge
from envs.tasksets.generated import read_line
from envs.tasksets.search.library import open_tool, search
from envs.tasksets.search.questions import draw_problem
from envs.tasksets.search.search import MAX_OTHERS, read_name, read_sources
from envs.tasksets.search.world import RELATIONS, draw_world

SETS = ["arithmetic", "search"]
_DRAW = """
import msgspec
from agent_layer.schema import content_hash
from envs.tasksets import open_taskset
drawn = [msgspec.json.encode(task) for name in ("arithmetic", "repair", "search", "terminal") for level in range(4)
         for task in open_taskset(name).tasks(split="eval", seed=5, level=level, count=1 if name == "repair" else 5)]
print(content_hash(b"".join(drawn)))
"""


def _draw(name, level, count=1, split=None):
    split = split or random.choice(["train", "eval"])
    return list(open_taskset(name).tasks(split=split, seed=random.randrange(10**6), level=level, count=count))


def _rewards(task, scripts):
    async def judge():
        return {one.name: (await ScriptJudge(None).judge(task, one)).reward for one in scripts}

    return asyncio.run(judge())


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("name", SETS)
def test_right_answers_in_any_form_are_paid_and_all_others_are_not(name, level):
    taskset = open_taskset(name)
    for task in _draw(name, level, 3):
        right = [taskset.solve(task), *taskset.rewrites(task)]
        wrong = [Script(name="empty"), *taskset.mutants(task), *taskset.cheats(task)]

        assert set(_rewards(task, right).values()) == {1.0}
        assert {one for one, reward in _rewards(task, wrong).items() if reward != 0.0} == set()
        assert len({msgspec.json.encode(one.replies) for one in taskset.rewrites(task)}) > 20


def test_equal_arguments_give_equal_bytes_in_processes_with_other_hashes():
    found = {
        subprocess.run(
            [sys.executable, "-c", _DRAW],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "77")
    }

    assert len(found) == 1


@pytest.mark.parametrize("name", SETS)
def test_the_splits_share_no_task_and_seeds_no_long_one(name):
    inputs = {
        split: [
            hash_input(task)
            for seed in range(3)
            for level in range(4)
            for task in _list_tasks(name, split, seed, level)
        ]
        for split in ("train", "eval")
    }

    assert set(inputs["train"]).isdisjoint(inputs["eval"])
    assert len(set(inputs["train"])) > 0.99 * len(inputs["train"])


def _list_tasks(name, split, seed, level):
    return open_taskset(name).tasks(split=split, seed=seed, level=level, count=40)


@pytest.mark.parametrize("name", SETS)
def test_sets_are_listed_and_refuse_levels_seeds_and_ids_that_are_not_theirs(name):
    taskset = open_taskset(name)

    assert name in list_taskset_names()
    with pytest.raises(BadInputError, match="level from 0 to 3"):
        list(taskset.tasks(split="train", level=4, count=1))
    for seed in (-1, 10**18):
        with pytest.raises(BadInputError, match="seed of 0"):
            list(taskset.tasks(split="train", seed=seed, count=1))
    (task,) = taskset.tasks(split="train", seed=10**18 - 1, count=1)
    assert taskset.solve(task).result
    with pytest.raises(BadInputError, match=f"{name}-1-train-0-0"):
        taskset.solve(msgspec.structs.replace(_draw(name, 0)[0], id=f"{name}-9-train-0-0"))


@pytest.mark.parametrize("name", SETS)
def test_the_last_text_of_the_policy_is_the_answer_and_no_other_agents(name):
    (task,) = _draw(name, 1)
    right = open_taskset(name).solve(task).result

    def score(*answers):
        steps = [
            Step(
                trajectory_id="t",
                call_id=f"c{index}",
                choice=0,
                run="r",
                started_at=0.0,
                index=index,
                role=role,
                action=Action(message={"content": text}),
            )
            for index, (role, text) in enumerate(answers)
        ]
        run = ScoringRun(task, Trajectory(trajectory_id="t", steps=steps), None)
        return asyncio.run(load_scorer(task.scorer).score(run)).scores["solved"]

    assert score(("policy", "I look it up"), ("policy", right)) == 1.0
    assert score(("policy", right), ("policy", "I am not sure")) == 0.0
    assert score(("policy", "Answer: ?"), ("aux", right)) == 0.0


@given(st.integers(-(10**40), 10**40), st.integers(1, 10**40))
def test_a_fraction_is_read_exactly(top, bottom):
    assert read_number(f"So.\n**Answer:** {top}/{bottom}") == Fraction(top, bottom)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9))
def test_a_decimal_is_read_exactly(value):
    assert read_number(f"Answer: {value:f}") == Fraction(value)


@given(st.text(st.characters(codec="utf-8")) | st.from_regex(r"(Answer: )?[0-9eE+*/().,^-]{0,80}", fullmatch=True))
def test_any_text_is_one_number_or_none(text):
    found = read_number(text)

    assert found is None or (isinstance(found, Fraction) and re.search("[0-9]", text))
    assert isinstance(read_sources(text), set)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "nan",
            "inf",
            "1e5",
            "1e999999999",
            "2**9",
            "1/0",
            "1/2/3",
            "0x10",
            "1 2",
            "1,2",
            "12,34",
            "\u0661",
            "1..",
            ".5",
        ),
        *("1\\frac{2}{3}", "\\boxed{7}3", "7\\boxed{}", "\\boxed{1}\\boxed{2}", "\\frac{1}{0}", "1e309"),
        *("1_0", "Answer: 1\nAnswer: 1", "Answer: 1\nanswer: 2", "--1", "9" * 201),
    ],
)
def test_what_is_not_one_plain_number_is_none(text):
    assert read_number(text) is None


def test_a_marked_line_counts_once():
    assert read_line("Answer: a\nmore", "answer") == "a"
    assert read_line("Answer: a\n> **Answer**: b", "answer") is None
    assert read_line("My answer: a", "answer") is None


@pytest.mark.parametrize("filler", ["\n", " \n", "*\n", "> ", "answer ", " sources", "a "])
def test_long_answers_are_read_in_linear_time(filler):
    text = f"{filler * 200_000}\nAnswer: a"  # quadratic time would be an hour

    assert (read_line(text, "answer"), read_name(text), read_sources(text)) == ("a", "a", set())


@pytest.mark.parametrize("level", range(4))
def test_no_number_is_a_good_guess(level):
    values = Counter(task.grading["value"] for task in _draw("arithmetic", level, 200, "train"))

    assert values.most_common(1)[0][1] <= 6


def test_a_library_tells_each_fact_once_where_it_says():
    world = draw_world(f"test-{random.randrange(10**6)}")
    names = [article.title for article in world.articles.values()]

    assert len(world.articles) == 2000
    assert len({name.casefold() for name in names}) == 2000
    for facts in random.sample(list(world.facts.values()), 100):
        for fact in facts:
            sentences = [one.format(s=fact.subject.name, o=fact.value) for one in fact.relation.sentences]
            sentences = [one[:1].upper() + one[1:] for one in sentences]
            found = [article.id for article in world.articles.values() if any(one in article.body for one in sentences)]
            assert found == [fact.article]


@pytest.mark.parametrize("level", range(4))
def test_every_chain_can_be_found_by_search_and_read(level):
    for task in _draw("search", level, 5):
        problem = draw_problem(read_key(task.id, "search", range(4)))
        context = SimpleNamespace(task=task.view())
        assert len(problem.path) == len(problem.grading.evidence) == level + 1
        for fact in problem.path:
            query = f"{fact.relation.keywords} {fact.subject.name}"
            listed = asyncio.run(search(context, query=query)).text
            read = asyncio.run(open_tool(context, number=fact.article)).text
            assert f"{fact.article}: " in listed, (query, listed)
            assert fact.value.casefold() in read.casefold()
        assert problem.answer not in task.input["prompt"]


def test_relations_end_in_their_kind_and_are_asked_about_by_phrases():
    assert all(relation.phrase.count("{}") == 1 for relation in RELATIONS)
    assert all("{s}" in one and "{o}" in one for relation in RELATIONS for one in relation.sentences)


@pytest.mark.parametrize(
    "query", ['"', "a AND OR NOT", "x*", "title:y", "NEAR(a b)", "'; DROP TABLE articles", "\u0130", "-"]
)
def test_no_query_is_an_error_of_the_library(query):
    (task,) = _draw("search", 0)
    answer = asyncio.run(search(SimpleNamespace(task=task.view()), query=query))

    assert answer.is_error == (query in ('"', "-"))


def test_a_number_that_no_article_has_is_answered_to_the_model():
    (task,) = _draw("search", 0)
    answer = asyncio.run(open_tool(SimpleNamespace(task=task.view()), number=7))

    assert answer.is_error
    assert "take one that 'search' shows" in answer.text


@given(st.data())
def test_sources_support_an_answer_only_with_all_that_are_needed_and_few_others(data):
    task = next(open_taskset("search").tasks(split="train", level=2, count=1))
    needed = task.grading["evidence"]
    named = data.draw(st.sets(st.sampled_from(needed)))
    others = data.draw(st.sets(st.integers(10**4, 10**5), max_size=5))
    cited = data.draw(st.permutations([*named, *others]))
    text = f"Answer: {task.grading['values'][0]}\nSources: {', '.join(map(str, cited))}"

    reward = asyncio.run(ScriptJudge(None).judge(task, Script(name="some", result=text))).reward

    assert reward == float(named == set(needed) and len(others) <= MAX_OTHERS)
