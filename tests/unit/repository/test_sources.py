"""Rules for the source that no linter knows: size of files and folders, one reader of the environment, types."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("agent_layer", "tracer", "trainer_adapter", "envs")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
EVERYTHING = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "examples").rglob("*.py"))]

MAX_LINES = 500
MAX_FILES = 12
"""Beside ``__init__.py``; tests and examples are exempt."""
MAY_REACH_ENVIRONMENT = {
    "agent_layer/settings/environment.py": "reads it for everybody, beside settings",
    "agent_layer/cli/ui/pager.py": "tells less how to behave, unless the user has",
    "agent_layer/infra/processes/supervised.py": "hands it to a child, with more",
    "agent_layer/recorder/shipping.py": "hands it to the shipper, with its settings",
    "agent_layer/infra/redis/embedded.py": "hands it to Redis",
    "envs/sandbox/inside/warm_python.py": "sets it for a snippet, in the box",
    "trainer_adapter/cluster/nodes/machine.py": "shows PyTorch the GPUs that Ray hides",
    "trainer_adapter/cluster/overrides.py": "adds to the path of veRL's processes, and reads what it told them",
    "trainer_adapter/cluster/plugin.py": "runs first in veRL's processes, which name the platform there",
    "trainer_adapter/loop/ranks.py": "reads what torchrun sets, and sets what it hands on",
    "trainer_adapter/verl/platform.py": "sets what torch reads",
    "trainer_adapter/verl/trackers.py": "sets what trackers read",
}


def test_no_file_and_no_folder_is_too_large():
    num_lines = {_name(path): len(path.read_text().splitlines()) for path in EVERYTHING}
    num_files = Counter(_name(path.parent) for path in SOURCES if path.name != "__init__.py")

    assert {path: lines for path, lines in num_lines.items() if lines > MAX_LINES} == {}
    assert {path: files for path, files in num_files.items() if files > MAX_FILES} == {}


def test_only_settings_read_the_environment():
    assert {_name(path) for path in SOURCES if _reaches_environment(path)} == set(MAY_REACH_ENVIRONMENT)


def test_every_package_is_typed():
    assert [package for package in PACKAGES if not (ROOT / package / "py.typed").exists()] == []


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _reaches_environment(path: Path) -> bool:
    return any(map(_names_environment, ast.walk(ast.parse(path.read_text()))))


def _names_environment(node: ast.AST) -> bool:
    names = {"getenv", "environ", "environb"}
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(name.name in names for name in node.names)
    return isinstance(node, ast.Attribute) and node.attr in names and getattr(node.value, "id", "") == "os"
