"""One source of tasks as an endless sequence: epoch after epoch, each in its own shuffled order.

A task set becomes a file in the run's directory, one for each level, so that all sources are read in the same way.
"""

import random
from array import array
from itertools import islice
from pathlib import Path

from agent_layer.dispatcher import FILE_SET, label_tasks
from agent_layer.errors import BadInputError
from agent_layer.infra import make_private, replace_file
from agent_layer.schema import Split, Task, check_name
from agent_layer.settings import Settings
from envs.tasksets import TaskSet, open_taskset, write_task_line
from trainer_adapter.config import SourceConfig, TrainConfig
from trainer_adapter.tasks.task_file import TaskFile


class TaskSource:
    """The tasks of one source, by level and index.

    Args:
        config: of the source.
        directory: for the files of task sets.
        run: run of all tasks.
        split: split of all tasks.
        seed: of their order.
        verdicts: data directory with verdicts on task sets, which become labels of the tasks; None: no labels.

    Raises: BadInputError: file or task set cannot be used.
    """

    def __init__(
        self,
        config: SourceConfig,
        directory: Path,
        *,
        run: str,
        split: Split = "train",
        seed: int = 0,
        verdicts: Path | None = None,
    ) -> None:
        self.config = config
        self.name = check_name(config.label, "source of tasks")
        self._directory, self._run, self._seed, self._verdicts = directory, run, seed, verdicts
        self._split: Split = split
        self._taskset = None if config.taskset is None else open_taskset(config.taskset)
        self._files: dict[int, TaskFile] = {}
        """By level; a file of a user is level 0."""
        self._epoch: tuple[int, int] | None = None
        """(number of tasks, epoch) of the order below."""
        self._order = array("I")
        self.file(self.first_level)

    @property
    def first_level(self) -> int:
        """Level of the first tasks; 0 where there are no levels."""
        return 0 if self._taskset is None else self.config.level

    @property
    def last_level(self) -> int:
        """Highest level."""
        return 0 if self._taskset is None else self._taskset.levels[-1]

    def file(self, level: int) -> TaskFile:
        """Return the file of one level; it is written when it is first asked for."""
        if level not in self._files:
            path = self._write(self._taskset, level) if self._taskset is not None else self.config.path
            self._files[level] = TaskFile(Path(str(path)), run=self._run, split=self._split)
        return self._files[level]

    def read(self, level: int, index: int) -> Task:
        """Return one task of the sequence.

        Args:
            level: its level.
            index: counted from 0; epoch e begins at e times the number of tasks.

        Raises: BadInputError: the task cannot be queued, or its file was changed.
        """
        file = self.file(level)
        epoch, place = divmod(index, len(file))
        task = file.read(self._shuffle(len(file), epoch)[place])
        return task if self._verdicts is None else label_tasks(self._verdicts, [task], self.file_set)[0][0]

    @property
    def file_set(self) -> tuple[str, str] | None:
        """(name, version) of the set that a user's file is; None: the source is a task set."""
        return None if self._taskset is not None else (FILE_SET, self.file(0).digest)

    def read_first_tasks(self) -> list[Task]:
        """Return a task of each task set that its tasks are from, and of each scorer that they name."""
        return self.file(self.first_level).read_first_tasks()

    def _shuffle(self, num_tasks: int, epoch: int) -> "array[int]":
        """Return the order of an epoch, [num_tasks]; the latest is kept, 4 bytes a task."""
        if self._epoch != (num_tasks, epoch):
            self._epoch, self._order = (num_tasks, epoch), array("I", range(num_tasks))
            random.Random(f"{self._seed} {epoch}").shuffle(self._order)  # an order, not a secret
        return self._order

    def _write(self, taskset: TaskSet, level: int) -> Path:
        """Write the tasks of one level; equal arguments give equal bytes."""
        if level not in taskset.levels:
            raise BadInputError(
                f"task set {self.config.taskset!r}: expected a level from {taskset.levels[0]} to {taskset.levels[-1]},"
                f" found {level}; correct it"
            )
        count, seed = self.config.count, self.config.seed
        # a second trainer of the run, which is refused, must not replace the tasks of the first by others
        path = self._directory / f"{self.name}-level-{level}-seed-{seed}-count-{count}.jsonl"
        make_private(path.parent)
        found = taskset.tasks(split=self._split, seed=seed, level=level, count=count)
        replace_file(path, (write_task_line(task, taskset) for task in islice(found, count)))
        return path


def open_training_sources(config: TrainConfig, settings: Settings) -> list[TaskSource]:
    """Open the sources of a run's training tasks; see ``open_sources``."""
    run = config.run or settings.run
    directory = settings.dir / "runs" / run / "tasks"
    return open_sources(config.tasks, directory, run=run, seed=config.seed, verdicts=settings.dir)


def open_sources(
    configs: list[SourceConfig],
    directory: Path,
    *,
    run: str,
    split: Split = "train",
    seed: int = 0,
    verdicts: Path | None = None,
) -> list[TaskSource]:
    """Open the sources of a run.

    Raises: BadInputError: one cannot be used, or two have one name.
    """
    labels = [config.label for config in configs]
    if twice := {label for label in labels if labels.count(label) > 1}:
        raise BadInputError(
            f"tasks: expected sources of different names, found {', '.join(sorted(twice))} more than once; give each a"
            " name of its own"
        )
    return [TaskSource(config, directory, run=run, split=split, seed=seed, verdicts=verdicts) for config in configs]
