"""Programs that tests write as text: what they import from us exists, which no type checker looks at."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

TESTS = Path(__file__).parents[2]
IMPORT = re.compile(r"^\s*from ((?:agent_layer|tracer|trainer_adapter|envs)[\w.]*) import ([\w, ]+)", re.MULTILINE)
SET = re.compile(r"^((?:agent_layer|tracer|trainer_adapter|envs)(?:\.\w+)+)\.(\w+)$")
"""Names that tests replace, as in ``monkeypatch.setattr("agent_layer.module.name", …)``."""


def test_what_programs_in_tests_import_exists():
    found = {(path.name, *one) for path in sorted(TESTS.rglob("*.py")) for one in _imports_of(path)}

    assert len(found) > 20
    assert sorted(one for one in found if not _exists(*one[1:])) == []


def _imports_of(path: Path) -> Iterator[tuple[str, str]]:
    tree = ast.parse(path.read_text())
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    for text in texts:
        for module, names in IMPORT.findall(text):
            yield from ((module, name.split(" as ")[0].strip()) for name in names.split(",") if name.strip())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    for call in calls:
        target = call.args[0]
        if isinstance(call.func, ast.Attribute) and call.func.attr == "setattr" and isinstance(target, ast.Constant):
            yield from SET.findall(str(target.value))


def _exists(module: str, name: str) -> bool:
    try:
        resolve_name(f"{module}.{name}")
    except (ImportError, AttributeError):
        return False
    return True
