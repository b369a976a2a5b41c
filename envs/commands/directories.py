"""Directories of attempts: made fresh for each, apart from every project, and removed with all that is in them.

agent-layer-commands-PID-…/     of one worker, locked; the next worker removes those of killed ones
    template/                   the commit that is checked out for attempts
    ATTEMPT/work                working directory, a copy of the template
    ATTEMPT/home, tmp, run      HOME, TMPDIR, XDG_RUNTIME_DIR
"""

import errno
import os
import shutil
import site
import subprocess
import threading
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.infra import (
    hold_owned_directory,
    make_owned_directory,
    make_private,
    remove_stale_directories,
    remove_tree,
)
from agent_layer.schema import content_hash
from agent_layer.settings import program_environment
from envs.commands.left_files import STATE, pack_tree
from envs.commands.plan import CommandOptions

PREFIX: Final = "agent-layer-commands-"
OUTSIDE: Final = frozenset(
    {"CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR", "OLDPWD"}
    | {"GIT_COMMON_DIR", "GIT_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_WORK_TREE"}
)
"""Variables of the worker that would lead its programs out of their attempts' directories."""
_GIT_SECONDS: Final = 600.0
_NO_ROOM: Final = (errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EROFS)
"""Errors for which the machine is to blame, whatever the path."""
_XDG: Final = {
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
}


class AttemptDirectory(NamedTuple):
    """Directories of one attempt."""

    top: Path
    work: Path
    home: Path
    tmp: Path
    runtime: Path

    def variables(self) -> dict[str, str]:
        """Return the variables that lead programs into these directories, and only there."""
        home, tmp = str(self.home), str(self.tmp)
        # what was installed with 'pip install --user' is still found
        own = {"PYTHONUSERBASE": site.getuserbase()} if Path(site.getuserbase()).is_dir() else {}
        return {
            **own,
            "HOME": home,
            "PWD": str(self.work),
            "TMPDIR": tmp,
            "TMP": tmp,
            "TEMP": tmp,
            "XDG_RUNTIME_DIR": str(self.runtime),
            "GIT_CEILING_DIRECTORIES": str(self.top),
            **home_variables(home),
        }


class Template(NamedTuple):
    """What working directories begin as."""

    directory: Path
    commit: str | None
    """Hash of a commit of the repository in ``directory``; None: the directory as it is."""


class CommandDirectories:
    """Makes and removes the directories of a worker's attempts; its methods block.

    Args:
        options: templates, and where directories stay.

    Raises: BadInputError: a template cannot be one.
    """

    def __init__(self, options: CommandOptions) -> None:
        self._work = None if options.workdir is None else find_template(options.workdir)
        self._home = None if options.home is None else Path(options.home).absolute()
        work = self._work.directory if self._work and self._work.commit is None else None
        self._copied = [one for one in (self._home, work) if one is not None]
        for one in self._copied:
            check_tree(one)
        self._keep = None if options.keep is None else Path(options.keep).absolute()
        if self._keep is not None:
            self._check_keep(self._keep)
        self._making = threading.RLock()
        """Attempts make their directories in threads; what all share is made once."""
        self._owned: Path | None = None
        self._lock: int | None = None

    def make(self, name: str) -> AttemptDirectory:
        """Make the directories of an attempt, with the templates' files.

        Raises: SandboxError: the machine has no room for them.
        """
        place = name.replace("/", "_")
        if self._keep is None:
            top = self._own() / place
            remove_tree(top)  # an earlier holder of the same attempt
        else:
            top = make_free_name(self._keep, place)
        made = AttemptDirectory(top, top / "work", top / "home", top / "tmp", top / "run")
        try:
            make_private(top)
            for one in (made.tmp, made.runtime):
                one.mkdir(mode=0o700)
            for template, place in ((self.checkout(), made.work), (self._home, made.home)):
                if template is None:
                    place.mkdir(mode=0o700)
                else:
                    shutil.copytree(template, place, symlinks=True, ignore=shutil.ignore_patterns(STATE))
        except OSError as error:
            remove_tree(top)
            raise SandboxError(
                f"command: the directories of {name} cannot be made, {error}; make room there"
            ) from error
        return made

    def checkout(self) -> Path | None:
        """Return the directory that is copied for each attempt; None: there is none."""
        if self._work is None or self._work.commit is None:
            return None if self._work is None else self._work.directory
        with self._making:
            template = self._own() / "template"
            if not template.exists():
                check_out(self._work, template)
                check_tree(template)
        return template

    @property
    def home(self) -> Path | None:
        """Template of HOME; None: there is none."""
        return self._home

    def remove(self, directory: AttemptDirectory) -> None:
        """Remove an attempt's directories, unless they are to stay."""
        if self._keep is None:
            remove_tree(directory.top)

    def close(self) -> None:
        """Remove everything that is left, once no attempt runs."""
        if self._owned is not None:
            remove_tree(self._owned)
            self._owned = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _check_keep(self, keep: Path) -> None:  # kept: what a directory of attempts may be
        """Make the directory that keeps those of attempts.

        Raises: BadInputError: it cannot be made, or a template would be copied into itself.
        """
        place = keep.resolve()
        for template in self._copied:
            top = template.resolve()
            if place.is_relative_to(top) and STATE not in place.relative_to(top).parts:
                raise BadInputError(
                    f"command: --keep-workdir {keep} lies in the template {template}, which would be copied into"
                    f" itself; name a directory elsewhere, or below its {STATE}"
                )
        try:
            make_private(keep)
        except OSError as error:
            raise BadInputError(
                f"command: --keep-workdir {keep} cannot be made, {error.strerror}; name another directory"
            ) from error

    def _own(self) -> Path:
        with self._making:
            if self._owned is None:
                remove_stale_directories(PREFIX)
                self._owned = make_owned_directory(PREFIX)
                self._lock = hold_owned_directory(self._owned)
            return self._owned


