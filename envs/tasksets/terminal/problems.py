"""The problems: chores by seed, level and index. The id of a task names how it is drawn again."""

import json
from functools import lru_cache
from typing import Final

import msgspec

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.schema import Limits, RewardSpec, Task, content_hash
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
_SECONDS: Final = 60.0


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
    kind, draw = kinds[key.number % len(kinds)]
    while True:
        chore = draw(rng)
        content = json.dumps([chore.instruction, dict(chore.files), chore.prepare])
        if all(chore.results.values()) and choose_split(content) == key.split:  # an empty result is there untouched
            return Problem(task=_make_task(key, kind, chore, content), kind=kind, chore=chore)


async def prepare_files(box: Sandbox, task_id: str) -> None:
    """Make of the task's texts, which the box has, what a text cannot be.

    Raises:
        BadInputError: it is no task of this set, or the box lacks a program.
        SandboxError: the box was lost.
    """
    await run_program(box, find_problem(task_id).chore.prepare, f"task {task_id!r}: its box cannot be prepared")


async def run_program(box: Sandbox, program: str, failure: str) -> None:
    """Run a program of ours in bash.

    Raises:
        BadInputError: it ends with another status than 0.
        SandboxError: the box was lost.
    """
    ran = await box.exec(["bash", "-e"], stdin=program.encode(), seconds=_SECONDS)
    if ran.status == "gone":
        raise SandboxError("sandbox: the box was lost while a program of the chore ran; the attempt is made again")
    if ran.exit_code != 0:
        reason = ran.stderr.decode("utf-8", "replace")[-400:] or ran.status
        raise BadInputError(f"{failure}, {reason}; add what the image lacks")


def _make_task(key: TaskKey, kind: str, chore: Chore, content: str) -> Task:
    return Task(
        id=key.id,
        run=NAME,
        split=key.split,
        task_type=NAME,
        input=chore.instruction,
        seed=int(content_hash(content.encode())[:8], 16),  # tasks differ where only what is prepared does
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
