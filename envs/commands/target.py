"""A command as an agent: each attempt has directories of its own, and ends with everything that it started."""

import asyncio
import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.schema import Task
from agent_layer.settings import SANDBOX_VARIABLE, agent_environment, program_environment
from envs.commands.boxed import BOX_HOME, box_variables, fill_box, run_in_box
from envs.commands.changes import Baseline, run_git_here, run_git_in
from envs.commands.directories import OUTSIDE, AttemptDirectory, CommandDirectories, write_files
from envs.commands.left_files import check_patterns, collect_files
from envs.commands.plan import (
    CommandEnd,
    CommandOptions,
    CommandPlace,
    CommandPlan,
    PlanCommand,
    ReadResult,
    TaskDefaults,
    plan_always,
    read_last_line,
)
from envs.commands.process import run_process
from envs.commands.tunnel import open_tunnel
from envs.commands.words import FoundWords, find_words
from envs.sandbox import AttemptSandbox, CollectedFiles
from tracer import clear_secrets, enter_environment
from tracer.core import Rollout

START_VARIABLE: Final = "AGENT_LAYER_START_DIR"
"""Directory in which the worker was started, for commands that look for files there."""
_OURS: Final = "AGENT_LAYER_"
"""Begins the names of the worker's settings, keys among them."""
_BOX_BASELINE: Final = "/tmp/baseline"


class _Attempt:
    """What an attempt has until its files are taken.

    Args:
        making: makes its directories, to the end even if the attempt is stopped meanwhile; None: it has a box.
    """

    def __init__(self, making: "asyncio.Task[AttemptDirectory] | None") -> None:
        self.making = making
        self.is_running = making is not None
        """Whether its command may still write into the directories."""
        self.directory: AttemptDirectory | None = None
        """None: it has a box, or it was stopped before."""
        self.box_workdir: str | None = None
        """None: it has no box, or its command has not begun."""
        self.baseline: Baseline | None = None
        """None: no diff was asked for, or the command has not begun."""
        self.is_filled = False
        """Whether its templates and the task's files are in place."""


