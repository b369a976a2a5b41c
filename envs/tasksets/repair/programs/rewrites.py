"""Rewrites: other code with the same behaviour, as programmers would write it.

A rewrite may meet code that it does not fit, so users compare the behaviour on calls of their own.
"""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Final

_PAIR: Final = " and "
PLAIN: Final = "formatting"
"""The rewrite that changes formatting only."""


class _Rewriter(ast.NodeTransformer):
    """Rewrites one kind of place, innermost first."""

    def apply_to(self, tree: ast.Module) -> ast.Module:
        return ast.fix_missing_locations(self.visit(tree))


class _Formatting(_Rewriter):
    """Formatting and comments only."""


class _RenameLocals(_Rewriter):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if any(isinstance(one, ast.FunctionDef) and one is not node for one in ast.walk(node)):
            return node
        stored = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        stored -= {argument.arg for argument in node.args.args}
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and one.id in stored:
                one.id = f"{one.id}_value"
        return node


class _FlipBranches(_Rewriter):
    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if not node.orelse:
            return node
        return ast.If(ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body)


class _FlipExpressions(_Rewriter):
    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        return ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body)


class _MirrorComparisons(_Rewriter):
    _mirrored: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
        ast.Lt: ast.Gt,
        ast.Gt: ast.Lt,
        ast.LtE: ast.GtE,
        ast.GtE: ast.LtE,
        ast.Eq: ast.Eq,
    }

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) != 1 or type(node.ops[0]) not in self._mirrored:
            return node
        return ast.Compare(node.comparators[0], [self._mirrored[type(node.ops[0])]()], [node.left])


class _NegateComparisons(_Rewriter):
    _negated: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
        ast.Lt: ast.GtE,
        ast.Gt: ast.LtE,
        ast.LtE: ast.Gt,
        ast.GtE: ast.Lt,
        ast.Eq: ast.NotEq,
        ast.NotEq: ast.Eq,
        ast.In: ast.NotIn,
        ast.NotIn: ast.In,
    }

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) != 1 or type(node.ops[0]) not in self._negated:
            return node
        opposite = ast.Compare(node.left, [self._negated[type(node.ops[0])]()], node.comparators)
        return ast.UnaryOp(ast.Not(), opposite)


class _ExtractResults(_Rewriter):
    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        if node.value is None or isinstance(node.value, ast.Name | ast.Constant):
            return [node]
        return [_assign("final_result", node.value), ast.Return(_load("final_result"))]


class _ExtractConditions(_Rewriter):
    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        self.generic_visit(node)
        return [_assign("condition", node.test), ast.If(_load("condition"), node.body, node.orelse)]


class _ForToWhile(_Rewriter):
    def __init__(self) -> None:
        self._number = 0

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        self.generic_visit(node)
        self._number += 1
        name = f"iterator_{self._number}"
        following = ast.Call(_load("next"), [_load(name)], [])
        stop = ast.ExceptHandler(_load("StopIteration"), None, [ast.Break()])
        step = ast.Try([ast.Assign([node.target], following)], [stop], [], [])
        begin = _assign(name, ast.Call(_load("iter"), [node.iter], []))
        return [begin, ast.While(ast.Constant(value=True), [step, *node.body], [])]


class _WhileTrue(_Rewriter):
    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        leave = ast.If(ast.UnaryOp(ast.Not(), node.test), [ast.Break()], [])
        return ast.While(ast.Constant(value=True), [leave, *node.body], [])


class _ComprehensionToLoop(_Rewriter):
    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        return [*_collect(node.value, node.targets[0])] or [node]

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        loop = [*_collect(node.value, ast.Name("collected", ast.Store()))]
        return [*loop, ast.Return(_load("collected"))] if loop else [node]


class _GeneratorToList(_Rewriter):
    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        self.generic_visit(node)
        return ast.ListComp(node.elt, node.generators)


class _DeadCode(_Rewriter):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        unused = ast.If(ast.Constant(value=False), [ast.Raise(_load("AssertionError"), None)], [])
        _insert(node.body, [unused, _assign("unused", ast.Constant(0))])
        return node


class _OtherDocstrings(_Rewriter):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        body = node.body[1:] if ast.get_docstring(node) else node.body
        node.body = [ast.Expr(ast.Constant(f"Documentation of {node.name}, written again.")), *body]
        return node


class _NoDocstrings(_Rewriter):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if ast.get_docstring(node) and len(node.body) > 1:
            node.body = node.body[1:]
        return node


class _TypeHints(_Rewriter):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        for argument in node.args.args:
            if argument.arg != "self":
                argument.annotation = _load("object")
        node.returns = _load("object")
        return node


