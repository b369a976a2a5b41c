"""Installation of a harness at its pinned version, from a lock with hashes, into the directory.

npm brings a package with its lock (``npm ci``) into a folder of its own; a PyPI package gets a virtual environment with
an interpreter of its own version: this process's, one on PATH, or one that uv has or brings. What was installed is
started once. A folder counts once its marker is written, after everything else.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.infra import hold_alone, make_private, replace_file
from agent_layer.schema import content_hash
from agent_layer.settings import Settings, program_environment
from envs.harnesses.harness import Harness

_MARKER = "installed.json"
_INSTALL_SECONDS = 1800.0
_ASK_SECONDS = 30.0
_TAIL_LENGTH = 800
_LEAST_NODE = 20
_NEEDED_NODE = f"node and npm (https://nodejs.org, {_LEAST_NODE} or later)"


class _Marker(msgspec.Struct, frozen=True, kw_only=True):
    """What was installed."""

    version: str
    lock_hash: str
    interpreter: str
    """Version of node or Python that it was installed with."""


class Installation:
    """The folder of one harness.

    Args:
        settings: name the directory.
        harness: the declaration.
    """

    def __init__(self, settings: Settings, harness: Harness) -> None:
        self._harness = harness
        self.folder = (settings.dir / "harnesses").resolve() / harness.name  # a sandbox has no links to it

    @property
    def program(self) -> Path:
        """Return the path of its executable."""
        if self._harness.installer == "npm":
            return self.folder / "node_modules" / ".bin" / self._harness.program
        return self.folder / "bin" / self._harness.program

    @property
    def interpreter(self) -> str | None:
        """Return the version of node or Python that it was installed with; None: it is not installed."""
        marker = self._read()
        return marker and marker.interpreter

    def find_fault(self) -> str | None:
        """Return why it cannot be started, with what to do; None: it is installed at its pinned version."""
        remedy = f"run 'agent-layer harnesses install {self._harness.name}'"
        marker = self._read()
        if marker is None:
            return f"is not installed; {remedy}"
        if (marker.version, marker.lock_hash) != (self._harness.version, self._hash_lock()):
            return (
                f"is installed at version {marker.version} of another lock, expected {self._harness.version}; {remedy}"
            )
        if not self.program.exists():
            return f"lacks its program {self.program}; {remedy}"
        python = self.folder / "bin" / "python"
        if python.is_symlink() and not python.exists():
            return f"lacks its interpreter, {marker.interpreter}, which was removed; {remedy}"
        if self._harness.installer == "npm" and shutil.which("node") is None:
            return f"needs {_NEEDED_NODE} on PATH, found none; install it"
        return None

    def find_missing(self) -> str | None:
        """Return what this machine lacks for an installation; None: nothing, as far as can be seen from here."""
        if self._harness.installer == "npm":
            return None if shutil.which("npm") and shutil.which("node") else _NEEDED_NODE
        found, faults = _look_for_python(self._harness.python)
        return None if found else "; ".join([f"Python {self._harness.python}", *faults])

    def require_program(self) -> Path:
        """Return the path of its executable.

        Raises: BadInputError: it is not installed at its pinned version.
        """
        if fault := self.find_fault():
            raise BadInputError(f"harness {self._harness.name!r}: {fault}")
        return self.program

    def list_mounts(self) -> list[str]:
        """Return the folders that it needs in a sandbox: its own, and that of another interpreter.

        Raises: BadInputError: these would show HOME, with keys in it.
        """
        name = shutil.which("node") if self._harness.installer == "npm" else str(self.folder / "bin" / "python")
        interpreter = Path(name or "/usr/bin/node").resolve().parents[1]
        if Path.home().resolve().is_relative_to(interpreter):
            raise BadInputError(
                f"harness {self._harness.name!r}: a sandbox needs all of {interpreter} for its interpreter, and HOME"
                " lies there; install that in a folder of its own, or add --box none: the agent then has this user's"
                " rights"
            )
        return [str(self.folder), *([] if interpreter.is_relative_to("/usr") else [str(interpreter)])]

    def install(self, report: Callable[[str], None]) -> None:
        """Install it, in place of what the folder has.

        Args:
            report: receives what it does.

        Raises: BadInputError: its interpreter is missing, or another process installs it. AgentFailedError: it failed.
        """
        harness = self._harness
        lock = self.folder.parent / f"{harness.name}.lock"
        refusal = f"harness {harness.name!r}: another process installs it; wait for its end"
        with hold_alone(lock, refusal):
            report(f"{harness.name}: {harness.package} {harness.version} from {harness.installer}")
            lock_hash = self._hash_lock()
            install = self._install_npm if harness.installer == "npm" else self._install_pypi
            marker = _Marker(version=harness.version, lock_hash=lock_hash, interpreter=install())
            self._start_once()
            replace_file(self.folder / _MARKER, msgspec.json.encode(marker))

    def _install_npm(self) -> str:
        npm, node = shutil.which("npm"), shutil.which("node")
        if npm is None or node is None:
            raise BadInputError(f"harness {self._harness.name!r}: needs {_NEEDED_NODE} on PATH, found none; install it")
        self._clear()
        version = self._run([node, "--version"]).strip()
        if int(version.removeprefix("v").partition(".")[0]) < _LEAST_NODE:
            raise BadInputError(
                f"harness {self._harness.name!r}: needs {_NEEDED_NODE} on PATH, found {version}; install a later one"
            )
        for name in ("package.json", "package-lock.json"):
            shutil.copy(self._harness.lock_folder / name, self.folder / name)
        scripts = [] if self._harness.runs_scripts else ["--ignore-scripts"]
        self._run([npm, "ci", "--no-audit", "--no-fund", *scripts])
        return f"node {version}"

    def _install_pypi(self) -> str:
        python = self._find_python()
        self._clear()
        # a sandbox sees the interpreter itself, and no links that lead to it
        self._run([str(Path(python).resolve()), "-m", "venv", "--without-pip", str(self.folder)])
        inside = str(self.folder / "bin" / "python")
        locked = ["--no-deps", "--require-hashes", "-r", str(self._harness.lock_folder / "requirements.txt")]
        uv = _find_uv()
        pip = [sys.executable, "-m", "pip", "--python", inside, "install", "--no-input"]
        self._run([uv, "pip", "install", "--python", inside, *locked] if uv else [*pip, *locked])
        return f"Python {self._run([inside, '-c', 'import platform; print(platform.python_version())']).strip()}"

    def _clear(self) -> None:  # kept: once its interpreter is found, not before
        shutil.rmtree(self.folder, ignore_errors=True)
        make_private(self.folder)

    def _find_python(self) -> str:  # kept: with what to do
        python = self._harness.python
        found, faults = _look_for_python(python)
        if found is None and (uv := _find_uv()):
            brought = _ask([uv, "python", "install", "--no-bin", python], _INSTALL_SECONDS)
            faults += [f"uv cannot bring it: {brought.stderr.strip()[-_TAIL_LENGTH:]}"] if brought.returncode else []
            found, _ = _look_for_python(python)
        if found is None:
            raise BadInputError(
                f"harness {self._harness.name!r}: needs Python {python}, {'; '.join(faults)}; install it, with"
                f" python{python} on PATH"
            )
        return found

    def _start_once(self) -> None:  # kept: names what may be missing
        """Start the program with a HOME of its own.

        Raises: AgentFailedError: it does not start on this machine.
        """
        with TemporaryDirectory(ignore_cleanup_errors=True) as home:
            try:
                self._run(
                    [str(self.program), *self._harness.start_arguments],
                    remedy="it does not run on this machine, and nothing was installed",
                    HOME=home,
                )
            except AgentFailedError as error:
                if not (lacking := self._harness.list_lacking()):
                    raise
                raise AgentFailedError(
                    f"{error}; its lock lacks builds that the registry did not have, among them perhaps that of this"
                    f" machine: {', '.join(lacking)}; lock it again (.ci/lock_harness.py) with a registry that has them"
                ) from error

    def _run(
        self, command: Sequence[str], *, remedy: str = "check that its registry can be reached", **variables: str
    ) -> str:
        """Run a command in the folder, and return its output."""
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=program_environment() | variables, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=_INSTALL_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise AgentFailedError(
                f"harness {self._harness.name!r}: {command[0]} failed with {error}; try again"
            ) from error
        if done.returncode:
            raise AgentFailedError(
                f"harness {self._harness.name!r}: {Path(command[0]).name} ended with status {done.returncode}:"
                f" {(done.stderr or done.stdout).strip()[-_TAIL_LENGTH:]}; {remedy}"
            )
        return done.stdout

    def _read(self) -> _Marker | None:
        try:
            return msgspec.json.decode((self.folder / _MARKER).read_bytes(), type=_Marker)
        except (OSError, msgspec.DecodeError):
            return None

    def _hash_lock(self) -> str:
        """Return a hash of all files of its lock.

        Raises: BadInputError: it has none.
        """
        folder = self._harness.lock_folder
        if not folder.is_dir():
            raise BadInputError(
                f"harness {self._harness.name!r}: its lock {folder} is no folder; correct its declaration"
            )
        files = sorted(path for path in folder.iterdir() if path.is_file())
        return content_hash(b"\0".join(path.read_bytes() for path in files))


def _find_uv() -> str | None:
    return shutil.which("uv") or shutil.which("uv", path=sysconfig.get_path("scripts"))


def _look_for_python(version: str) -> tuple[str | None, list[str]]:
    """Return an interpreter of this version (major.minor) that starts, and why others do not."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable, []
    name, faults = f"python{version}", list[str]()
    places = dict.fromkeys(os.get_exec_path(program_environment()))
    for path in filter(None, (shutil.which(name, path=place) for place in places)):
        started = _ask([path, "-c", "import venv"])
        if started.returncode == 0:
            return path, []
        faults.append(f"{path} does not start: {started.stderr.strip().partition(chr(10))[0]}")
    if (uv := _find_uv()) and (found := _ask([uv, "python", "find", "--managed-python", version])).returncode == 0:
        return found.stdout.strip(), []
    return None, faults or [f"no {name} is on PATH"]


def _ask(command: Sequence[str], seconds: float = _ASK_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; one that cannot, or takes too long, counts as failed."""
    try:
        return subprocess.run(
            command, env=program_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
