"""Mutations: small edits of Python that programmers make by mistake.

An edit replaces a piece of the text, so the rest of the file stays byte for byte, whatever the version of Python.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, tuple[str, ...]]]] = {
    ast.Lt: ("<", ("<=", ">")),
    ast.LtE: ("<=", ("<",)),
    ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">",)),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}
_OPERATORS: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"),
}
_CONSTANTS: Final[dict[object, str]] = {True: "False", False: "True"}
_CALLS: Final = {"min": "max", "max": "min", "any": "all", "all": "any", "append": "extend", "startswith": "endswith"}


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """One edit of a source text."""

    kind: str
    start: int
    """Offset of the first character that it replaces."""
    end: int
    old: str
    new: str

    @property
    def name(self) -> str:
        """Unique within the source."""
        return f"{self.kind}@{self.start}-{self.end}:{self.new}"

    def apply(self, source: str) -> str:
        """Return the changed source."""
        return source[: self.start] + self.new + source[self.end :]


def find_mutations(source: str) -> list[Mutation]:
    """Return the mutations of a source in ASCII, each once, in the order of the text."""
    found: dict[tuple[int, int, str], Mutation] = {}
    text = _Text(source)
    for function in ast.walk(text.tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            for one in (*_of_expression(node, text), *_of_statement(node, text), *_of_name(node, function, text)):
                if one.old != one.new and _parses(one.apply(source)):
                    found.setdefault((one.start, one.end, one.new), one)
    return [found[key] for key in sorted(found)]


class _Text:
    """A source with the places of its nodes."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tree = ast.parse(source)
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", source))]

    def begin(self, node: ast.expr | ast.stmt) -> int:
        return self._line_starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None, "parsed nodes have an end"
        assert node.end_col_offset is not None, "parsed nodes have an end"
        return self._line_starts[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.expr | ast.stmt) -> str:
        return self.source[self.begin(node) : self.end(node)]

    def replace(self, kind: str, node: ast.expr | ast.stmt, new: str) -> Mutation:
        return Mutation(kind=kind, start=self.begin(node), end=self.end(node), old=self.of(node), new=new)

    def replace_between(self, kind: str, left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[Mutation]:
        """Replace an operator between two operands; brackets may stand there too."""
        start, end = self.end(left), self.begin(right)
        match = re.search(r"(?<![<>=!/*])" + re.escape(old) + r"(?![=/*])", self.source[start:end])
        if match:
            at = start + match.start()
            yield Mutation(kind=kind, start=at, end=at + len(old), old=old, new=new)


def _of_expression(node: ast.AST, text: _Text) -> Iterator[Mutation]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _COMPARISONS:
            old, others = _COMPARISONS[type(operator)]
            for new in others:
                yield from text.replace_between("comparison", left, right, old, new)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            old, new = _OPERATORS[type(operator)]
            yield from text.replace_between("operator", left, right, old, new)
        case ast.BoolOp(op=operator, values=[left, right]):
            old, new = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
            yield from text.replace_between("operator", left, right, old, new)
        case _:
            yield from _of_value(node, text)


def _of_value(node: ast.AST, text: _Text) -> Iterator[Mutation]:
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield text.replace("inverted condition", node, text.of(operand))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield text.replace("operator", node, text.of(operand))
        case ast.Constant(value=bool(value)):
            yield text.replace("wrong value", node, _CONSTANTS[value])
        case ast.Constant(value=int(value)):
            yield text.replace("off by one", node, str(value + 1))
            if value > 0:
                yield text.replace("off by one", node, str(value - 1))
        case _:
            yield from _of_call(node, text)


def _of_call(node: ast.AST, text: _Text) -> Iterator[Mutation]:
    match node:
        case ast.Call(func=ast.Name(id=name) as function) if name in _CALLS:
            yield text.replace("wrong call", function, _CALLS[name])
        case ast.Call(func=ast.Attribute(value=owner, attr=name) as function) if name in _CALLS:
            yield text.replace("wrong call", function, f"{text.of(owner)}.{_CALLS[name]}")
        case ast.Tuple(elts=[first, second], ctx=ast.Load()):
            yield from _swap("broken key", first, second, text)
        case _:
            pass
    match node:
        case ast.Call(args=[first, second, *_]):
            yield from _swap("swapped arguments", first, second, text)
        case _:
            pass


def _swap(kind: str, first: ast.expr, second: ast.expr, text: _Text) -> Iterator[Mutation]:
    start, end = text.begin(first), text.end(second)
    between = text.source[text.end(first) : text.begin(second)]
    new = text.of(second) + between + text.of(first)
    if text.source.count("\n", start, end) == 0:
        yield Mutation(kind=kind, start=start, end=end, old=text.source[start:end], new=new)


def _of_statement(node: ast.AST, text: _Text) -> Iterator[Mutation]:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if not isinstance(test, ast.Compare | ast.UnaryOp | ast.BoolOp):
                yield text.replace("inverted condition", test, f"not {text.of(test)}")
            elif isinstance(test, ast.BoolOp):
                yield text.replace("missing condition", test, text.of(test.values[0]))
                yield text.replace("missing condition", test, text.of(test.values[-1]))
        case ast.AugAssign(op=operator, target=target, value=value) if type(operator) in _OPERATORS:
            old, new = _OPERATORS[type(operator)]
            yield from text.replace_between("operator", target, value, f"{old}=", f"{new}=")
        case ast.Return(value=value) if value is not None and isinstance(value, ast.BinOp):
            yield text.replace("missing step", value, text.of(value.left))
        case _:
            pass
    for block in _list_blocks(node):
        yield from _dropped(block, text)


def _list_blocks(node: ast.AST) -> Iterator[Sequence[ast.stmt]]:
    if isinstance(node, ast.FunctionDef | ast.If | ast.For | ast.While):
        yield node.body
    if isinstance(node, ast.If | ast.For | ast.While):
        yield node.orelse


def _dropped(block: Sequence[ast.stmt], text: _Text) -> Iterator[Mutation]:
    """Drop statements that later ones may do without."""
    for statement in block:
        match statement:
            case ast.If(body=[*_, ast.Return() | ast.Raise() | ast.Continue() | ast.Break()], orelse=[]):
                if len(block) > 1:
                    yield _drop_lines("missing edge case", statement, text)
            case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete() | ast.Continue() | ast.Break():
                yield text.replace("dropped statement", statement, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield text.replace("dropped statement", statement, "pass")
            case _:
                pass


def _drop_lines(kind: str, statement: ast.stmt, text: _Text) -> Mutation:
    """Drop a statement with its lines; the block has others."""
    start = text.source.rindex("\n", 0, text.begin(statement)) + 1
    end = text.source.index("\n", text.end(statement)) + 1
    return Mutation(kind=kind, start=start, end=end, old=text.source[start:end], new="")


def _of_name(node: ast.AST, function: ast.FunctionDef, text: _Text) -> Iterator[Mutation]:
    """Use the next parameter, or the next variable that was set before, in place of a variable."""
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
        return
    known = {argument.arg for argument in function.args.args if argument.arg != "self"}
    known |= {one.id for one in _stores(function) if one.lineno < node.lineno}
    if node.id in known and len(known) > 1:
        names = sorted(known)
        yield text.replace("wrong variable", node, names[(names.index(node.id) + 1) % len(names)])


def _stores(function: ast.FunctionDef) -> Iterator[ast.Name]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True