class CommandTarget:
    """Runs a command per attempt.

    Args:
        plan: what runs: the same arguments in every attempt, or a function that returns the plan of one.
        options: what holds for all attempts.
        read_result: makes the result of how it ended.
        defaults: what its tasks are, where they do not say it.

    Raises:
        BadInputError: a template cannot be one, an artifact lies outside the working directory, or a variable to pass
            is not set.
    """

    def __init__(
        self,
        plan: PlanCommand | Sequence[str],
        options: CommandOptions | None = None,
        read_result: ReadResult = read_last_line,
        defaults: TaskDefaults | None = None,
    ) -> None:
        self.options = options or CommandOptions()
        check_patterns([*self.options.artifacts, *([self.options.diff] if self.options.diff else [])])
        self._directories = CommandDirectories(self.options)
        self._is_typed = not callable(plan)
        """Its words are those of a command line, typed in the start directory."""
        self._plan = plan if callable(plan) else plan_always(plan)
        self._read_result = read_result
        self._defaults = defaults or TaskDefaults()
        self._passed = _read_passed(self.options.env)
        self._start = Path.cwd()
        self._attempts: dict[str, _Attempt] = {}
        """By trajectory."""

    @property
    def is_boxed(self) -> bool:
        """Whether attempts run in a sandbox."""
        return self.options.box is not None

    def complete_task(self, task: Task) -> Task:
        """Return the task with what it leaves to its agent: sampling where it is for training, and limits."""
        limits = {name: value for name, value in msgspec.structs.asdict(task.limits).items() if value is not None}
        sampling = self._defaults.sampling if task.split == "train" else {}
        return msgspec.structs.replace(
            task,
            sampling={**sampling, **task.sampling},
            limits=msgspec.structs.replace(self._defaults.limits, **limits),
        )

    async def __call__(self, task: Task, rollout: Rollout) -> object:
        """Run the command.

        Raises:
            AgentFailedError: its exit status is not 0.
            BadInputError: no such program exists, or a file has no place.
            EndedError: it ended as the policy would have it, in its box.
        """
        return self._read_result(await self.run(task, rollout, self._plan))

    async def run(self, task: Task, rollout: Rollout, plan: PlanCommand, *, continues: bool = False) -> CommandEnd:
        """Run a plan in the attempt's box or directories.

        Args:
            task: its files are written there.
            rollout: the attempt.
            plan: what runs.
            continues: where an earlier plan of this attempt has left box or directories, as they are; else they begin.

        Raises: BadInputError, EndedError: as a call. SandboxError: the box was lost.
        """
        name = rollout.trajectory_id
        if isinstance(rollout.box, AttemptSandbox) and self.is_boxed:
            attempt = self._attempts[name] = self._attempts[name] if continues else _Attempt(None)
            return await self._run_boxed(task, rollout, rollout.box, attempt, plan)
        if self.options.is_shared:
            return await self._run_here(task, rollout, None, plan)
        if continues:
            attempt = self._attempts[name]
        else:
            making = asyncio.create_task(asyncio.to_thread(self._directories.make, name))
            attempt = self._attempts[name] = _Attempt(making)
        assert attempt.making is not None
        attempt.is_running = True
        try:
            attempt.directory = await asyncio.shield(attempt.making)
            return await self._run_here(task, rollout, attempt, plan)
        finally:
            attempt.is_running = False

    async def write_diff(self, trajectory_id: str) -> None:
        """Write the diff of an attempt into its box, where it has one."""
        attempt, diff = self._attempts.get(trajectory_id), self.options.diff
        if attempt is not None and attempt.box_workdir is not None and attempt.baseline is not None:
            with suppress(OSError, AgentLayerError):  # then it is missing: the agent's doing, or the box is lost
                await attempt.baseline.write_diff(f"{attempt.box_workdir}/{diff}")

    async def collect(self, trajectory_id: str, paths: Sequence[str], max_bytes: int) -> CollectedFiles:
        """Take the files that an attempt left in its directory, and remove it.

        Args:
            trajectory_id: the attempt, which has ended.
            paths: paths or patterns below the working directory; the diff comes beside them.
            max_bytes: bound of all files together.

        Raises: OSError: they cannot be read.
        """
        attempt = self._attempts.get(trajectory_id)
        if attempt is None or attempt.directory is None:
            return CollectedFiles()
        added = dict[str, Path]()
        try:
            if attempt.baseline is not None and self.options.diff is not None:
                added[self.options.diff] = attempt.directory.top / "diff"
                await attempt.baseline.write_diff(str(added[self.options.diff]))
            if not paths and not added:
                return CollectedFiles()
            return await collect_files(attempt.directory.work, paths, max_bytes, added)
        finally:
            await self.remove(trajectory_id)

    async def remove(self, trajectory_id: str) -> None:
        """Remove an attempt's directories, if it has any and its command has ended; a later call removes the others."""
        attempt = self._attempts.get(trajectory_id)
        if attempt is None or attempt.is_running:
            return
        del self._attempts[trajectory_id]
        if attempt.making is not None:
            with suppress(AgentLayerError):
                await asyncio.to_thread(self._directories.remove, await attempt.making)

    async def close(self) -> None:
        """Remove all directories."""
        for trajectory_id, attempt in list(self._attempts.items()):
            attempt.is_running = False
            await self.remove(trajectory_id)
        await asyncio.to_thread(self._directories.close)

    async def _run_here(
        self, task: Task, rollout: Rollout, attempt: _Attempt | None, make_plan: PlanCommand
    ) -> CommandEnd:
        """Run on this machine, in the attempt's directory or, without one, where the worker runs."""
        directory = None if attempt is None else attempt.directory
        inherited = clear_secrets(agent_environment()) | self._passed
        variables = enter_environment(inherited, rollout) | command_variables(task, rollout)
        variables |= {START_VARIABLE: str(self._start)}
        if directory is not None:
            inside = {name: value for name, value in variables.items() if name not in OUTSIDE}
            variables = inside | directory.variables()
        home = variables.get("HOME", "")
        plan = make_plan(_describe_place(task, rollout, home, str(directory.work if directory else self._start)))
        stdin = None
        if directory is None and (plan.home_files or plan.files or plan.stdin):
            raise BadInputError(
                f"command {plan.argv[0]!r}: its plan writes files, for which --share-workdir has no place; leave that"
                " option out"
            )
        if attempt is not None and directory is not None:
            files = {} if attempt.is_filled or task.sandbox is not None else task.files  # else they are the sandbox's
            stdin = await asyncio.to_thread(_fill_directory, directory, files, plan)
            attempt.is_filled = True
            found = self._look_up(plan, self._directories.checkout())
            plan = msgspec.structs.replace(plan, argv=found.argv)
            if found.needs_modules:
                paths = [str(self._start), *filter(None, [variables.get("PYTHONPATH")])]
                variables |= {"PYTHONPATH": os.pathsep.join(paths)}
            if self.options.diff is not None and attempt.baseline is None:
                baseline = Baseline(run_git_here, str(directory.top / "baseline"), str(directory.work))
                await baseline.record()
                attempt.baseline = baseline
        variables = _change_variables(variables, plan)
        name = plan.argv[0]
        if (program := shutil.which(name, path=variables.get("PATH"))) is None:
            raise BadInputError(f"command {name!r}: there is no such program; check its path")
        return await run_process(
            [program, *plan.argv[1:]],
            name=Path(name).name,
            env=variables,
            cwd=None if directory is None else directory.work,
            stdin=stdin,
            mark=None if directory is None else directory.tmp,
        )

    async def _run_boxed(
        self, task: Task, rollout: Rollout, box: AttemptSandbox, attempt: _Attempt, make_plan: PlanCommand
    ) -> CommandEnd:
        """Run in the attempt's box, which reaches the rollout's gateway and nothing else."""
        async with open_tunnel(box, rollout.base_url or "") as address:
            inside = dataclasses.replace(rollout, base_url=address, box=None)
            workdir = box.spec.workdir
            plan = make_plan(_describe_place(task, inside, BOX_HOME, workdir, is_boxed=True))
            work = None if attempt.is_filled else await asyncio.to_thread(self._directories.checkout)
            found = self._look_up(plan, work)
            if found.files or found.needs_modules:
                named = found.files[0] if found.files else "a module of the start directory"
                raise BadInputError(
                    f"command: {named} is not in the sandbox, which sees no file of {self._start}; name that directory"
                    " with --workdir, so that each attempt has a copy"
                )
            home = None if attempt.is_filled else self._directories.home
            await fill_box(box, work=work, home=home, files=task.files, plan=plan)
            attempt.is_filled = True
            if self.options.diff is not None and attempt.baseline is None:
                baseline = Baseline(run_git_in(box), _BOX_BASELINE, workdir)
                await baseline.record()
                attempt.baseline, attempt.box_workdir = baseline, workdir
            given = self._passed | command_variables(task, inside) | box_variables(box.spec)
            described = enter_environment(given, inside)
            variables = _change_variables(described, plan)
            return await run_in_box(box, plan, name=Path(plan.argv[0]).name, env=variables)

    def _look_up(self, plan: CommandPlan, work: Path | None) -> FoundWords:
        """Find the files of the start directory that a typed command line names."""
        if not self._is_typed:
            return FoundWords(plan.argv, [], needs_modules=False)
        return find_words(plan.argv, self._start, lambda path: work is not None and (work / path).exists())


