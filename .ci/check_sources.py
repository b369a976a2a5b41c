"""Rules for sources that no linter knows (CONTRIBUTING.md): sizes, mechanisms with one home, names inside texts.

    python .ci/check_sources.py        path and what is wrong; exit status 1 if anything is found

Names inside texts are commands that error messages and examples advise, and what programs that tests write as text
import from us or replace: no type checker looks at these.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from write_faces import find_bound_names, read_face

from agent_layer.cli.commands import PANELS

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("agent_layer", "tracer", "trainer_adapter", "envs")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))

MAX_LINES = 500
SUFFIXES = {".py", ".lua", ".bpf"}
MIN_FILES, MAX_FILES = 3, 16
"""Source files and folders of a folder, beside ``__init__.py``; tests and examples are exempt."""
MAY_HOLD_FEW = {
    "agent_layer/settings": "a room: settings, and the one place that reads the environment",
    "agent_layer/view/demo": "the recorded run is beside its reader",
    "agent_layer/view/reads/overviews": "two views over many rollouts each, beside those of one record",
    "envs/grading/guest": "programs that are sent into a box by their path",
    "envs/rescoring": "a room: the command, and what it does",
    "envs/tasksets/guess_number": "one task set: the game, and an agent that a registry names by its path",
    "tracer/bootstrap": "Python itself imports the file, from a path that has nothing else",
    "tracer/transport": "a room: its client is what environments use of the tracer",
    "trainer_adapter/teacher": "a room: what is pure apart from what asks a server",
}
MAY_REACH_ENVIRONMENT = {
    "agent_layer/cli/main.py": "asks whether torchrun started the process",
    "agent_layer/cli/ui/pager.py": "tells less how to behave, unless the user has",
    "agent_layer/infra/processes/supervised.py": "hands it to a child, with more",
    "agent_layer/recorder/shipping.py": "hands it to the shipper, with its settings",
    "agent_layer/infra/redis/embedded.py": "hands it to Redis",
    "envs/adapters/guest/verifiers_guest.py": "sets what a tool server of theirs reads, in its own process",
    "envs/sandbox/guest/warm_python.py": "sets it for a snippet, in the box",
    "trainer_adapter/cluster/nodes/machine.py": "shows PyTorch the GPUs that Ray hides",
    "trainer_adapter/cluster/overrides.py": "adds to the path of veRL's processes, and reads what it told them",
    "trainer_adapter/cluster/plugin.py": "runs first in veRL's processes, which name the platform there",
    "trainer_adapter/start/ranks.py": "reads what torchrun sets, and sets what it hands on",
    "trainer_adapter/verl/platform.py": "sets what torch reads",
    "trainer_adapter/verl/trackers.py": "sets what trackers read",
}
MAY_SPEAK_HTTP = {
    "agent_layer/conformance/adapters.py": "asks an endpoint as any program would, and waits for its end",
    "agent_layer/cli/services/doctor.py": "asks as a user's programs would: over proxies, and after redirects",
    "agent_layer/engines/control.py": "asks an engine itself: past proxies, and after no redirect",
    "agent_layer/engines/teacher.py": "asks by control.py, and names what that raises",
    "agent_layer/shipper/remote.py": "keeps connections open from log to log",
    "envs/sandbox/guest/keeper.py": "speaks over a unix socket, and imports nothing of ours",
    "tracer/transport/gateway_client.py": "waits shorter for a connection than for an answer",
}
MAY_LOCK = {
    "agent_layer/recorder/logfile.py": "the lock of a log is its state, and locking it must not create it",
}
MAY_MOVE = {
    "agent_layer/recorder/logfile.py": "the name of a log is its state",
    "agent_layer/recorder/shipping.py": "a long output goes aside, and a new one begins",
    "agent_layer/shipper/ship.py": "the name of a log is its state",
    "agent_layer/view/site/directory.py": "a directory, with all that is in it",
    "trainer_adapter/datasets/directory.py": "a directory, with all that is in it",
    "trainer_adapter/loop/checkpoint.py": "a directory, with all that is in it",
    "trainer_adapter/tiny_model.py": "a directory, with all that is in it",
    "trainer_adapter/verl/export.py": "a directory, with all that is in it",
    "trainer_adapter/verl/weights.py": "a directory, with all that is in it",
    "agent_layer/gateway/rollouts/resume.py": "no path: a rollout in a table",
    "envs/tasksets/harbor/images.py": "a directory, with all that is in it",
    "envs/tasksets/repair/scripts.py": "no path: names in a program",
    "envs/tasksets/repair/tasks.py": "no path: names in a program",
}
_ENVIRONMENT = {"getenv", "environ", "environb"}
_HTTP = {"urlopen", "http.client", "urllib.request", "HTTPConnection", "HTTPSConnection"}
_LOCKS = {"flock", "lockf"}
_MOVES = {"replace", "rename", "renames"}
_ADVISED = re.compile(r"['`]agent-layer ([a-z]+)(?: ([a-z]+))?")
_IMPORT = re.compile(r"^\s*from ((?:agent_layer|tracer|trainer_adapter|envs)[\w.]*) import ([\w, ]+)", re.MULTILINE)
_REPLACED = re.compile(r"^((?:agent_layer|tracer|trainer_adapter|envs)(?:\.\w+)+)\.(\w+)$")
"""Names that tests replace, as in ``monkeypatch.setattr("agent_layer.module.name", …)``."""


def check_sizes() -> Iterator[str]:
    """Yield files with too many lines, and folders with too many files or too few."""
    for path in [*SOURCES, *TESTS, *EXAMPLES]:
        if (num_lines := len(path.read_text().splitlines())) > MAX_LINES:
            yield f"{_name(path)}: expected at most {MAX_LINES} lines, found {num_lines}"
    few = set[str]()
    for folder in sorted({path.parent for path in SOURCES}):
        parts = [one for one in folder.iterdir() if one.suffix in SUFFIXES or (one / "__init__.py").exists()]
        num_files = sum(one.suffix == ".py" for one in parts) - (folder / "__init__.py").exists()
        if num_files > MAX_FILES:
            yield f"{_name(folder)}: expected at most {MAX_FILES} files beside __init__.py, found {num_files}"
        if len(parts) - (folder / "__init__.py").exists() < MIN_FILES:
            few.add(_name(folder))
    yield from (
        f"{one}: expected at least {MIN_FILES} files or folders beside __init__.py; move them up, or name the reason in"
        f" {_name(Path(__file__))}"
        for one in sorted(few - set(MAY_HOLD_FEW))
    )
    yield from (
        f"{one}: its exemption in {_name(Path(__file__))} covers nothing" for one in sorted(set(MAY_HOLD_FEW) - few)
    )


class Mechanism(NamedTuple):
    """Something that is done in one place."""

    home: str
    """Where its path begins."""
    words: set[str]
    """Without any of them, a module does not do it; a quick look."""
    is_use: Callable[[ast.AST], bool]
    others: Mapping[str, str]
    """Files that do it besides, to the reason."""
    finding: str


def check_homes() -> Iterator[str]:
    """Yield modules that do what others do for them, and exemptions that cover nothing."""
    for mechanism in MECHANISMS:
        users = {_name(path) for path in SOURCES if uses(mechanism, path.read_text())}
        at_home = {path for path in users if path.startswith(mechanism.home)}
        for path in sorted(users - at_home - set(mechanism.others)):
            yield f"{path}: {mechanism.finding}, or name the reason in {_name(Path(__file__))}"
        for path in sorted(set(mechanism.others) - users):
            yield f"{path}: its exemption in {_name(Path(__file__))} covers nothing; remove it"
        if not at_home:
            yield f"{_name(Path(__file__))}: finds no use in {mechanism.home} any more; correct its pattern"


def uses(mechanism: Mechanism, source: str) -> bool:
    """Whether a module uses the mechanism itself."""
    return any(word in source for word in mechanism.words) and any(map(mechanism.is_use, ast.walk(ast.parse(source))))


def check_types() -> Iterator[str]:
    """Yield packages that do not say that they are typed."""
    yield from (f"{one}: expected a py.typed, found none" for one in PACKAGES if not (ROOT / one / "py.typed").exists())


def check_advice() -> Iterator[str]:
    """Yield commands that an error or an example advises and that do not exist."""
    texts = [(path, text) for path in SOURCES if "agent-layer " in path.read_text() for text in _read_strings(path)]
    texts += [(path, path.read_text()) for path in sorted((ROOT / "examples").rglob("*.md"))]
    advised = {(_name(path), words) for path, text in texts for words in _ADVISED.findall(text)}
    if ("runs", "resume") not in {words for _, words in advised}:
        yield f"{_name(Path(__file__))}: finds no advice of 'agent-layer runs resume' any more; correct its pattern"
    for path, (command, part) in sorted(advised):
        if not _is_command(command, part):
            yield f"{path}: advises 'agent-layer {' '.join(filter(None, (command, part)))}', which does not exist"


def check_programs() -> Iterator[str]:
    """Yield what programs in tests import, or tests replace, and what does not exist."""
    found = {(_name(path), *one) for path in TESTS for one in _read_imports(path)}
    if len(found) <= 20:
        yield f"{_name(Path(__file__))}: finds hardly any program in tests any more; correct its pattern"
    for path, module, name in sorted(found):
        if name not in _names_in(module):
            yield f"{path}: a program or a replacement names {module}.{name}, which does not exist"


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _names_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(name.name in _ENVIRONMENT for name in node.names)
    return isinstance(node, ast.Attribute) and node.attr in _ENVIRONMENT and getattr(node.value, "id", "") == "os"


def _names_any(names: set[str]) -> Callable[[ast.AST], bool]:
    """Return whether a node is one of these names, a last part of a longer one, or an import of it."""

    def is_named(node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                return name in names
            case ast.ImportFrom(module=str(module)):
                return module in names or any(f"{module}.{one.name}" in names for one in node.names)
            case _:
                return False

    return is_named


def _moves_onto_name(node: ast.AST) -> bool:
    """Whether a node is ``path.replace(other)``, ``os.replace(path, other)`` or the like; text has two arguments."""
    match node:
        case ast.ImportFrom(module="os" | "shutil"):
            return any(one.name in _MOVES | {"move"} for one in node.names)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="os" | "shutil"), attr=name)):
            return name in _MOVES | {"move"}
        case ast.Call(func=ast.Attribute(attr=name), args=[_], keywords=[]):
            return name in _MOVES and not isinstance(node.args[0], ast.Starred)
        case _:
            return False


MECHANISMS = (
    Mechanism(
        "agent_layer/settings/environment.py",
        _ENVIRONMENT,
        _names_environment,
        MAY_REACH_ENVIRONMENT,
        "reaches the environment; read a setting",
    ),
    Mechanism(
        "agent_layer/infra/", {"http", "url"}, _names_any(_HTTP), MAY_SPEAK_HTTP, "speaks HTTP itself; ask infra"
    ),
    Mechanism(
        "agent_layer/infra/", _LOCKS, _names_any(_LOCKS), MAY_LOCK, "locks a file itself; use hold_lock, hold_alone"
    ),
    Mechanism(
        "agent_layer/infra/", {*_MOVES, "move"}, _moves_onto_name, MAY_MOVE, "moves a file itself; use replace_file"
    ),
)


def _read_strings(path: Path) -> Iterator[str]:
    """Yield the strings of a module, with ``{}`` for each inserted value."""
    for node in ast.walk(ast.parse(path.read_text())):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node] if isinstance(node, ast.Constant) else []
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)


def _is_command(command: str, part: str) -> bool:
    found = [one for commands in PANELS.values() for one in commands if one.name == command]
    parts = [one.name for command in found for one in command.parts]
    return bool(found) and (not part or not parts or part in parts)


def _read_imports(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Constant(value=str(text)):
                for module, names in _IMPORT.findall(text):
                    yield from ((module, name.split(" as ")[0].strip()) for name in names.split(",") if name.strip())
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[ast.Constant(value=str(text)), *_]):
                yield from _REPLACED.findall(text)
            case _:
                pass


@cache
def _names_in(module: str) -> frozenset[str]:
    """Return the names that a module or a class in it defines, or that a folder holds; nothing is imported."""
    path = ROOT.joinpath(*module.split("."))
    if (path / "__init__.py").exists():
        face = read_face(module)
        listed = {*face.public, *face.internal} if face else set[str]()
        return frozenset(listed | {one.stem for one in path.iterdir()} | find_bound_names(path / "__init__.py"))
    if (file := path.with_suffix(".py")).exists():
        return find_bound_names(file)
    return _names_in(module.rpartition(".")[0]) if "." in module else frozenset()


def main() -> int:
    """Print what is wrong; return the exit status."""
    checks = (check_sizes, check_homes, check_types, check_advice, check_programs)
    findings = [finding for check in checks for finding in check()]
    print(*findings, sep="\n", end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
