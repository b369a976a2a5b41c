"""A command as an agent: each attempt has directories of its own, and ends with everything that it started."""

import asyncio
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import Task
from agent_layer.settings import SANDBOX_VARIABLE, agent_environment
from envs.commands.changes import Baseline
from envs.commands.directories import AttemptDirectory, CommandDirectories, write_files
from envs.commands.left_files import check_patterns, collect_files
from envs.commands.plan import (
    CommandOptions,
    CommandPlace,
    CommandPlan,
    PlanCommand,
    ReadResult,
    plan_always,
    read_last_line,
)
from envs.commands.process import run_process
from envs.commands.words import find_words
from envs.sandbox import AttemptSandbox, CollectedFiles
from tracer import rollout_variables
from tracer.core import Rollout

START_VARIABLE = "AGENT_LAYER_START_DIR"
"""Directory in which the worker was started, for commands that look for files there."""


class _Attempt:
    """What a running attempt has."""

    def __init__(self, directory: AttemptDirectory) -> None:
        self.directory = directory
        self.baseline: Baseline | None = None


class CommandTarget:
    """Runs a command per attempt.

    Args:
        plan: what runs: the same arguments in every attempt, or a function that returns the plan of one.
        options: what holds for all attempts.
        read_result: makes the result of how it ended.

    Raises: BadInputError: a template cannot be one, or an artifact lies outside the working directory.
    """

    def __init__(
        self,
        plan: PlanCommand | Sequence[str],
        options: CommandOptions | None = None,
        read_result: ReadResult = read_last_line,
    ) -> None:
        self.options = options or CommandOptions()
        check_patterns([*self.options.artifacts, *([self.options.diff] if self.options.diff else [])])
        self._directories = CommandDirectories(self.options)
        self._making = threading.Lock()
        self._is_typed = not callable(plan)
        """Its words are those of a command line, typed in the start directory."""
        self._plan = plan if callable(plan) else plan_always(plan)
        self._read_result = read_result
        self._start = Path.cwd()
        self._attempts: dict[str, _Attempt] = {}
        """By trajectory."""

    async def __call__(self, task: Task, rollout: Rollout) -> object:
        """Run the command.

        Raises:
            AgentFailedError: its exit status is not 0.
            BadInputError: no such program exists, or a file has no place.
        """
        if self.options.is_shared:
            return await self._run(task, rollout, None)
        attempt = self._attempts[rollout.trajectory_id] = _Attempt(await asyncio.to_thread(self._make, rollout))
        return await self._run(task, rollout, attempt)

    async def collect(self, trajectory_id: str, artifacts: Sequence[str], max_bytes: int) -> CollectedFiles:
        """Take the files that an attempt left, and remove its directories.

        Args:
            trajectory_id: the attempt, which has ended.
            artifacts: paths or patterns below the working directory.
            max_bytes: of all files together.

        Raises: OSError: they cannot be read.
        """
        if (attempt := self._attempts.get(trajectory_id)) is None:
            return CollectedFiles()
        paths, diff, work = [*artifacts], self.options.diff, attempt.directory.work
        try:
            if attempt.baseline is not None and diff is not None:
                (work / diff).parent.mkdir(parents=True, exist_ok=True)
                await asyncio.to_thread(attempt.baseline.write_diff, attempt.directory.top / "diff")
                await asyncio.to_thread(os.replace, attempt.directory.top / "diff", work / diff)
                paths.append(diff)
            return await collect_files(work, paths, max_bytes) if paths else CollectedFiles()
        finally:
            await self.remove(trajectory_id)

    async def remove(self, trajectory_id: str) -> None:
        """Remove an attempt's directories, if it has any."""
        if (attempt := self._attempts.pop(trajectory_id, None)) is not None:
            await asyncio.to_thread(self._directories.remove, attempt.directory)

    async def close(self) -> None:
        """Remove all directories."""
        for trajectory_id in list(self._attempts):
            await self.remove(trajectory_id)
        await asyncio.to_thread(self._directories.close)

    def _make(self, rollout: Rollout) -> AttemptDirectory:
        with self._making:  # the template is checked out once
            self._directories.checkout()
        return self._directories.make(rollout.trajectory_id)

    async def _run(self, task: Task, rollout: Rollout, attempt: _Attempt | None) -> object:
        directory = None if attempt is None else attempt.directory
        variables = agent_environment() | command_variables(task, rollout) | {START_VARIABLE: str(self._start)}
        if directory is not None:
            variables |= directory.variables()
        place = CommandPlace(
            task=task.view(),
            base_url=rollout.base_url or "",
            api_key=rollout.api_key or "",
            model=rollout.model or "",
            home=str(directory.home) if directory else variables.get("HOME", ""),
            workdir=str(directory.work if directory else self._start),
            is_boxed=False,
        )
        plan = self._plan(place)
        stdin = None
        if attempt is not None and directory is not None:
            stdin = await asyncio.to_thread(self._prepare, attempt, task, plan)
            plan, variables = self._find_words(plan, variables)
        variables |= {name: value for name, value in plan.env.items() if value is not None}
        for name in [name for name, value in plan.env.items() if value is None]:
            variables.pop(name, None)
        name = plan.argv[0]
        if (program := shutil.which(name, path=variables.get("PATH"))) is None:
            raise BadInputError(f"command {name!r}: there is no such program; check its path")
        end = await run_process(
            [program, *plan.argv[1:]],
            name=Path(name).name,
            env=variables,
            cwd=None if directory is None else directory.work,
            stdin=stdin,
            mark=None if directory is None else directory.tmp,
        )
        return self._read_result(end)

    def _prepare(self, attempt: _Attempt, task: Task, plan: CommandPlan) -> Path | None:
        """Write the attempt's files; return that of its standard input."""
        directory = attempt.directory
        if task.sandbox is None:  # else they are the sandbox's
            write_files(directory.work, task.files, "the task's file")
        write_files(directory.work, plan.files, "file")
        write_files(directory.home, plan.home_files, "file of HOME")
        if self.options.diff is not None:
            attempt.baseline = Baseline(directory.top / "baseline", directory.work)
        if not plan.stdin:
            return None
        stdin = directory.top / "stdin"
        stdin.write_text(plan.stdin, encoding="utf-8")
        return stdin

    def _find_words(self, plan: CommandPlan, variables: dict[str, str]) -> tuple[CommandPlan, dict[str, str]]:
        if not self._is_typed:
            return plan, variables
        template = self._directories.checkout()
        found = find_words(plan.argv, self._start, lambda path: template is not None and (template / path).exists())
        if found.needs_modules:
            paths = [str(self._start), *filter(None, [variables.get("PYTHONPATH")])]
            variables = variables | {"PYTHONPATH": os.pathsep.join(paths)}
        return msgspec.structs.replace(plan, argv=found.argv), variables


def command_variables(task: Task, rollout: Rollout) -> dict[str, str]:
    """Return the variables that describe the attempt to a command; they hold nothing of the grading."""
    view = task.view()
    visible = {"id": view.id, "task_type": view.task_type, "input": view.input, "seed": view.seed}
    box = rollout.box
    reach = {SANDBOX_VARIABLE: box.address} if isinstance(box, AttemptSandbox) else {}
    return rollout_variables(rollout) | reach | {"AGENT_LAYER_TASK": msgspec.json.encode(visible).decode()}
