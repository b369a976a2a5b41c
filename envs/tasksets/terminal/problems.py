"""The problems: chores by seed, level and index. The id of a task names how it is drawn again."""

import json
from functools import lru_cache
from typing import Final

import msgspec

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.schema import Limits, RewardSpec, Task, TaskView
from agent_layer.schema.sandbox import Sandbox, SandboxSpec
from envs.tasksets.generated import TaskKey, choose_split, read_key
from envs.tasksets.terminal.chores import KINDS
from envs.tasksets.terminal.chores.chore import Chore

NAME: Final = "terminal"
VERSION: Final = "1"
"""Raise it when tasks or the scorer change."""
LEVELS: Final = range(len(KINDS))
SOLVED: Final = "solved"
_LIMITS: Final = Limits(turns=30, wall_seconds=600, score_seconds=60, sandbox_seconds=900, observation_tokens=2000)
_PREPARE_SECONDS: Final = 60.0


class TerminalInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a task asks, and the program that its box needs first."""

    prompt: str
    prepare: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One task with all that is known of it."""

    task: Task
    kind: str
    chore: Chore

    @property
    def texts(self) -> dict[str, str]:
        """Right results as files."""
        return {
            path: one if isinstance(one, str) else json.dumps(one, indent=1) for path, one in self.chore.results.items()
        }


def find_problem(task_id: str) -> Problem:
    """Return the problem of a task.

    Raises: BadInputError: no task of this set has the id.
    """
    return draw_problem(read_key(task_id, NAME, LEVELS))


@lru_cache(maxsize=256)
def draw_problem(key: TaskKey) -> Problem:
    """Return a problem; equal keys give equal bytes. Each five tasks in a row have the five kinds of the level."""
    rng = key.make_rng(VERSION)
    kinds = KINDS[key.level]
    kind, draw = kinds[key.index % len(kinds)]
    while True:
        chore = draw(rng)
        if choose_split(json.dumps([chore.asked, dict(chore.files), chore.prepare])) == key.split:
            return Problem(task=_make_task(key, kind, chore), kind=kind, chore=chore)


async def prepare_files(box: Sandbox, task: Task | TaskView) -> TerminalInput:
    """Make of the task's texts what a text cannot be; return what the task asks.

    Raises:
        BadInputError: it is no task of this set, or the box lacks a program.
        SandboxError: the box was lost.
    """
    try:
        found = msgspec.convert(task.input, TerminalInput)
    except msgspec.ValidationError as error:
        raise BadInputError(f"task {task.id!r}: is no task of set {NAME!r}, {error}; submit one of it") from error
    if found.prepare:
        ran = await box.exec(["bash", "-e"], stdin=found.prepare.encode(), seconds=_PREPARE_SECONDS)
        if ran.status == "gone":
            raise SandboxError("sandbox: the box was lost while it was prepared; the attempt is made again")
        if ran.exit_code != 0:
            raise BadInputError(
                f"task {task.id!r}: its box cannot be prepared, {ran.stderr.decode('utf-8', 'replace')[-400:]}; add what"
                " it lacks to the image"
            )
    return found


def _make_task(key: TaskKey, kind: str, chore: Chore) -> Task:
    return Task(
        id=key.id,
        run=NAME,
        split=key.split,
        task_type=NAME,
        input=msgspec.to_builtins(TerminalInput(prompt=chore.asked, prepare=chore.prepare)),
        grading={"results": dict(chore.results)},
        scorer="envs.tasksets.terminal.terminal:TerminalScorer",
        rewards={SOLVED: RewardSpec()},
        limits=_LIMITS,
        labels={"taskset": NAME, "taskset_version": VERSION, "level": str(key.level), "kind": kind},
        sandbox=SandboxSpec(),
        files=dict(chore.files),
        artifacts=sorted(chore.results),
        calls_optional=key.split == "eval",
    )
