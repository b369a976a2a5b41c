"""The task set, its environment, its scorer, and a scripted agent."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, cast

import tracer
from agent_layer.schema import JsonObject, Split, Task, TaskView
from agent_layer.schema.sandbox import SandboxSpec
from envs.env_context import EnvContext
from envs.environment import ToolEnvironment
from envs.grading import ScoringContext, UnfitArtifactsError, Verdict, prepare_box
from envs.script import Script
from envs.tasksets.generated import list_keys
from envs.tasksets.terminal.compare import MAX_BYTES, is_right
from envs.tasksets.terminal.directories import write_directory
from envs.tasksets.terminal.problems import (
    LEVELS,
    NAME,
    SOLVED,
    VERSION,
    draw_problem,
    find_problem,
    prepare_files,
    run_program,
)
from envs.tasksets.terminal.scripts import write_cheats, write_mutants, write_reference, write_rewrites
from envs.tools import read_file, shell, write_file


class TerminalEnvironment(ToolEnvironment):
    """Prepares the files of the chore, begins with what is asked, and ends at a plain text. The scorer rewards."""

    version = "1"
    sandbox: ClassVar[SandboxSpec | None] = SandboxSpec()
    tools = (shell, read_file, write_file)

    async def reset(self, task: Task, context: EnvContext) -> object:
        """Return what is asked."""
        await prepare_files(context.sandbox, task.id)
        return task.input


class TerminalScorer:
    """Solved is 1 when every file of the result is as it must be, else 0. Contract: ``Scorer``.

    The files are read as data in a fresh box. Nothing of the agent's runs there, and what they must be stays outside.
    """

    version = VERSION

    async def score(self, context: ScoringContext) -> Verdict:
        """Judge the files that the agent left.

        Raises: SandboxError: no box could be made, or it was lost.
        """
        results = cast("dict[str, object]", cast("JsonObject", context.task.grading)["results"])
        wrong = list[str]()
        try:
            box = await prepare_box(context)
        except UnfitArtifactsError as error:
            return Verdict(scores={SOLVED: 0.0}, evidence={"error": str(error)})
        for path, expected in results.items():
            try:
                found = await box.read(path, max_bytes=MAX_BYTES)
            except OSError:  # it is missing, no file, or too large
                found = b""
            if not is_right(expected, found):
                wrong.append(path)
        return Verdict(scores={SOLVED: float(not wrong)}, evidence={"wrong": wrong})


class Terminal:
    """Generated chores at a terminal. Contract: ``TaskSet``.

    Five kinds a level: logs and crontabs, tables and encodings, archives and modes, repositories and databases.
    """

    name = NAME
    version = VERSION
    levels = LEVELS
    agent = "envs.tasksets.terminal.terminal:TerminalEnvironment"

    def tasks(self, *, split: Split, seed: int = 0, level: int = 0, count: int | None = None) -> Iterator[Task]:
        """Yield tasks, without end where ``count`` is None.

        Raises: BadInputError: no such level exists, or the seed is negative.
        """
        for key in list_keys(NAME, LEVELS, split=split, seed=seed, level=level, count=count):
            yield draw_problem(key).task

    def solve(self, task: Task) -> Script:
        """Return the script that runs the solution."""
        return write_reference(find_problem(task.id))

    def rewrites(self, task: Task) -> Sequence[Script]:
        """Return the right results in other spellings, or with other files beside them."""
        return write_rewrites(find_problem(task.id))

    def mutants(self, task: Task) -> Sequence[Script]:
        """Return results with one mistake each."""
        return write_mutants(find_problem(task.id))

    def cheats(self, task: Task) -> Sequence[Script]:
        """Return forgeries."""
        return write_cheats(find_problem(task.id))

    def write_directory(self, task: Task, folder: Path) -> None:
        """Write a task as a directory in Harbor's form.

        Raises: OSError: it cannot be written.
        """
        write_directory(find_problem(task.id), folder)


async def reference(task: TaskView, rollout: tracer.Rollout) -> object:
    """Solve a task without a model: a scripted agent, which draws the task again from its id."""
    await prepare_files(rollout.sandbox, task.id)
    solution = find_problem(task.id).chore.solution
    await run_program(rollout.sandbox, solution, f"task {task.id!r}: its solution failed")
    return "done"
