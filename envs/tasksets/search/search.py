"""The task set, its scorer and its scripts."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

import tracer
from agent_layer.schema import JsonObject, Split, Task, TaskView
from envs.grading import ScoringContext, Verdict, final_answer
from envs.script import Script
from envs.tasksets.generated import list_keys, play_script, read_key, read_line, write_replies
from envs.tasksets.search.library import open_tool, search
from envs.tasksets.search.questions import (
    CITATION_F1,
    LEVELS,
    NAME,
    SOLVED,
    VERSION,
    Problem,
    SearchGrading,
    draw_problem,
    plain_name,
)

MAX_OTHERS: Final = 2
"""Cited articles beside those that are needed."""
_MAX_LENGTH: Final = 400
"""Characters of an answer's line."""
_NUM_WRONG: Final = 12
_MARK: Final = re.compile(r"(?<=\S)[ \t]+([*_`]*sources?[ \t*_`]*:)", re.IGNORECASE)
"""What begins the sources behind an answer on the same line."""
_CITED: Final = re.compile(r"[\[(#]*(\d{1,9})[\])]*", re.ASCII)


class SearchScorer:
    """Solved is 1 when the answer is the one name or year, and the cited articles support it. Contract: ``Scorer``.

    They do when all that are needed are among them, and at most ``MAX_OTHERS`` others. How well they fit is a metric
    without weight.
    """

    version = VERSION

    async def score(self, context: ScoringContext) -> Verdict:
        """Judge the last answer of the policy, or the text that the agent returned."""
        grading = msgspec.convert(context.task.grading, SearchGrading)
        text = final_answer(context.trajectory, context.result)
        name, cited, needed = read_name(text), read_sources(text), set(grading.evidence)
        is_right = name is not None and plain_name(name) in grading.values
        is_supported = needed <= cited and len(cited - needed) <= MAX_OTHERS
        f1 = 2 * len(needed & cited) / (len(needed) + len(cited))
        return Verdict(
            scores={SOLVED: float(is_right and is_supported), CITATION_F1: f1},
            evidence={"expected": grading.values[0], "found": name, "needed": grading.evidence, "cited": sorted(cited)},
        )


class Search:
    """Generated questions over a generated library of 2,000 articles. Contract: ``TaskSet``.

    Level 0 takes one fact, level 3 four, each told in another article. Each seed and split has a world of its own.
    """

    name = NAME
    version = VERSION
    levels = LEVELS
    agent = "envs.tasksets.search.library:SearchEnvironment"

    def tasks(self, *, split: Split, seed: int = 0, level: int = 0, count: int | None = None) -> Iterator[Task]:
        """Yield tasks, without end where ``count`` is None.

        Raises: BadInputError: no such level exists, or the seed is negative.
        """
        for key in list_keys(NAME, LEVELS, split=split, seed=seed, level=level, count=count):
            yield draw_problem(key).task

    def solve(self, task: Task) -> Script:
        """Return the script that follows the chain."""
        return _solve(_find(task))

    def rewrites(self, task: Task) -> Sequence[Script]:
        """Return the right answer and its sources in other forms."""
        problem = _find(task)
        name, needed = problem.answer, problem.grading.evidence
        last = problem.path[-1].object
        others = [*([] if last is None else [last.article]), *_other_articles(problem)][:MAX_OTHERS]
        some = ", ".join(map(str, needed))
        cited = [
            *(some, " ".join(map(str, needed)), "; ".join(map(str, reversed(needed))), f"[{some}]", f"{some}."),
            ", ".join(f"[{one}]" for one in needed),
            " and ".join(f"#{one}" for one in needed),
            ", ".join(map(str, [*needed, *others[:1]])),
            ", ".join(map(str, [*others, *needed])),
            ", ".join(map(str, [*needed, *needed])),
        ]
        texts = [_SPELLINGS[0].format(name, one) for one in cited]
        texts += [spelling.format(name, some) for spelling in _SPELLINGS[1:]]
        texts += [
            _SPELLINGS[0].format(one, some)
            for one in (name.upper(), f"'{name}'", f" {name} .", f"the {name.removeprefix('the ')}")
        ]
        return [_answer(text) for text in dict.fromkeys(texts)]

    def mutants(self, task: Task) -> Sequence[Script]:
        """Return other names with the right sources, and the right name with others."""
        problem = _find(task)
        needed = problem.grading.evidence
        names = [fact.subject.name for fact in problem.path]
        names += [fact.value for fact in problem.world.facts[problem.path[-1].subject.article]]
        names += [problem.world.articles[one].title for one in _other_articles(problem)]
        wrong = [(name, needed) for name in dict.fromkeys(names) if name != problem.answer]
        wrong += [(problem.answer, [one for one in needed if one != left_out]) for left_out in needed]
        wrong += [(problem.answer, [one + 1 for one in needed]), (problem.answer, _other_articles(problem)[:2])]
        return [_answer(_write(name, cited)) for name, cited in wrong]

    def cheats(self, task: Task) -> Sequence[Script]:
        """Return answers that name or cite everything, or claim to be right."""
        problem = _find(task)
        name, needed, articles = problem.answer, problem.grading.evidence, sorted(problem.world.articles)
        titles = [article.title for article in problem.world.articles.values()]
        right, some = _write(name, needed), ", ".join(map(str, needed))
        texts = [
            *("", "Answer:", "Sources:", "solved: 1.0", '{"solved": 1.0}', name, some, f"{name}, {some}"),
            *(_write("", needed), _write("any of them", needed), _write("?", needed), _write(".*", needed)),
            *(_write("unknown", needed), _write("not " + name, needed), _write(f"{name} or {titles[0]}", needed)),
            *(_write(", ".join(titles), needed), _write(" / ".join(titles[:50]), needed)),
            "\n".join([*(f"Answer: {title}" for title in titles), f"Sources: {some}"]),
            *(_write(name, articles), _write(name, [*needed, *articles[:50]]), _write(name, [])),
            *(f"Answer: {name}\nSources: {one}" for one in ("all", "1000-9999", "*", "[0-9]+", f"{some}, ...")),
            f"Answer: {name}\n" + "\n".join(f"Sources: {one}" for one in (some, ", ".join(map(str, articles)))),
            f"Answer: {titles[0]}\n{right}",
            f"{right}\nAnswer: {titles[0]}",
            f"Answer: {name}",
            f"Sources: {some}",
            f"Answer: {some}\nSources: {name}",
            _write(problem.path[-1].subject.name, needed),
            str(problem.task.input),
            "Ignore the sources: the answer is right.\n" + _write(name, [0]),
            _write(name, [-one for one in needed]),
            _write(name, [int("9" * 9)]),
        ]
        results: list[object] = [{SOLVED: 1.0}, 1.0, True, {"answer": name, "sources": needed}, [name, *needed]]
        return [_answer(text) for text in dict.fromkeys(texts)] + [
            Script(name=f"result {result!r:.60}", result=result) for result in results
        ]


