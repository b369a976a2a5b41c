"""What changed in a working directory, as git prints it.

Git's repository for this lies outside of the directory: what an agent does to a ``.git`` of its own has no effect, and
no configuration, hook or filter of it runs.
"""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.schema.sandbox import Sandbox

GIT_SECONDS: Final = 300.0
_VARIABLES: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C.UTF-8",
}
_QUIET: Final = ["-c", "core.autocrlf=false", "-c", "core.safecrlf=false", "-c", "advice.addEmbeddedRepo=false"]
_DIFF: Final = ["diff", "--cached", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"]

RunGit: TypeAlias = Callable[[Sequence[str]], Awaitable[tuple[int, str, str]]]
"""Runs git; returns its exit status, output and errors. Raises: OSError: it took too long."""


class Baseline:
    """A working directory as it was before the agent ran.

    Args:
        run: runs git where the directory is.
        repository: a path outside of the directory.
        work: the directory.
    """

    def __init__(self, run: RunGit, repository: str, work: str) -> None:
        self._run = run
        self._at = [*_QUIET, f"--git-dir={repository}", f"--work-tree={work}"]
        self._tree = ""

    async def record(self) -> None:
        """Record what is in the directory.

        Raises: BadInputError: git is missing. SandboxError: it failed, which no agent has caused yet.
        """
        try:
            await self._git(["init", "--quiet"])
            await self._git(["add", "--all", "--force"])
            self._tree = (await self._git(["write-tree"])).strip()
        except OSError as error:
            raise SandboxError(f"command: {error}; make room for a copy of what --diff compares") from error

    async def write_diff(self, file: str) -> None:
        """Write what changed since; new files count unless the directory's ``.gitignore`` leaves them out.

        Raises: OSError: git failed.
        """
        await self._git(["add", "--update"])  # of what was there also what is ignored now
        await self._git(["add", "--all"])
        await self._git([*_DIFF, f"--output={file}", self._tree])

    async def _git(self, arguments: Sequence[str]) -> str:
        status, output, errors = await self._run([*self._at, *arguments])
        if status == _NOT_FOUND:
            raise BadInputError("command: git is missing, which --diff needs; install git where the command runs")
        if status != 0:
            raise OSError(f"git {arguments[0]}: {errors.strip()[-500:]}")
        return output


_NOT_FOUND: Final = 127


async def run_git_here(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run git on this machine. Contract: ``RunGit``."""

    def run() -> tuple[int, str, str]:
        try:
            done = subprocess.run(
                ["git", *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                env=_VARIABLES,
                cwd="/",
                timeout=GIT_SECONDS,
            )
        except FileNotFoundError:
            return _NOT_FOUND, "", ""
        except subprocess.TimeoutExpired as error:
            raise OSError(f"git took longer than {GIT_SECONDS:g} s") from error
        return done.returncode, done.stdout, done.stderr

    return await asyncio.to_thread(run)


def run_git_in(box: Sandbox) -> RunGit:
    """Return what runs git in a box: what an agent does to it there changes nothing but the agent's own diff."""

    async def run(arguments: Sequence[str]) -> tuple[int, str, str]:
        done = await box.exec(["git", *arguments], cwd="/", env=_VARIABLES, seconds=GIT_SECONDS)
        status = done.exit_code if done.exit_code is not None else 1
        return status, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace") or done.status

    return run
