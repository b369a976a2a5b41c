"""The protocol of task sets: tasks by seed and level, with what must score 1 and what must score 0."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from agent_layer.schema import Split, Task
from envs.script import Script


class TaskSet(Protocol):
    """Tasks of one kind. Equal arguments give equal bytes, on every machine.

    A set may declare ``holdout = "near"``: no near-duplicate of its tasks of split eval is trained either;
    ``partial = True``: its mutants may earn a part; ``has_one_reference = True``: each task was written by hand, so its
    gate asks for no rewrites and no mutants; and ``is_finite = True``: all its tasks are drawn at once.
    """

    name: str
    version: str
    levels: range
    """Difficulties, easiest first."""
    agent: str
    """Agent or environment that plays them where the user names none, as ``module:attribute``."""

    def tasks(self, *, split: Split, seed: int = 0, level: int = 0, count: int | None = None) -> Iterator[Task]:
        """Yield tasks; those of the splits never overlap.

        Args:
            split: tasks of ``eval`` are never trained.
            seed: another seed gives other tasks.
            level: one of ``levels``.
            count: None: all; a generated set yields for ever.
        """
        ...

    def solve(self, task: Task) -> Script:
        """Return the reference, which scores 1."""
        ...

    def rewrites(self, task: Task) -> Sequence[Script]:
        """Return other right solutions, which score 1 too."""
        ...

    def mutants(self, task: Task) -> Sequence[Script]:
        """Return solutions that are wrong in their behaviour: they score 0."""
        ...

    def cheats(self, task: Task) -> Sequence[Script]:
        """Return forgeries, which score 0."""
        ...


@runtime_checkable
class WritesDirectories(Protocol):
    """A task set that has its tasks in Harbor's form, too."""

    def write_directory(self, task: Task, folder: Path) -> None:
        """Write a task as a directory that is new or empty.

        Raises: OSError: it cannot be written.
        """
        ...
