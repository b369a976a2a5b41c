"""Repositories: templates with names of their own, spread over files, with visible tests."""

import ast
import builtins
import json
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Final, cast

import msgspec

from envs.tasksets.repair.programs.template import Call, Case, Template

_WORD: Final = re.compile(r'"""[\s\S]*?"""|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[A-Za-z_]\w*')
"""A string, which is left alone, or an identifier."""
_RESERVED: Final = {*keyword.kwlist, *dir(builtins), "self"}


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """What the identifiers of one template are called."""

    chosen: Mapping[str, str]

    def rename(self, source: str) -> str:
        """Return Python with these names; strings stay."""
        return _WORD.sub(lambda match: self.chosen.get(match.group(), match.group()), source)

    def rename_case(self, case: Case) -> list[Call]:
        """Return the case with these names."""
        return [msgspec.structs.replace(one, name=self._rename_call(one.name)) for one in case]

    def _rename_call(self, name: str) -> str:
        dot = "." if name.startswith(".") else ""
        return dot + self.chosen.get(name.removeprefix("."), name.removeprefix("."))


def choose_names(template: Template, rng: Random) -> Names:
    """Return names for a template, that its sources use for nothing else."""
    taken = _RESERVED | set(_WORD.findall(template.source)) | set(_WORD.findall(template.independent))
    chosen: dict[str, str] = {}
    for name, others in template.names.items():
        free = [other for other in others if other == name or other not in taken]
        chosen[name] = rng.choice(free)
        taken.add(chosen[name])
    return Names(chosen=chosen)


def spread(source: str, stem: str, *, like: str | None = None, is_split: bool) -> dict[str, str]:
    """Return the files of a module.

    Args:
        source: all of it.
        stem: of its file.
        like: the source whose imports it gets; None: its own.
        is_split: the first half of its definitions gets a file of its own, from which the other half imports.
    """
    if not is_split:
        return {f"{stem}.py": source}
    base, rest = _halve(source)
    defined, uses = _halve(like or source)
    names = {node.id for node in ast.walk(ast.parse(uses)) if isinstance(node, ast.Name)}
    used = sorted(names & set(_top_names(defined)))
    imports = f"from {stem}_base import {', '.join(used)}\n\n\n" if used else ""
    return {f"{stem}_base.py": base, f"{stem}.py": f'"""Second part of {stem}."""\n\n{imports}{rest}'}


def _halve(source: str) -> tuple[str, str]:
    lines = source.splitlines(keepends=True)
    definitions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    cut = definitions[len(definitions) // 2].lineno - 1
    return "".join(lines[:cut]).rstrip() + "\n", "".join(lines[cut:])


def find_module(files: Mapping[str, str], name: str) -> str:
    """Return the module that defines a function or class."""
    return next(file.removesuffix(".py") for file, source in files.items() if name in _top_names(source))


@lru_cache(maxsize=512)
def _top_names(source: str) -> list[str]:
    found: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign):
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return found


def write_tests(title: str, module_of_call: Mapping[str, str], checks: Iterable[tuple[Case, str]]) -> str:
    """Return a test file.

    Args:
        title: name of the class.
        module_of_call: module of each function and class.
        checks: cases with their right outcomes.
    """
    checks = list(checks)
    imports = sorted({(module_of_call[case[0].name], case[0].name) for case, _ in checks})
    lines = ["import unittest", "", *(f"from {module} import {name}" for module, name in imports), "", ""]
    lines += [f"class {title}(unittest.TestCase):"]
    for number, (case, outcome) in enumerate(checks, 1):
        lines += [f"    def test_{number}(self):", *(f"        {line}" for line in _assertions(case, outcome)), ""]
    return "\n".join([*lines, "", 'if __name__ == "__main__":', "    unittest.main()", ""])


def _assertions(case: Sequence[Call], outcome: str) -> Iterator[str]:
    for one, result in zip(case, json.loads(outcome), strict=False):
        arguments = ", ".join(map(repr, one.args))
        is_error = isinstance(result, dict) and [*cast("dict[str, object]", result)] == ["raises"]
        if one.name.startswith("."):
            expression = f"subject{one.name}({arguments})"
        elif one.name[0].isupper() and not is_error:
            yield f"subject = {one.name}({arguments})"
            continue
        else:
            expression = f"{one.name}({arguments})"
        if is_error:
            yield f"with self.assertRaises({result['raises']}):"
            yield f"    {expression}"
        else:
            yield f"self.assertEqual({expression}, {result!r})"
