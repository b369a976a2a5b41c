"""Scaffold: an environment of several turns, with tasks and a scorer. Replace the hidden number with your world.

agent-layer tasksets check scaffold:ScaffoldTasks
agent-layer eval scaffold:ScaffoldTasks --model URL
"""

import random
import re
from collections.abc import Iterator, Sequence
from itertools import count as count_from, islice

from agent_layer.schema import Split
from envs import EnvContext, StepResult, Task, Trajectory
from envs.grading import common_answers, final_answer
from envs.tasksets import Script

LOWEST, HIGHEST = 10, 99
MAX_GUESSES = 7


class Scaffold:
    """Answers each guess with higher or lower. Contract: ``Environment``.

    It sees the task without its grading. What it must know follows from the task's seed, which no model sees.
    """

    version = "1"
    """Raise it when its answers change."""

    def __init__(self, context: EnvContext) -> None:
        self._hidden = hide_number(context.seed)
        self._guesses: list[int | None] = []

    async def reset(self, task: Task) -> object:
        """Return the first message to the model."""
        return task.input

    async def step(self, action: str) -> StepResult:
        """Answer one text of the model. The scorer rewards, so no step does."""
        guess = read_guess(action)
        self._guesses.append(guess)
        if guess == self._hidden or len(self._guesses) == MAX_GUESSES:
            return StepResult(observation="The end.", done=True)
        if guess is None:
            return StepResult(observation="That is no number. End with a number.")
        return StepResult(observation="higher" if guess < self._hidden else "lower")

    def state(self) -> object:
        """Return what is recorded with each step."""
        return {"guesses": self._guesses}

    async def close(self) -> None:
        """Release nothing."""


class ScaffoldTasks:
    """Hidden numbers. Contract: ``TaskSet``."""

    name = "scaffold"
    version = "1"
    levels = range(1)
    agent = f"{__name__}:Scaffold"

    def tasks(self, *, split: Split, seed: int = 0, level: int = 0, count: int | None = None) -> Iterator[Task]:
        """Yield tasks; seeds are odd in split eval and even in train, so no task is in both."""
        return islice((_make_task(split, seed, level, index) for index in count_from()), count)

    def solve(self, task: Task) -> Script:
        """Return the messages of an agent that halves the range: it scores 1."""
        hidden, low, high, guesses = hide_number(task.seed or 0), LOWEST, HIGHEST, list[int]()
        while not guesses or guesses[-1] != hidden:
            guesses.append((low + high) // 2)
            low, high = (guesses[-1] + 1, high) if guesses[-1] < hidden else (low, guesses[-1] - 1)
        return _play("reference", [str(guess) for guess in guesses])

    def rewrites(self, task: Task) -> Sequence[Script]:
        """Return at least 20 other ways to the number: they score 1."""
        hidden = hide_number(task.seed or 0)
        firsts = [one for one in range(LOWEST, LOWEST + 25) if one != hidden]
        return [_play(f"from-{first}", [f"I try {first}", f"So it is {hidden}"]) for first in firsts]

    def mutants(self, task: Task) -> Sequence[Script]:
        """Return games that end elsewhere, or late: they score 0."""
        hidden = hide_number(task.seed or 0)
        late = [*["I try 1"] * MAX_GUESSES, str(hidden)]
        return [
            _play("late", late),
            *(_play(f"ends-at-{one}", [str(one)]) for one in (hidden - 1, hidden + 1, -hidden)),
        ]

    def cheats(self, task: Task) -> Sequence[Script]:
        """Return at least 20 answers that know nothing, or try to talk to the scorer: they score 0."""
        return [_play(name, [text]) for name, text in common_answers(str(task.input)).items()]


def score(task: Task, trajectory: Trajectory, result: object) -> float:
    """Return 1 where the last guess is the number and none was too many, else 0. It believes no text of the agent."""
    guess = read_guess(final_answer(trajectory, result))
    return float(guess == hide_number(task.seed or 0) and len(trajectory.steps) <= MAX_GUESSES)


def hide_number(seed: int) -> int:
    """Return the number of a seed."""
    return random.Random(seed).randint(LOWEST, HIGHEST)


def read_guess(text: str) -> int | None:
    """Return the last number of a text; None: it has none."""
    numbers = re.findall(r"(?<!\d)-?\d{1,3}(?!\d)", text[-200:])
    return int(numbers[-1]) if numbers else None


def _make_task(split: Split, seed: int, level: int, index: int) -> Task:
    return Task(
        id=f"scaffold-{split}-{seed}-{level}-{index}",
        run="tasks",
        split=split,
        input=f"Find my number, at least {LOWEST} and at most {HIGHEST}, in {MAX_GUESSES} guesses. End with a number.",
        seed=2 * (seed * 1_000_000 + index) + (split == "eval"),
        scorer=f"{__name__}:score",
    )


def _play(name: str, texts: Sequence[str]) -> Script:
    return Script(name=name, replies=[{"role": "assistant", "content": text} for text in texts])
