"""Formulas of whole numbers."""

from random import Random

from envs.tasksets.repair.programs.template import Case, Template, call

_SOURCE = '''\
"""Formulas of whole numbers with variables, in the usual order of operators."""


def tokenize(text):
    """Return pairs of kind and text: number, name or sign."""
    tokens = []
    index = 0
    while index < len(text):
        char = text[index]
        if char.isspace():
            index += 1
            continue
        end = index + 1
        if char.isdigit():
            kind = "number"
            while end < len(text) and text[end].isdigit():
                end += 1
        elif char.isalpha():
            kind = "name"
            while end < len(text) and text[end].isalnum():
                end += 1
        elif char in "+-*/()":
            kind = "sign"
        else:
            raise ValueError("a character belongs to no token")
        tokens.append([kind, text[index:end]])
        index = end
    return tokens


class Parser:
    """Reads tokens from left to right and computes."""

    def __init__(self, tokens, variables):
        self.tokens = tokens
        self.variables = variables
        self.position = 0

    def peek(self):
        """Return the text of the next token; empty at the end."""
        if self.position >= len(self.tokens):
            return ""
        return self.tokens[self.position][1]

    def advance(self):
        """Return the next token, and go on behind it."""
        if self.position >= len(self.tokens):
            raise ValueError("the formula ends too early")
        token = self.tokens[self.position]
        self.position += 1
        return token

    def read_sum(self):
        """Return the value of products that are added or subtracted."""
        value = self.read_product()
        while self.peek() in ("+", "-"):
            sign = self.advance()[1]
            other = self.read_product()
            value = value + other if sign == "+" else value - other
        return value

    def read_product(self):
        """Return the value of operands that are multiplied or divided; division rounds down."""
        value = self.read_operand()
        while self.peek() in ("*", "/"):
            sign = self.advance()[1]
            other = self.read_operand()
            value = value * other if sign == "*" else value // other
        return value

    def read_operand(self):
        """Return the value of a number, a name, a negation or a formula in brackets."""
        kind, text = self.advance()
        if kind == "number":
            return int(text)
        if kind == "name":
            return self.variables[text]
        if text == "-":
            return -self.read_operand()
        if text != "(":
            raise ValueError("an operand is missing")
        value = self.read_sum()
        if self.advance()[1] != ")":
            raise ValueError("a bracket is open")
        return value


def evaluate(text, variables):
    """Return the value of a formula."""
    parser = Parser(tokenize(text), variables)
    value = parser.read_sum()
    if parser.peek():
        raise ValueError("something follows the formula")
    return value


def used_names(text):
    """Return the names in a formula, each once, in order of appearance."""
    found = []
    for kind, name in tokenize(text):
        if kind == "name" and name not in found:
            found.append(name)
    return found
'''

_INDEPENDENT = """\
import re

_TOKEN = re.compile(r"\\s*(?:([0-9]+)|([A-Za-z][A-Za-z0-9]*)|([-+*/()]))")


def tokenize(text):
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(text[at:])
        number, name, sign = match.groups()
        tokens.append(["number", number] if number else ["name", name] if name else ["sign", sign])
        at = match.end()
    return tokens


def _apply(values, sign):
    if sign == "negate":
        if not values:
            raise ValueError(sign)
        values.append(-values.pop())
        return
    if len(values) < 2:
        raise ValueError(sign)
    right, left = values.pop(), values.pop()
    values.append({"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right,
                   "/": lambda: left // right}[sign]())


_LEVEL = {"+": 1, "-": 1, "*": 2, "/": 2, "negate": 3}


def evaluate(text, variables):
    values, signs, expects_operand = [], [], True
    for kind, token in tokenize(text):
        if kind != "sign":
            if not expects_operand:
                raise ValueError(token)
            values.append(int(token) if kind == "number" else variables[token])
            expects_operand = False
        elif token == "(":
            if not expects_operand:
                raise ValueError(token)
            signs.append(token)
        elif token == ")":
            if expects_operand:
                raise ValueError(token)
            while signs and signs[-1] != "(":
                _apply(values, signs.pop())
            if not signs:
                raise ValueError(token)
            signs.pop()
        elif expects_operand:
            if token != "-":
                raise ValueError(token)
            signs.append("negate")
        else:
            while signs and signs[-1] != "(" and _LEVEL[signs[-1]] >= _LEVEL[token]:
                _apply(values, signs.pop())
            signs.append(token)
            expects_operand = True
    if expects_operand or "(" in signs:
        raise ValueError(text)
    while signs:
        _apply(values, signs.pop())
    return values[0]


def used_names(text):
    names = [token for kind, token in tokenize(text) if kind == "name"]
    return sorted(set(names), key=names.index)
"""


def _draw_formula(rng: Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([str(rng.randrange(0, 40)), "x", "y", "rate2"])
    kind = rng.randrange(8)
    if kind == 0:
        return "-" + _draw_formula(rng, depth - 1)
    if kind < 3:
        return "(" + _draw_formula(rng, depth - 1) + ")"
    space = rng.choice(["", " "])
    sign = rng.choice("+-*+-*/")
    return _draw_formula(rng, depth - 1) + space + sign + space + _draw_formula(rng, depth - 1)


def _draw(rng: Random) -> Case:
    text = _draw_formula(rng, rng.randrange(1, 4))
    kind = rng.randrange(8)
    if kind == 0:
        return [call("tokenize", text)]
    if kind == 1:
        return [call("used_names", text)]
    # only formulas that end in a value: which of two mistakes is reported first is not defined
    return [call("evaluate", text, {"x": rng.randrange(1, 9), "y": rng.randrange(1, 9), "rate2": rng.randrange(1, 99)})]


FORMULAS = Template(
    name="formulas",
    source=_SOURCE,
    independent=_INDEPENDENT,
    names={
        "tokenize": ("tokenize", "split_tokens", "scan"),
        "Parser": ("Parser", "Reader", "Calculator"),
        "evaluate": ("evaluate", "compute", "value_of"),
        "used_names": ("used_names", "names_in", "list_variables"),
        "read_sum": ("read_sum", "parse_terms", "additive"),
        "read_product": ("read_product", "parse_factors", "multiplicative"),
        "read_operand": ("read_operand", "parse_atom", "single"),
        "variables": ("variables", "bindings", "environment"),
        "other": ("other", "right", "second"),
    },
    draw=_draw,
    edges=[
        [call("tokenize", "")],
        [call("tokenize", " 12+ab3 ")],
        [call("tokenize", "a$")],
        [call("tokenize", "12a")],
        [call("tokenize", "x ")],
        [call("evaluate", "1 + 2 * 3", {})],
        [call("evaluate", "(1 + 2) * 3", {})],
        [call("evaluate", "10 - 4 - 3", {})],
        [call("evaluate", "7 / 2 * 2", {})],
        [call("evaluate", "-7 / 2", {})],
        [call("evaluate", "--x", {"x": 5})],
        [call("evaluate", "2 * -3", {})],
        [call("evaluate", "", {})],
        [call("evaluate", "1 +", {})],
        [call("evaluate", "(1", {})],
        [call("evaluate", "1)", {})],
        [call("evaluate", "1 2", {})],
        [call("evaluate", "* 2", {})],
        [call("evaluate", "x", {})],
        [call("evaluate", "(((4)))", {})],
        [call("evaluate", "(1 + 2", {})],
        [call("used_names", "a + b * a")],
        [call("used_names", "1 + 2")],
    ],
)
