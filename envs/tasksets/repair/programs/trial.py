"""Runs our own templates and changes of them, in this process: fast, bounded in steps, never for an agent's code."""

import ast
import builtins
import json
import operator
from collections.abc import Callable, Mapping
from types import CodeType, ModuleType
from typing import Any, Final, cast

from envs.tasksets.repair.programs.template import Call, Case

_MAX_TICKS = 3_000
"""Loop rounds and calls of one case; templates need some hundreds."""
_MAX_SIZE = 100_000
"""Bits of a number, or length of a text or list, that an operation may make."""
_TICK = "__tick__"
_OPERATE = "__operate__"
_GUARDED: Final[dict[type[ast.operator], str]] = {ast.Add: "+", ast.Mult: "*"}
Outcome = str
"""JSON of what each call returned or raised; equal for equal behaviour."""
RUNAWAY = "runaway"
"""Outcome of a case that takes too many steps or too much memory."""


class _RunawayError(BaseException):
    """A case takes too many steps or too much memory; no handler of the code stops it."""


def run_case(modules: Mapping[str, ModuleType], module: str, case: Case) -> Outcome:
    """Return the outcome of calls, which share one subject.

    Args:
        modules: what ``load_modules`` returned.
        module: the one whose names the calls use.
        case: the calls.
    """
    namespace = vars(modules[module])
    namespace[_TICK].reset()
    outcome: list[object] = []
    subject: object = None
    for one in case:
        try:
            value = _find(namespace, subject, one)(*json.loads(json.dumps(one.args)))
        except _RunawayError:
            return RUNAWAY
        except Exception as error:  # noqa: BLE001  # a mutant may raise anything
            outcome.append({"raises": type(error).__name__})
            if _is_class(one):
                break
            continue
        if _is_class(one):
            subject = value
        outcome.append(None if _is_class(one) else _plain(value))
    return json.dumps(outcome)


def load_modules(files: Mapping[str, str]) -> dict[str, ModuleType]:
    """Execute modules, which may import each other.

    Args:
        files: source by name of the file.

    Raises: Exception: what a module raises.
    """
    loaded: dict[str, ModuleType] = {}
    ticks = _Ticks()

    def find(name: str, *arguments: object) -> object:
        if f"{name}.py" not in files:
            return cast("Callable[..., object]", builtins.__import__)(name, *arguments)
        if name not in loaded:
            loaded[name] = module = ModuleType(name)
            names = {**vars(builtins), "__import__": find}
            vars(module).update({"__builtins__": names, _TICK: ticks, _OPERATE: _operate})
            exec(_compile(files[f"{name}.py"]), vars(module))  # our own templates
        return loaded[name]

    for file in files:
        find(file.removesuffix(".py"))
    return loaded


def _compile(source: str) -> CodeType:
    tree = _Instrumentation().visit(ast.parse(source))
    return compile(ast.fix_missing_locations(tree), "<template>", "exec")


class _Ticks:
    """Counts steps of one case."""

    def __init__(self) -> None:
        self._left = _MAX_TICKS

    def reset(self) -> None:
        self._left = _MAX_TICKS

    def __call__(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _RunawayError


class _Instrumentation(ast.NodeTransformer):
    """Counts rounds of loops and calls of functions, and bounds what operators make."""

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._count(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._count(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._count(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        sign = _GUARDED.get(type(node.op))
        return node if sign is None else _call(_OPERATE, ast.Constant(sign), node.left, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        sign = _GUARDED.get(type(node.op))
        if sign is None or not isinstance(node.target, ast.Name):
            return node
        value = _call(_OPERATE, ast.Constant(f"{sign}="), ast.Name(node.target.id, ast.Load()), node.value)
        return ast.Assign([node.target], value)

    def _count(self, node: ast.For | ast.While | ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, ast.Expr(_call(_TICK)))
        return node


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _add_to(left: Any, right: Any) -> object:  # noqa: ANN401
    left += right
    return left


def _multiply_by(left: Any, right: Any) -> object:  # noqa: ANN401
    left *= right
    return left


_OPERATIONS: Final[Mapping[str, Callable[[Any, Any], object]]] = {
    "+": operator.add,
    "*": operator.mul,
    "+=": _add_to,
    "*=": _multiply_by,
}


def _operate(sign: str, left: Any, right: Any) -> object:  # noqa: ANN401  # as the operators themselves
    if sign.startswith("*") and _size(left) * _size(right) > _MAX_SIZE * 64:
        raise _RunawayError
    value: object = _OPERATIONS[sign](left, right)
    if _size(value) > _MAX_SIZE:
        raise _RunawayError
    return value


def _size(value: object) -> int:
    if isinstance(value, int):
        return value.bit_length()
    return len(cast("list[object]", value)) if isinstance(value, str | list | tuple) else 1


def _find(namespace: Mapping[str, object], subject: object, one: Call) -> Callable[..., object]:
    found = getattr(subject, one.name[1:]) if one.name.startswith(".") else namespace[one.name]
    return cast("Callable[..., object]", found)


def _is_class(one: Call) -> bool:
    """By convention of the templates, and of everyone else."""
    return one.name[0].isupper()


def _plain(value: object) -> object:
    """Return the value where JSON has it exactly, else what it is."""
    try:
        text = json.dumps(value, sort_keys=True)
        same = json.loads(text) == value and len(text) < _MAX_SIZE
    except (TypeError, ValueError, RecursionError):
        return {"is no JSON": type(value).__name__}
    return json.loads(text) if same else {"is no JSON": type(value).__name__}