class _PrivateBodies(_Rewriter):
    """The body of each function at the top moves into a private one."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        body: list[ast.stmt] = []
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                private = copy.deepcopy(statement)
                private.name = f"_{statement.name}_body"
                names: list[ast.expr] = [_load(argument.arg) for argument in statement.args.args]
                statement.body = [ast.Return(ast.Call(_load(private.name), names, []))]
                body.append(private)
            body.append(statement)
        node.body = body
        return node


class _Decorators(_Rewriter):
    """A decorator that changes nothing."""

    _SOURCE: Final = (
        "def _unchanged(function):\n"
        "    def inner(*args, **kwargs):\n"
        "        return function(*args, **kwargs)\n"
        "    return inner"
    )

    def visit_Module(self, node: ast.Module) -> ast.AST:
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                statement.decorator_list = [_load("_unchanged")]
        _insert(node.body, ast.parse(self._SOURCE).body)
        return node


class _ExpandAugmented(_Rewriter):
    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return node
        return ast.Assign([node.target], ast.BinOp(_load(node.target.id), node.op, node.value))


class _LaterFunctionsFirst(_Rewriter):
    def visit_Module(self, node: ast.Module) -> ast.AST:
        functions = [statement for statement in node.body if isinstance(statement, ast.FunctionDef)]
        others = [statement for statement in node.body if not isinstance(statement, ast.FunctionDef)]
        node.body = [*others, *functions[::-1]]
        return node


class _ElseAfterReturn(_Rewriter):
    """What follows on an early return moves into its else."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        for position, statement in enumerate(node.body[:-1]):
            if isinstance(statement, ast.If) and not statement.orelse and isinstance(statement.body[-1], ast.Return):
                statement.orelse = node.body[position + 1 :]
                node.body = node.body[: position + 1]
                break
        return node


class _NegateBothSides(_Rewriter):
    """By De Morgan, where a truth value is enough."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        negated: list[ast.expr] = [ast.UnaryOp(ast.Not(), value) for value in node.values]
        return ast.UnaryOp(ast.Not(), ast.BoolOp(other, negated))


class _ConditionalToStatements(_Rewriter):
    def visit_Return(self, node: ast.Return) -> ast.AST:
        if not isinstance(node.value, ast.IfExp):
            return node
        return ast.If(node.value.test, [ast.Return(node.value.body)], [ast.Return(node.value.orelse)])

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if not isinstance(node.value, ast.IfExp):
            return node
        one = ast.Assign(node.targets, node.value.body)
        return ast.If(node.value.test, [one], [ast.Assign(copy.deepcopy(node.targets), node.value.orelse)])


class _SpelledNumbers(_Rewriter):
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is not int or node.value > 10_000:
            return node
        return ast.BinOp(ast.Constant(node.value + 1), ast.Sub(), ast.Constant(1))


class _UnpackedArguments(_Rewriter):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if len(node.args) < 2 or any(isinstance(argument, ast.Starred) for argument in node.args):
            return node
        node.args = [ast.Starred(ast.List(node.args, ast.Load()), ast.Load())]
        return node


class _ReorderIndependent(_Rewriter):
    """Two neighbours that set names to constants or empty containers change places."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        for position in range(len(node.body) - 1):
            pair = node.body[position : position + 2]
            if all(_is_plain_assignment(statement) for statement in pair):
                node.body[position : position + 2] = pair[::-1]
        return node


_REWRITERS: Final[Sequence[Callable[[], _Rewriter]]] = (
    _Formatting,
    _RenameLocals,
    _FlipBranches,
    _FlipExpressions,
    _MirrorComparisons,
    _NegateComparisons,
    _ExtractResults,
    _ExtractConditions,
    _ForToWhile,
    _WhileTrue,
    _ComprehensionToLoop,
    _GeneratorToList,
    _DeadCode,
    _OtherDocstrings,
    _NoDocstrings,
    _TypeHints,
    _PrivateBodies,
    _Decorators,
    _ExpandAugmented,
    _LaterFunctionsFirst,
    _ElseAfterReturn,
    _NegateBothSides,
    _ConditionalToStatements,
    _SpelledNumbers,
    _UnpackedArguments,
    _ReorderIndependent,
)


def list_rewrites() -> list[str]:
    """Return the names of all rewrites, those of one kind first, then pairs."""
    singles = [_title(make) for make in _REWRITERS]
    pairs = [(at, 1 + (at + step) % (len(_REWRITERS) - 1)) for step in (1, 2, 5) for at in range(1, len(_REWRITERS))]
    return [*singles, *(_PAIR.join(singles[one] for one in pair) for pair in pairs)]


def rewrite(source: str, name: str) -> str:
    """Return the source after the rewrite of this name; it may have no effect."""
    makes = {_title(make): make for make in _REWRITERS}
    tree = ast.parse(source)
    for one in name.split(_PAIR):
        tree = makes[one]().apply_to(tree)
        tree = ast.parse(ast.unparse(tree))  # a node at two places becomes two
    return ast.unparse(tree) + "\n"


def _title(make: Callable[[], _Rewriter]) -> str:
    name = getattr(make, "__name__", "").strip("_")
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _insert(body: list[ast.stmt], statements: Sequence[ast.stmt]) -> None:
    """Insert statements behind the docstring."""
    first = body[0]
    at = int(isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant))
    body[at:at] = statements


def _collect(value: ast.expr | None, target: ast.expr) -> Iterator[ast.stmt]:
    """Yield the loop of a comprehension over one iterable."""
    if not isinstance(value, ast.ListComp) or not isinstance(target, ast.Name) or len(value.generators) != 1:
        return
    generator = value.generators[0]
    append = ast.Attribute(_load("gathered"), "append", ast.Load())
    body: ast.stmt = ast.Expr(ast.Call(append, [value.elt], []))
    for condition in reversed(generator.ifs):
        body = ast.If(condition, [body], [])
    yield _assign("gathered", ast.List([], ast.Load()))
    yield ast.For(generator.target, generator.iter, [body], [])
    yield ast.Assign([target], _load("gathered"))


def _is_plain_assignment(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name()], value=ast.Constant() | ast.List(elts=[]) | ast.Dict(keys=[])):
            return True
        case _:
            return False
