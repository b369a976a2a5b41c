"""What changed in a working directory, as git prints it.

Git's repository for this lies outside of the directory: what an agent does to a ``.git`` of its own has no effect, and
no configuration, hook or filter of it runs.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent_layer.errors import BadInputError

_SECONDS: Final = 300.0
_VARIABLES: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C.UTF-8",
}
_QUIET: Final = ["-c", "core.autocrlf=false", "-c", "core.safecrlf=false", "-c", "advice.addEmbeddedRepo=false"]
_DIFF: Final = ["diff", "--cached", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"]


class Baseline:
    """A working directory as it was before the agent ran; its methods block.

    Args:
        repository: a path outside of the directory.
        work: the directory.

    Raises: BadInputError: git is missing. OSError: it failed.
    """

    def __init__(self, repository: Path, work: Path) -> None:
        if shutil.which("git", path=_VARIABLES["PATH"]) is None:
            raise BadInputError("command: git is missing, which --diff needs; install git")
        self._repository = repository
        self._work = work
        self._git(["init", "--quiet", "--bare", str(repository)])
        self._git(["add", "--all", "--force"])
        self._tree = self._git(["write-tree"]).strip()

    def write_diff(self, file: Path) -> None:
        """Write what changed since; new files count unless the directory's ``.gitignore`` leaves them out.

        Raises: OSError: git failed.
        """
        self._git(["add", "--update"])  # of what was there also what is ignored now
        self._git(["add", "--all"])
        self._git([*_DIFF, f"--output={file}", self._tree])

    def _git(self, arguments: Sequence[str]) -> str:
        at = [f"--git-dir={self._repository}", f"--work-tree={self._work}"]
        try:
            done = subprocess.run(
                ["git", *_QUIET, *at, *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                env=_VARIABLES,
                cwd=self._work,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(f"git {arguments[0]} took longer than {_SECONDS:g} s") from error
        if done.returncode != 0:
            raise OSError(f"git {arguments[0]}: {done.stderr.strip()[-500:]}")
        return done.stdout
