"""This file holds the promises about the source: small files, one idea each, one reader of the environment."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("agent_layer", "tracer", "trainer_adapter", "envs")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
EVERYTHING = SOURCES + sorted((ROOT / "tests").rglob("*.py")) + sorted((ROOT / "examples").rglob("*.py"))

MAY_REACH_ENVIRONMENT = {
    "agent_layer/settings/environment.py": "reads it for everybody, beside settings",
    "agent_layer/infra/processes/supervised.py": "hands it to a child, with more",
    "agent_layer/recorder/shipping.py": "hands it to the shipper, with its settings",
    "agent_layer/infra/redis/embedded.py": "hands it to Redis",
    "trainer_adapter/verl/platform.py": "sets what torch reads",
}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def reaches_environment(node: ast.AST) -> bool:
    names = {"getenv", "environ", "environb"}
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(name.name in names for name in node.names)
    return isinstance(node, ast.Attribute) and node.attr in names and getattr(node.value, "id", "") == "os"


@pytest.mark.parametrize("path", EVERYTHING, ids=named)
def test_no_file_is_longer_than_300_lines(path):
    assert len(path.read_text().splitlines()) <= 300


@pytest.mark.parametrize("path", [path for path in SOURCES if path.stat().st_size], ids=named)
def test_a_file_begins_with_what_it_holds(path):
    assert ast.get_docstring(ast.parse(path.read_text())), "the first line is a docstring"


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_only_settings_read_the_environment(path):
    tree = ast.walk(ast.parse(path.read_text()))

    assert any(map(reaches_environment, tree)) == (named(path) in MAY_REACH_ENVIRONMENT)


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_every_exported_name_exists(path):
    tree = ast.parse(path.read_text())
    exported = [
        name.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        for name in ast.walk(node.value)
        if isinstance(name, ast.Constant)
    ]
    source = path.read_text()

    assert [name for name in exported if name.split(".")[-1] not in source.replace(f'"{name}"', "", 1)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_typed(package):
    assert (ROOT / package / "py.typed").exists()
