"""Scaffold: a scorer of answers in JSON, and tasks to try it on. Replace what it reads and how it judges.

agent-layer tasksets check scaffold:ScaffoldTasks
agent-layer submit TASKS.jsonl                       # with "scorer": "scaffold:Scaffold"
"""

import json
import random
import re
from collections.abc import Iterator, Sequence
from itertools import count as count_from, islice, product

from agent_layer.schema import JsonObject, Split
from envs import ScoringContext, Task, Verdict
from envs.grading import common_answers, equal_values, final_answer
from envs.tasksets import Script

_MAX_LENGTH = 10_000
_NAMES = ["Ada", "Ben", "Cleo", "Dov", "Eva", "Finn"]


class Scaffold:
    """Scores 1 where the answer is the object of ``task.grading``, in values and types. Contract: ``Scorer``.

    The last object of the answer counts. Text is only ever read: an answer that were run could score itself.
    """

    version = "1"
    """Raise it when scores change."""

    async def score(self, context: ScoringContext) -> Verdict:
        """Return the score with its evidence; what the policy did wrong is 0, never an error."""
        text = final_answer(context.trajectory, context.result)[-_MAX_LENGTH:]
        found = _read_object(text)
        is_right = equal_values(context.task.grading, found)
        return Verdict(scores={"reward": float(is_right)}, evidence={"found": found, "characters": len(text)})


class ScaffoldTasks:
    """Facts to write as JSON, for the scorer of this module. Contract: ``TaskSet``."""

    name = "scaffold"
    version = "1"
    levels = range(1)
    agent = "envs:ToolEnvironment"

    def tasks(self, *, split: Split, seed: int = 0, level: int = 0, count: int | None = None) -> Iterator[Task]:
        """Yield tasks; ages are odd in split eval and even in train, so no task is in both."""
        return islice((_make_task(split, seed, level, index) for index in count_from()), count)

    def solve(self, task: Task) -> Script:
        """Return the right answer: it scores 1."""
        return _answer("reference", json.dumps(task.grading))

    def rewrites(self, task: Task) -> Sequence[Script]:
        """Return at least 20 other right answers: they score 1."""
        frames = ["{}", "```json\n{}\n```", "First {{}}, then:\n{}"]
        forms = product(frames, [None, 0, 1, 2], [False, True])
        texts = [frame.format(json.dumps(task.grading, indent=indent, sort_keys=keys)) for frame, indent, keys in forms]
        return [_answer(f"form-{number}", text) for number, text in enumerate(texts)]

    def mutants(self, task: Task) -> Sequence[Script]:
        """Return answers that are nearly right: they score 0."""
        right: JsonObject = json.loads(json.dumps(task.grading))
        changes: list[JsonObject] = [
            {"age": 0},
            {"age": str(right["age"])},
            {"name": "Zoe"},
            {"more": 1},
            {"age": None},
        ]
        return [_answer(f"wrong-{number}", json.dumps(right | one)) for number, one in enumerate(changes)]

    def cheats(self, task: Task) -> Sequence[Script]:
        """Return at least 20 answers that know nothing, or try to talk to the scorer: they score 0."""
        return [_answer(name, text) for name, text in common_answers(str(task.input)).items()]


def _read_object(text: str) -> object:
    """Return the last outermost object of a text; None: it has none."""
    starts = [found.start() for found in re.finditer(r"\{", text)][:100]
    found: object = None
    end = 0
    for start in starts:
        if start < end:  # inside the one before
            continue
        try:
            found, end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
    return found


def _make_task(split: Split, seed: int, level: int, index: int) -> Task:
    rng = random.Random(f"{split} {seed} {level} {index}")  # equal arguments give equal tasks, on every machine
    fact = {"name": rng.choice(_NAMES), "age": 2 * rng.randrange(10, 40_000) + (split == "eval")}
    return Task(
        id=f"scaffold-{split}-{seed}-{level}-{index}",
        run="tasks",
        split=split,
        input=f"The oak {fact['name']} is {fact['age']} days old. Write name and age (in days) as one JSON object.",
        grading=fact,  # only the scorer sees it
        scorer=f"{__name__}:Scaffold",
    )


def _answer(name: str, text: str) -> Script:
    return Script(name=name, replies=[{"role": "assistant", "content": text}])
