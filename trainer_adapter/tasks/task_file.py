"""A file of tasks with random access, whatever its size.

Opening reads the file once: each line is decoded, so that a malformed one is an error before anything is queued. Offset
and line number of each task stay in memory, 12 bytes. A task is read from the file each time it is asked for.
"""

import codecs
from array import array
from collections.abc import Iterator
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agent_layer.dispatcher import TaskName, find_taskset, read_task, read_task_name
from agent_layer.errors import BadInputError
from agent_layer.schema import Split, Task


class _Line(NamedTuple):
    number: int
    """Counted from 1."""
    offset: int
    content: bytes


class TaskFile:
    """The tasks of one file, one JSON object on each line.

    Args:
        path: the file.
        run: run of all tasks.
        split: split of all tasks.

    Raises: BadInputError: there is no such file, a line is no task, or two tasks have one id; the error names the line.
    """

    def __init__(self, path: Path, *, run: str, split: Split = "train") -> None:
        self._path, self._run = path, run
        self._split: Split = split
        self._offsets, self._numbers = array("Q"), array("I")
        self._first: dict[tuple[tuple[str, str] | None, str | None], int] = {}
        """First task of each task set and scorer."""
        self.agents = set[str]()
        """Agents that its tasks name."""
        try:
            self._seen = self._read_state()
            self.digest = self._hash()
            """Hash of the file's content."""
            self._index()
        except OSError as error:
            raise BadInputError(
                f"tasks file {path}: expected a readable file, found {error}; check the path"
            ) from error

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self._offsets)

    def read(self, index: int) -> Task:
        """Return one task.

        Raises: BadInputError: it cannot be queued, or the file was changed since it was opened.
        """
        if (state := self._read_state()) != self._seen:
            if self._hash() != self.digest:
                raise BadInputError(
                    f"tasks file {self._path}: expected the tasks with which the trainer started, but they were changed"
                    " since; restore them, and train again"
                )
            self._seen = state
        with self._path.open("rb") as file:
            file.seek(self._offsets[index])
            line = file.readline()
        return read_task(line, f"{self._path} line {self._numbers[index]}", run=self._run, split=self._split)

    def read_first_tasks(self) -> list[Task]:
        """Return the first task of each task set, by its labels, and scorer that tasks of the file name."""
        return [self.read(index) for index in self._first.values()]

    def _index(self) -> None:
        hashes = array("q")
        for line in self._lines():
            name = self._read_name(line)
            self._offsets.append(line.offset)
            self._numbers.append(line.number)
            hashes.append(hash(name.id))
            if name.agent is not None:
                self.agents.add(name.agent)
            self._first.setdefault((find_taskset(name.labels), name.scorer), len(hashes) - 1)
        if not hashes:
            raise BadInputError(
                f"{self._path}: expected at least one task, found none; write one JSON object on each line"
            )
        ranked = np.sort(np.frombuffer(hashes, dtype=np.int64))
        if shared := set(ranked[1:][ranked[1:] == ranked[:-1]].tolist()):
            self._check_ids(shared)

    def _lines(self) -> Iterator[_Line]:
        """Yield the lines that are not empty."""
        offset = 0
        with self._path.open("rb") as file:
            for number, content in enumerate(file, start=1):
                start = len(codecs.BOM_UTF8) if number == 1 and content.startswith(codecs.BOM_UTF8) else 0
                if content[start:].strip():
                    yield _Line(number, offset + start, content[start:])
                offset += len(content)

    def _check_ids(self, hashes: set[int]) -> None:  # kept: a second pass, only where hashes are shared
        """Check that no two tasks with one of these hashes have one id."""
        first: dict[str, int] = {}
        for line in self._lines():
            task_id = self._read_name(line).id
            if hash(task_id) in hashes and first.setdefault(task_id, line.number) != line.number:
                raise BadInputError(
                    f"{self._path} line {line.number}: expected a task that is not in the file yet, found the id"
                    f" {task_id!r} of line {first[task_id]}; give each task its own id"
                )

    def _read_name(self, line: _Line) -> TaskName:
        return read_task_name(line.content, f"{self._path} line {line.number}")

    def _read_state(self) -> tuple[int, int, int]:
        state = self._path.stat()
        return state.st_ino, state.st_size, state.st_mtime_ns

    def _hash(self) -> str:
        with self._path.open("rb") as file:
            return file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
