"""Calculator: exact arithmetic on the host, bounded in time and size, of expressions that a model writes."""

import ast
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

from envs.tools.function_tool import ToolError, tool

_MAX_LENGTH: Final = 1_000
"""Characters of an expression."""
_DEEPEST: Final = 300
_MAX_BITS: Final = 8_192
"""Bits of a numerator or denominator at any point."""
_MAX_FACTORIAL: Final = 900
_MAX_DIGITS: Final = 20
"""Digits of a decimal that is not exact."""
_EXPONENT = re.compile(r"e([+-]?\d+)", re.IGNORECASE)
_MAX_EXPONENT: Final = 300


@tool
def calculator(expression: str) -> str:
    """Calculate an expression exactly.

    It may hold + - * / // % **, parentheses, and the functions abs, min, max, floor, ceil, round, gcd, lcm, factorial,
    comb and sqrt.

    Args:
        expression: such as (3/4 + 1.25) * 12.
    """
    return calculate(expression)


def calculate(expression: str) -> str:
    """Return the value of an expression: an integer, an exact decimal, or a fraction with an approximation.

    Raises: ToolError: it is no such expression, or too large.
    """
    if len(expression) > _MAX_LENGTH:
        raise ToolError(f"calculator: expected at most {_MAX_LENGTH} characters, found {len(expression)}; split it")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return _write(_Evaluation(expression.strip()).value(tree.body, 0))
    except ZeroDivisionError as error:
        raise ToolError("calculator: division by zero") from error
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise ToolError(f"calculator: cannot read {expression[:100]!r}, {error}; write plain arithmetic") from error


class _Evaluation:
    """Values of the nodes of one expression."""

    def __init__(self, source: str) -> None:
        self._source = source

    def value(self, node: ast.expr, depth: int) -> Fraction:
        """Return the exact value of a node."""
        if depth > _DEEPEST:
            raise ToolError(f"calculator: nested more than {_DEEPEST} deep; split it")
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                found = _read_number(ast.get_source_segment(self._source, node) or "")
            case ast.UnaryOp(op=ast.UAdd() | ast.USub() as sign, operand=operand):
                inner = self.value(operand, depth + 1)
                found = -inner if isinstance(sign, ast.USub) else inner
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                found = _power(self.value(left, depth + 1), self.value(right, depth + 1))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                found = _OPERATORS[type(op)](self.value(left, depth + 1), self.value(right, depth + 1))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
                found = Fraction(_FUNCTIONS[name](*(self.value(one, depth + 1) for one in args)))
            case _:
                text = ast.get_source_segment(self._source, node) or type(node).__name__
                raise ToolError(f"calculator: cannot calculate {text[:100]!r}; write numbers, operators and functions")
        if max(found.numerator.bit_length(), found.denominator.bit_length()) > _MAX_BITS:
            raise ToolError(f"calculator: a value has more than {_MAX_BITS} bits; calculate with smaller numbers")
        return found


def _read_number(text: str) -> Fraction:
    exponent = _EXPONENT.search(text) if not text.lower().startswith("0x") else None
    if exponent and not -_MAX_EXPONENT <= int(exponent[1]) <= _MAX_EXPONENT:
        raise ToolError(f"calculator: {text[:40]} is out of range; stay within e-{_MAX_EXPONENT} to e{_MAX_EXPONENT}")
    is_based = text[:2].lower() in ("0x", "0o", "0b")
    return Fraction(int(text, 0)) if is_based else Fraction(text)


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        if exponent == Fraction(1, 2):
            return _root(base)
        raise ToolError("calculator: expected a whole exponent, or 1/2; use sqrt for roots")
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if size > 1 and size * abs(exponent) > _MAX_BITS:
        raise ToolError(f"calculator: the power has more than {_MAX_BITS} bits; calculate with smaller numbers")
    return base ** _whole(exponent) if size > 1 else _power_of_unit(base, exponent)


def _power_of_unit(base: Fraction, exponent: Fraction) -> Fraction:
    """Return a power of -1, 0 or 1, whose exponent may be huge."""
    if base == 0:
        return Fraction(0) ** (1 if exponent > 0 else 0 if exponent == 0 else -1)
    return base if exponent % 2 else Fraction(1)


def _round(value: Fraction, digits: Fraction = Fraction(0)) -> Fraction:
    return round(value, _whole(digits, -_MAX_DIGITS, _MAX_DIGITS))


def _gcd(*values: Fraction) -> int:
    return math.gcd(*map(_whole, values))


def _lcm(*values: Fraction) -> int:
    return math.lcm(*map(_whole, values))


def _factorial(value: Fraction) -> int:
    return math.factorial(_whole(value, 0, _MAX_FACTORIAL))


def _comb(n: Fraction, k: Fraction) -> int:
    return math.comb(_whole(n, 0, _MAX_FACTORIAL), _whole(k, 0, _MAX_FACTORIAL))


def _least(*values: Fraction) -> Fraction:
    return min(values)


def _greatest(*values: Fraction) -> Fraction:
    return max(values)


def _root(value: Fraction) -> Fraction:
    """Return the square root, exact where it is rational, else to 20 decimals."""
    if value < 0:
        raise ToolError("calculator: a negative number has no real square root")
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if top * top == value.numerator and bottom * bottom == value.denominator:
        return Fraction(top, bottom)
    scale = 10**_MAX_DIGITS
    return Fraction(math.isqrt(value.numerator * scale * scale // value.denominator), scale)


def _whole(value: Fraction, least: int | None = None, most: int | None = None) -> int:
    if value.denominator != 1:
        raise ToolError(f"calculator: expected a whole number, found {_write(value)}")
    if (least is not None and value < least) or (most is not None and value > most):
        raise ToolError(f"calculator: expected a whole number from {least} to {most}, found {_write(value)}")
    return int(value)


def _write(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    twos_and_fives = value.denominator
    for factor in (2, 5):
        while twos_and_fives % factor == 0:
            twos_and_fives //= factor
    digits = value.denominator.bit_length()
    if twos_and_fives == 1 and digits <= _MAX_DIGITS * 4:
        return _decimal(value, digits)
    return f"{value.numerator}/{value.denominator} ≈ {_decimal(value, _MAX_DIGITS)}"


def _decimal(value: Fraction, num_digits: int) -> str:
    scaled = round(abs(value) * 10**num_digits)
    text = str(scaled).rjust(num_digits + 1, "0")
    digits = f"{text[:-num_digits]}.{text[-num_digits:]}".rstrip("0").rstrip(".")
    return f"-{digits}" if value < 0 and digits != "0" else digits


_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: lambda left, right: left % right,
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Fraction | int]]] = {
    "abs": Fraction.__abs__,
    "min": _least,
    "max": _greatest,
    "floor": Fraction.__floor__,
    "ceil": Fraction.__ceil__,
    "round": _round,
    "gcd": _gcd,
    "lcm": _lcm,
    "factorial": _factorial,
    "comb": _comb,
    "sqrt": _root,
}
