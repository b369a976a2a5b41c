"""This file holds the promises about the source: small files, one idea each, one reader of the environment."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("agent_layer", "tracer", "trainer_adapter", "envs")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
EVERYTHING = SOURCES + sorted((ROOT / "tests").rglob("*.py")) + sorted((ROOT / "examples").rglob("*.py"))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", EVERYTHING, ids=named)
def test_no_file_is_longer_than_300_lines(path):
    assert len(path.read_text().splitlines()) <= 300


@pytest.mark.parametrize("path", [path for path in SOURCES if path.stat().st_size], ids=named)
def test_a_file_begins_with_what_it_holds(path):
    assert ast.get_docstring(ast.parse(path.read_text())), "the first line is a docstring"


@pytest.mark.parametrize("path", [path for path in SOURCES if path.name != "settings.py"], ids=named)
def test_only_settings_read_the_environment(path):
    reads = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"getenv"} and getattr(node.value, "id", "") == "os"
    ]

    assert reads == []


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