def home_variables(home: str) -> dict[str, str]:
    """Return the variables for the parts of a HOME."""
    return {name: f"{home}/{below}" for name, below in _XDG.items()}


def make_free_name(keep: Path, name: str) -> Path:
    """Make a directory of this name, or of the next with a number: workers of other projects may have equal attempts.

    Raises: SandboxError: the machine has no room for it.
    """
    for number in count(1):
        top = keep / (name if number == 1 else f"{name}.{number}")
        try:
            top.mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise SandboxError(f"command: {top} cannot be made, {error}; make room there") from error
        return top
    raise AssertionError("numbers do not end")


def find_template(name: str) -> Template:
    """Return the template of this name: a directory, or ``REPOSITORY@COMMIT``.

    Raises: BadInputError: there is none, or the repository has no such commit.
    """
    directory = Path(name).absolute()
    if directory.is_dir():
        return Template(directory, None)
    repository, mark, commit = name.rpartition("@")
    if not (mark and commit and Path(repository).is_dir()):
        raise BadInputError(
            f"command: expected --workdir as a directory or as REPOSITORY@COMMIT, found {name!r}; there is no such"
            " directory"
        )
    directory = Path(repository).absolute()
    found = _run_git(["-C", str(directory), "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"])
    if found.returncode:
        why = found.stderr.strip() or f"there is no commit {commit!r}"
        raise BadInputError(f"command: --workdir {name}: {why}; see 'git log' in {repository}")
    return Template(directory, found.stdout.strip())


def hash_template(name: str) -> str:
    """Return a hash that templates with equal files share; of a repository, its commit.

    Raises: BadInputError: there is no such template.
    """
    template = find_template(name)
    return template.commit or content_hash(pack_tree(template.directory))


def check_out(template: Template, place: Path) -> None:
    """Make a repository with this commit and its history alone: later commits could hold what the agent is to find.

    Raises: BadInputError: git refuses.
    """
    at = ["-C", str(place)]
    steps = (
        ["init", "--quiet", "--initial-branch=main", str(place)],
        [*at, "fetch", "--quiet", "--no-tags", str(template.directory), str(template.commit)],
        [*at, "reset", "--quiet", "--hard", str(template.commit)],
    )
    for step in steps:
        if (done := _run_git(step)).returncode:
            remove_tree(place)
            raise BadInputError(
                f"command: 'git {' '.join(step)}' fails, {done.stderr.strip()[-500:]}; see whether it runs by hand, or"
                " name a directory"
            )
    (place / ".git" / "FETCH_HEAD").unlink(missing_ok=True)  # it names the repository


def check_tree(directory: Path) -> None:
    """Check that a directory can be copied for each attempt without sharing a file.

    Raises: BadInputError: it does not exist, a link leads out of it, or it holds a pipe, socket or device.
    """
    if not directory.is_dir():
        raise BadInputError(f"command: expected a directory as template, found {directory}; there is none")
    top = directory.resolve()
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name != STATE]
        for path in (Path(folder, name) for name in (*folders, *files)):
            if path.is_symlink():
                if path.readlink().is_absolute() or not path.resolve().is_relative_to(top):
                    raise BadInputError(
                        f"command: template {directory}: the link {path.relative_to(top)} leads out of it, so that"
                        " attempts would share what it leads to; put a copy in its place, or take what git tracks"
                        " (--workdir REPOSITORY@COMMIT)"
                    )
            elif not (path.is_file() or path.is_dir()):
                raise BadInputError(
                    f"command: template {directory}: {path.relative_to(top)} is no file, folder or link; remove it"
                )


def write_files(top: Path, files: Mapping[str, str], what: str) -> None:
    """Write files below a directory.

    Args:
        top: the directory.
        files: texts by path.
        what: names the files in errors.

    Raises:
        BadInputError: a path leads out of the directory, or has no place there.
        SandboxError: the machine has no room for them.
    """
    root = top.resolve()
    for path, text in files.items():
        whole = (root / path).resolve()
        if ".." in Path(path).parts or not whole.is_relative_to(root) or whole == root:
            raise BadInputError(
                f"{what} {path!r} would lie outside the attempt's directory; write a path below it, without '..'"
            )
        try:
            whole.parent.mkdir(parents=True, exist_ok=True)
            whole.write_text(text, encoding="utf-8")
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise SandboxError(f"{what} {path!r} cannot be written, {error.strerror}; make room there") from error
            raise BadInputError(f"{what} {path!r} cannot be written, {error.strerror}; choose another path") from error


def _run_git(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run git, whatever repository the worker itself was started in: a hook of git has its GIT_DIR set.

    Raises: BadInputError: git is missing, or takes too long.
    """
    try:
        return subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=False, timeout=_GIT_SECONDS, errors="replace",
            env={name: value for name, value in program_environment().items() if name not in OUTSIDE},
        )  # fmt: skip
    except FileNotFoundError as error:
        raise BadInputError("command: git is missing, which a commit as --workdir needs; install git") from error
    except subprocess.TimeoutExpired as error:
        raise BadInputError(
            f"command: 'git {' '.join(arguments)}' takes longer than {_GIT_SECONDS:g} s; name a directory"
        ) from error