def _read_passed(names: Sequence[str]) -> dict[str, str]:  # kept: which may be passed
    """Return the variables of this process that attempts are to get.

    Raises: BadInputError: one is not set, or is the operator's.
    """
    known = program_environment()
    for name in names:
        if name not in known or name.startswith(_OURS):
            why = "it is the worker's own" if name in known else "it is not set here"
            raise BadInputError(
                f"command: --env {name}: {why}; set it where the worker starts, or leave the option out"
            )
    return {name: known[name] for name in names}


def _describe_place(task: Task, rollout: Rollout, home: str, workdir: str, *, is_boxed: bool = False) -> CommandPlace:
    return CommandPlace(
        task=task.view(),
        base_url=rollout.base_url or "",
        api_key=rollout.api_key or "",
        model=rollout.model or "",
        home=home,
        workdir=workdir,
        is_boxed=is_boxed,
    )


def _fill_directory(directory: AttemptDirectory, files: Mapping[str, str], plan: CommandPlan) -> Path | None:
    """Write an attempt's files; return that of its standard input, None: it reads nothing."""
    write_files(directory.work, files, "the task's file")
    write_files(directory.work, plan.files, "file")
    write_files(directory.home, plan.home_files, "file of HOME")
    if not plan.stdin:
        return None
    stdin = directory.top / "stdin"
    stdin.write_text(plan.stdin, encoding="utf-8")
    return stdin


def _change_variables(variables: Mapping[str, str], plan: CommandPlan) -> dict[str, str]:
    changed = {**variables, **plan.env}
    return {name: value for name, value in changed.items() if value is not None}


def command_variables(task: Task, rollout: Rollout) -> dict[str, str]:
    """Return the variables that describe the task to a command; they hold nothing of the grading."""
    view = task.view()
    visible = {"id": view.id, "task_type": view.task_type, "input": view.input, "seed": view.seed}
    box = rollout.box
    reach = {SANDBOX_VARIABLE: box.address} if isinstance(box, AttemptSandbox) else {}
    return reach | {"AGENT_LAYER_TASK": msgspec.json.encode(visible).decode()}
