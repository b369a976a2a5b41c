"""Waits of tests: all go through tests/waiting.py, whose limits follow the machine's speed (CONTRIBUTING.md, Tests).

    python .ci/check_waits.py        file:line and what to write instead; exit status 1 if anything is found

A line that must differ carries its reason: ``# wait: the subject of the test``. Standard library only.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = (
    "tests/waiting.py",
    ".ci/whole_run.py",
    "tests/reruns.py",
    "tests/benchmarks/",
    "tests/gpu/",
    "tests/integration/sandbox/hostile/",
)
"""The waits themselves; what runs the suite; programs that measure; attacks."""
EXEMPTION = "# wait: "
CLOCKS = (
    *("time.monotonic", "time.time", "time.perf_counter"),
    *("loop.time", "asyncio.get_running_loop().time", "asyncio.get_event_loop().time"),
)
DEAR = (
    *("torch", "transformers", "peft", "verl", "vllm", "ray", "trainer_adapter.verl"),
    *("google.genai", "litellm", "dspy", "datasets"),
)
"""Each test process imports all modules of tests: each of these would cost each of them seconds."""


def find_waits(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and advice of each wait with a limit of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(_is_clock(part) for part in ast.walk(node)):
            yield node.lineno, "a deadline of its own: write wait_until(), within() or scaled()"
        elif isinstance(node, ast.Call) and (advice := _advise(node)):
            yield node.lineno, advice


def _advise(call: ast.Call) -> str | None:
    name = ast.unparse(call.func)
    method, limit = name.rpartition(".")[2], _find_limit(call)
    if name in ("asyncio.timeout", "asyncio.wait_for"):
        return f"{name}: write within()"
    if method == "communicate" or name in ("subprocess.run", "subprocess.check_output"):
        return f"{name} with a time-out: write communicate() or run() of tests/waiting.py" if limit else None
    if method in ("wait", "join") and "." in name:
        has_seconds = _is_number(call.args[0] if call.args else limit)
        return f"{name} with seconds: write wait_for_exit(), join(), within() or wait_until()" if has_seconds else None
    return (
        f"{name} with a time-out: write scaled(seconds)" if method != "flush" and _is_number(limit, least=5) else None
    )


def find_dear_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield imports at the head of a module that belong into the fixture or test that needs them."""
    for node in tree.body:
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or "", *(f"{node.module}.{one.name}" for one in node.names)]
        for name in names:
            if name.startswith(tuple(f"{one}." for one in DEAR)) or name in DEAR:
                yield node.lineno, f"import of {name}: move it into the fixture or test that needs it"


def _is_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in CLOCKS


def _find_limit(call: ast.Call) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == "timeout"), None)


def _is_number(node: ast.expr | None, least: float = 0) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value >= least


def main() -> int:
    """Print what is found; return the exit status."""
    findings: list[str] = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(LEFT_OUT):
            continue
        text = path.read_text()
        lines = text.splitlines()
        tree = ast.parse(text)
        found = [one for one in find_waits(tree) if EXEMPTION not in lines[one[0] - 1]]
        if path.name.startswith(("test_", "conftest")) or path.parent == ROOT / "tests":
            found += find_dear_imports(tree)
        findings += [f"{name}:{number}: {advice}" for number, advice in sorted(found)]
    print(*findings, sep="\n", end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