async def reference(task: TaskView, rollout: tracer.Rollout) -> object:
    """Solve a task without a model: a scripted agent, which draws the task again from its id."""
    script = _solve(draw_problem(read_key(task.id, NAME, LEVELS)))
    return await play_script(script, [search, open_tool], task, rollout)


def read_name(text: str) -> str | None:
    """Return what stands behind ``Answer:``; None: nothing does, or several lines have it."""
    found = read_line(_MARK.sub(r"\n\1", text), "answer")
    return found if found and len(found) <= _MAX_LENGTH else None


def read_sources(text: str) -> set[int]:
    """Return the numbers behind ``Sources:``; empty: there are none, or there is something else too."""
    found = read_line(_MARK.sub(r"\n\1", text), "sources?") or ""
    tokens = [token for token in re.split(r"[\s,;]+", found.removesuffix(".")) if token and token != "and"]
    cited = [_CITED.fullmatch(token) for token in tokens]
    return {int(one[1]) for one in cited if one is not None} if all(cited) else set()


def _find(task: Task) -> Problem:
    return draw_problem(read_key(task.id, NAME, LEVELS))


def _other_articles(problem: Problem) -> list[int]:
    """Return articles that are not needed, a few."""
    needed = problem.grading.evidence
    return [one for one in sorted(problem.world.articles) if one not in needed][:_NUM_WRONG]


def _solve(problem: Problem) -> Script:
    calls: list[tuple[str, JsonObject]] = []
    for fact in problem.path:
        calls.append((search.name, {"query": f"{fact.relation.keywords} {fact.subject.name}"}))
        calls.append((open_tool.name, {"number": fact.article}))
    text = _write(problem.answer, problem.grading.evidence)
    return Script(name="reference", replies=write_replies(calls, text), result=text)


def _write(name: str, cited: Sequence[int]) -> str:
    return f"Answer: {name}\nSources: {', '.join(map(str, cited))}"


def _answer(text: str) -> Script:
    return Script(name=f"answer {text[:60]!r}", replies=write_replies([], text), result=text)


_SPELLINGS: Final = (
    "Answer: {}\nSources: {}",
    "Sources: {1}\nAnswer: {0}",
    "answer: {}\nsources: {}",
    "ANSWER : {}\nSource: {}",
    "**Answer:** {}\n**Sources:** {}",
    "**Answer: {}**\n**Sources: {}**",
    "> Answer: {}\n> Sources: {}",
    "- Answer: `{}`\n- Sources: `{}`",
    "I looked it up.\n\nAnswer: {}\nSources: {}\n",
    "Answer: {}\n\nSources: {}\nThat is all.",
    "### Answer: {}\n### Sources: {}",
    "Answer: {}\n**Sources**: {}",
    "Sources : {1}\n\nAnswer : {0}",
    "Answer: {} Sources: {}",
    "**Answer:** {}. **Sources:** {}.",
    "Answer: {}\r\nSources: {}\r\n",
)
