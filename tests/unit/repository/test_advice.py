"""Commands that error messages and examples advise: each exists under that name."""

import ast
import re
from pathlib import Path

from agent_layer.cli.commands import PANELS

ROOT = Path(__file__).parents[3]
PACKAGES = ("agent_layer", "tracer", "trainer_adapter", "envs")
SOURCES = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
TEXTS = sorted((ROOT / "examples").rglob("*.md"))
ADVISED = re.compile(r"['`]agent-layer ([a-z]+)(?: ([a-z]+))?")


def test_a_command_that_is_advised_exists():
    advised = _advised_commands()

    assert ("runs", "resume") in advised
    assert [words for words in sorted(advised) if not _exists(*words)] == []


def _exists(command: str, part: str) -> bool:
    found = [one for commands in PANELS.values() for one in commands if one.name == command]
    parts = [one.name for command in found for one in command.parts]
    return bool(found) and (not part or not parts or part in parts)


def _advised_commands() -> set[tuple[str, str]]:
    texts = [text for path in SOURCES for text in _strings_of(path)] + [path.read_text() for path in TEXTS]
    return {words for text in texts for words in ADVISED.findall(text)}


def _strings_of(path: Path) -> list[str]:
    """Return the strings of a module, with ``{}`` for each inserted value."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.JoinedStr | ast.Constant)]
    parts = [node.values if isinstance(node, ast.JoinedStr) else [node] for node in nodes]
    return [
        "".join(str(getattr(part, "value", "")) if isinstance(part, ast.Constant) else "{}" for part in one)
        for one in parts
    ]
