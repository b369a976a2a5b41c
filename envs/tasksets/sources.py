"""Whatever brings tasks as a task set: a registered name, a module, files of tasks, or Harbor directories."""

import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Final, cast

from agent_layer.dispatcher import FILE_SET, read_tasks
from agent_layer.errors import BadInputError
from agent_layer.schema import Split, Task, content_hash
from envs.script import Script
from envs.tasksets.harbor import HarborTasks
from envs.tasksets.registry import list_taskset_names, open_taskset
from envs.tasksets.taskset import TaskSet

_HELD_OUT: Final = re.compile(r"(?:^|[-_.])(?:eval|test|valid(?:ation)?|dev|held-?out)(?:[-_.]|$)", re.IGNORECASE)
_ANSWERS: Final = ("answer", "expected", "solution", "target", "reference", "truth", "label")


class FileSet:
    """The tasks of files, one JSON object on each line. Contract: ``TaskSet``.

    Files whose names say so, such as ``test.jsonl``, are of split eval, all others of split train. There is no
    reference; what a grading names as the answer stands for one, and is no finding where it scores below 1.
    """

    levels = range(1)
    agent = ""
    has_reference = False
    is_finite = True

    def __init__(self, path: Path) -> None:
        self._files = [path] if path.is_file() else sorted(path.rglob("*.jsonl"))
        contents = [file.read_bytes() for file in self._files]
        self.name = FILE_SET if len(contents) == 1 else path.name
        self.version = content_hash(contents[0] if len(contents) == 1 else b"\0".join(contents))

    def tasks(self, *, split: Split, seed: int = 0, level: int = 0, count: int | None = None) -> Iterator[Task]:  # noqa: ARG002  # the protocol's own signature
        """Yield the tasks of a split; the seed changes nothing.

        Raises: BadInputError: a line is no task.
        """
        files = (file for file in self._files if (_HELD_OUT.search(file.name) is not None) == (split == "eval"))
        yield from islice((task for file in files for task in read_tasks(file, run="audit", split=split)), count)

    def solve(self, task: Task) -> Script:
        """Return the answer that the grading names; an empty one where it names none."""
        found = task.grading
        if isinstance(found, dict):
            named = cast("dict[str, object]", found)
            found = next((named[name] for name in _ANSWERS if name in named), None)
        if isinstance(found, list):
            found = next(iter(cast("list[object]", found)), None)
        if not isinstance(found, str | int | float) or isinstance(found, bool):
            return Script(name="none")
        return Script(name="grading", replies=[{"role": "assistant", "content": str(found)}], result=str(found))

    def rewrites(self, task: Task) -> Sequence[Script]:  # noqa: ARG002  # the protocol's own signature
        """Return none."""
        return ()

    mutants = cheats = rewrites


def open_source(name: str) -> TaskSet:
    """Return the task set of a name, ``module:attribute``, module, Python file, tasks file, or folder of tasks.

    Raises: BadInputError: there is none, or a module has several.
    """
    path = Path(name)
    if name in list_taskset_names():
        return open_taskset(name)
    is_harbor = path.is_dir() and next(path.rglob("task.toml"), None) is not None  # its tests may be *.jsonl
    is_lines = path.is_dir() and not is_harbor and next(path.rglob("*.jsonl"), None) is not None
    if (path.is_file() and path.suffix == ".jsonl") or is_lines:
        return FileSet(path)
    if path.is_file() and path.suffix == ".py":
        return open_taskset(_name_attribute(name, _import_file(path)))
    is_plain = path.is_dir() and not (path / "__init__.py").exists()
    if ":" not in name and not is_plain and _is_module(name):
        return open_taskset(_name_attribute(name, import_module(name)))
    return open_taskset(name)


def identify_taskset(taskset: TaskSet) -> str:
    """Return the version that verdicts are kept under: of a set of the user's own, with a hash of its module."""
    kind = type(taskset)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if kind.__module__.partition(".")[0] == "envs" or file is None:
        return taskset.version
    return f"{taskset.version}+{content_hash(Path(file).read_bytes())[:12]}"


def list_untried(taskset: TaskSet) -> list[str]:
    """Return what a check cannot look at where each task has one reference, and which tasks are left out."""
    unseen = (
        "not tried: other right solutions, which the tests may refuse, and wrong ones, which they may take; a task has"
        " one reference, so read its tests"
    )
    return [unseen, *(taskset.list_notes() if isinstance(taskset, HarborTasks) else ())]


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _import_file(path: Path) -> ModuleType:
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return import_module(path.stem)


def _name_attribute(name: str, module: ModuleType) -> str:
    """Return ``module:attribute`` of the only task set of a module."""
    found = [
        attribute
        for attribute, one in vars(module).items()
        if all(hasattr(one, needed) for needed in ("tasks", "solve", "levels"))
        and (not isinstance(one, type) or one.__module__ == module.__name__)
    ]
    if len(found) != 1:
        raise BadInputError(
            f"module {name!r}: expected one task set, found {', '.join(found) or 'none'}; name it as module:attribute"
        )
    return f"{module.__name__}:{found[0]}"
