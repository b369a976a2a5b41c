"""Scaffold: sums of two numbers, answered in text. Replace questions, answers and wrong answers with yours.

agent-layer tasksets check scaffold:Scaffold
agent-layer eval scaffold:Scaffold --model URL
"""

import random
import re
from collections.abc import Iterator, Sequence
from itertools import count as count_from, islice

from agent_layer.schema import Split
from envs import Task, Trajectory
from envs.grading import common_answers, final_answer
from envs.tasksets import Script

_PHRASES = ["{}", "It is {}.", "{} is the sum.", "First I add the ones.\n{}", "The sum: {}"]
_ENDS = ["", "\n", " ", "!"]


class Scaffold:
    """Sums of two numbers. Contract: ``TaskSet``."""

    name = "scaffold"
    version = "1"
    """Raise it when tasks or scores change."""
    levels = range(3)
    """Digits of the numbers, less two."""
    agent = "envs:ToolEnvironment"
    """Shows the task's input, and takes the first text as the answer."""

    def tasks(self, *, split: Split, seed: int = 0, level: int = 0, count: int | None = None) -> Iterator[Task]:
        """Yield tasks; the first number is odd in split eval and even in train, so no task is in both."""
        return islice((_make_task(split, seed, level, index) for index in count_from()), count)

    def solve(self, task: Task) -> Script:
        """Return the right answer: it scores 1."""
        return _answer("reference", str(task.grading))

    def rewrites(self, task: Task) -> Sequence[Script]:
        """Return at least 20 other right answers: they score 1."""
        texts = [phrase.format(task.grading) + end for phrase in _PHRASES for end in _ENDS]
        return [_answer(f"phrase-{number}", text) for number, text in enumerate([*texts, f"12? No: {task.grading}"])]

    def mutants(self, task: Task) -> Sequence[Script]:
        """Return answers that are nearly right: they score 0."""
        total = int(str(task.grading))
        return [_answer(f"wrong-{one}", str(one)) for one in (total - 1, total + 1, total * 10, -total)]

    def cheats(self, task: Task) -> Sequence[Script]:
        """Return at least 20 answers that know nothing, or try to talk to the scorer: they score 0."""
        return [_answer(name, text) for name, text in common_answers(str(task.input)).items()]


def score(task: Task, trajectory: Trajectory, result: object) -> float:
    """Return 1 where the last number of the answer is the sum, else 0."""
    numbers = re.findall(r"-?\d+", final_answer(trajectory, result)[-200:])
    return float(numbers[-1:] == [str(task.grading)])


def _make_task(split: Split, seed: int, level: int, index: int) -> Task:
    rng = random.Random(f"{split} {seed} {level} {index}")  # equal arguments give equal tasks, on every machine
    lowest = 10 ** (level + 1)
    first, second = 2 * rng.randrange(lowest, 5 * lowest) + (split == "eval"), rng.randrange(lowest, 10 * lowest)
    return Task(
        id=f"scaffold-{split}-{seed}-{level}-{index}",
        run="tasks",
        split=split,
        input=f"What is {first} + {second}? End with the number.",
        grading=first + second,  # only the scorer sees it
        scorer=f"{__name__}:score",
    )


def _answer(name: str, text: str) -> Script:
    return Script(name=name, replies=[{"role": "assistant", "content": text}])
