"""Private helpers that should be inlined (CONTRIBUTING.md, Folders and files): their number only falls.

    python .ci/check_helpers.py           what is wrong; exit status 1 if anything is found
    python .ci/check_helpers.py --list    every helper that counts, with its number of statements

A helper counts if it is private, has no decorator, does not generate, holds at most three statements (six with those
inside them), and is named once in its module: in a call that is a whole statement, so that its body can stand there.
A method that overrides another (it calls ``super()``'s, or the module defines the name twice) has callers elsewhere.
A helper whose name or docstring says more than its body would in place carries the reason in its signature:
``# kept: the caller is a narrative of named steps``. Standard library only.
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("agent_layer", "tracer", "trainer_adapter", "envs")

MAX_INLINABLE = 1
"""Only ever lowered."""
SLACK = 5
"""By which the count may lie below it, so that one change need not touch this file."""
MAX_STATEMENTS, MAX_NESTED = 3, 6
MARK = "# kept: "


class Helper(NamedTuple):
    """A function that should stand where it is called."""

    line: int
    name: str
    num_statements: int


def find_helpers(source: str) -> Iterator[Helper]:
    """Yield the helpers of a module that count, in their order."""
    lines, tree = source.splitlines(), ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    uses: dict[str, list[ast.AST]] = defaultdict(list)
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                uses[name].append(node)
            case _:
                pass
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    definitions = Counter(function.name for function in functions)
    for function in sorted(functions, key=lambda one: one.lineno):
        nested = [part for statement in _body_of(function) for part in ast.walk(statement)]
        num_statements = sum(isinstance(part, ast.stmt) for part in nested)
        if (
            function.name.startswith("_")
            and not function.name.startswith("__")
            and not function.decorator_list
            and len(_body_of(function)) <= MAX_STATEMENTS
            and num_statements <= MAX_NESTED
            and not any(isinstance(part, ast.Yield | ast.YieldFrom) for part in nested)
            and len(uses[function.name]) == definitions[function.name] == 1
            and uses[function.name][0] not in nested
            and _is_whole_statement(uses[function.name][0], function, parents)
            and not any(
                MARK in line for line in lines[function.lineno - 1 : max(function.lineno, function.body[0].lineno - 1)]
            )
        ):
            yield Helper(function.lineno, function.name, num_statements)


def _body_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    return function.body[ast.get_docstring(function) is not None :]


def _is_whole_statement(use: ast.AST, function: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether a use is the call of a statement that does nothing else; a coroutine is awaited there."""
    call = parents[use]
    if not (isinstance(call, ast.Call) and call.func is use):
        return False
    above = parents[call]
    if isinstance(function, ast.AsyncFunctionDef) != isinstance(above, ast.Await):
        return False
    above = parents[above] if isinstance(above, ast.Await) else above
    return isinstance(above, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return)


def find_unexplained(source: str) -> Iterator[int]:
    """Yield the lines whose mark has no reason."""
    yield from (number for number, line in enumerate(source.splitlines(), 1) if line.endswith(MARK.rstrip()))


def main() -> int:
    """Print what is wrong; return the exit status."""
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    helpers = [(name, helper) for name, source in sources.items() for helper in find_helpers(source)]
    if "--list" in sys.argv[1:]:
        print(*(f"{name}:{one.line} {one.name} {one.num_statements}" for name, one in helpers), sep="\n")
    found = [
        f"{name}:{line}: expected a reason after '{MARK}'"
        for name, source in sources.items()
        for line in find_unexplained(source)
    ]
    if len(helpers) > MAX_INLINABLE:
        found.append(
            f"expected at most {MAX_INLINABLE} private helpers that could stand where they are called, found"
            f" {len(helpers)}: inline the new ones (--list), or give a reason in their signature: '{MARK}…'"
        )
    if len(helpers) < MAX_INLINABLE - SLACK:
        found.append(f".ci/check_helpers.py: lower the constant MAX_INLINABLE to {len(helpers)}")
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
