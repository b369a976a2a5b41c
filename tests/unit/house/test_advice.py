"""This file holds the promise that whoever follows an error's advice finds a command of that name."""

import ast
import re
from pathlib import Path

import pytest
import typer

from agent_layer.cli.main import build

ROOT = Path(__file__).parents[3]
SOURCES = [
    path for package in ("agent_layer", "tracer", "trainer_adapter", "envs") for path in (ROOT / package).rglob("*.py")
]
TEXTS = sorted((ROOT / "examples").rglob("*.md"))
ADVISED = re.compile(r"['`]agent-layer ([a-z]+)(?: ([a-z]+))?")


def texts_of(path: Path) -> list[str]:
    """Strings of a module as they are shown, with ``{}`` for what is filled in."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.JoinedStr | ast.Constant)]
    parts = [node.values if isinstance(node, ast.JoinedStr) else [node] for node in nodes]
    return [
        "".join(str(getattr(part, "value", "")) if isinstance(part, ast.Constant) else "{}" for part in one)
        for one in parts
    ]


def advice() -> set[tuple[str, str]]:
    said = [text for path in SOURCES for text in texts_of(path)] + [path.read_text() for path in TEXTS]
    return {words for text in said for words in ADVISED.findall(text)}


@pytest.mark.parametrize("words", sorted(advice()), ids=" ".join)
def test_a_command_that_is_advised_exists(words: tuple[str, str]):
    command, part = words
    commands = typer.main.get_command(build()).commands

    assert command in commands
    parts = getattr(commands[command], "commands", None)
    assert not part or parts is None or part in parts


def test_advice_is_found():
    assert ("runs", "resume") in advice()
