"""The task set itself."""

from collections.abc import Iterator, Sequence

from agent_layer.schema import Split, Task
from envs.tasksets import Script, list_keys
from envs.tasksets.repair.cheats import write_cheats
from envs.tasksets.repair.scripts import write_mutants, write_reference, write_rewrites
from envs.tasksets.repair.tasks import LEVELS, NAME, VERSION, draw_problem, find_problem


class Repair:
    """Generated repositories of Python with bugs. Contract: ``TaskSet``.

    Level 0 is one choice: which of three edits on which of three lines. Level 1 is one file with one bug, level 2
    several files with one, level 3 several files with several. No bug of a task of ``eval`` is in one of ``train``.
    """

    name = NAME
    version = VERSION
    levels = LEVELS
    agent = "envs.tasksets.repair:RepairEnvironment"

    def tasks(self, *, split: Split, seed: int = 0, level: int = 0, count: int | None = None) -> Iterator[Task]:
        """Yield tasks, without end where ``count`` is None.

        Raises: BadInputError: no such level exists, or the seed is negative.
        """
        for key in list_keys(NAME, LEVELS, split=split, seed=seed, level=level, count=count):
            yield draw_problem(split, seed, level, key.number).task

    def solve(self, task: Task) -> Script:
        """Return the script that takes the bugs back."""
        return write_reference(find_problem(task.id))

    def rewrites(self, task: Task) -> Sequence[Script]:
        """Return other right solutions."""
        return write_rewrites(find_problem(task.id))

    def mutants(self, task: Task) -> Sequence[Script]:
        """Return solutions that behave differently."""
        return write_mutants(find_problem(task.id))

    def cheats(self, task: Task) -> Sequence[Script]:
        """Return forgeries."""
        return write_cheats(find_problem(task.id))
