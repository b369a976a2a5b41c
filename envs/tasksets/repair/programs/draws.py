"""Random cases of each template."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from envs.tasksets.repair.programs.template import Call, Case, call

_ITEMS = ("bolt", "cable", "drill", "fuse")


def draw_inventory(rng: Random) -> Case:
    """Return a case of inventory."""
    if rng.random() < 0.2:
        return [call("line_total", rng.randrange(1, 300), rng.randrange(1, 20), rng.randrange(0, 60))]
    calls: list[Call] = [call("Inventory", rng.randrange(1, 9))]
    calls += [_draw_inventory_step(rng) for _ in range(rng.randrange(2, 9))]
    return [*calls, call(".running_low"), _worth(rng)]


def _draw_inventory_step(rng: Random) -> Call:
    kind = rng.randrange(5)
    if kind < 2:
        return call(".receive", rng.choice(_ITEMS), rng.randrange(-1, 14))
    if kind < 4:
        return call(".ship", rng.choice(_ITEMS), rng.randrange(0, 9))
    return rng.choice([call(".running_low"), _worth(rng)])


def _worth(rng: Random) -> Call:
    return call(".worth", {item: rng.randrange(1, 99) for item in _ITEMS if rng.random() < 0.8})


_WORDS = ("a", "to", "the", "lamp", "river", "window", "gardens", "mountain", "extraordinary", "I", "is")


def draw_wrapping(rng: Random) -> Case:
    """Return a case of wrapping."""
    text = " ".join(rng.choice(_WORDS) for _ in range(rng.randrange(0, 9)))
    kind = rng.randrange(6)
    if kind < 3:
        return [call("wrap_text", text, rng.randrange(0 if rng.random() < 0.1 else 1, 18))]
    if kind < 5:
        return [call("justify", text, len(text) + rng.randrange(-4, 14))]
    return [call("split_long", rng.choice(_WORDS), rng.randrange(1, 9))]


def draw_intervals(rng: Random) -> Case:
    """Return a case of intervals."""
    spans: list[list[int]] = []
    for _ in range(rng.randrange(0, 7)):
        start = rng.randrange(-5, 25)
        spans.append([start, start + rng.randrange(-1, 8)])
    kind = rng.randrange(5)
    if kind < 2:
        return [call("merge_spans", spans)]
    if kind == 2:
        return [call("covered", spans)]
    if kind == 3:
        low = rng.randrange(-6, 12)
        return [call("free_spans", spans, low, low + rng.randrange(0, 20))]
    return [call("busiest", spans)]


_KEYS = ("a", "b", "c", "d", "e")


def draw_caching(rng: Random) -> Case:
    """Return a case of caching."""
    if rng.random() < 0.35:
        rows, columns = rng.randrange(0, 6), rng.randrange(1, 6)
        cells = [[row, column] for row in range(rows) for column in range(columns) if rng.random() < 0.12]
        return [call("count_ways", rows, columns, cells)]
    calls: list[Call] = [call("RecentCache", rng.randrange(0 if rng.random() < 0.05 else 1, 4))]
    for _ in range(rng.randrange(4, 13)):
        key = rng.choice(_KEYS)
        calls.append(call(".store", key, rng.randrange(100)) if rng.random() < 0.55 else call(".lookup", key, -1))
    return [*calls, call(".oldest_first"), call(".counts")]


_FIELDS = ("", "x", "12", "-7", "a b", "two", 'a "b"', "p;q", "3,4", '"', "--5", " 8 ")


def draw_records(rng: Random) -> Case:
    """Return a case of records."""
    separator = rng.choice([",", ";"])
    kind = rng.randrange(6)
    if kind < 2:
        line = "".join(rng.choice(['"', '"', separator, "a", "b", " ", '""', "7"]) for _ in range(rng.randrange(0, 10)))
        return [call("parse_fields", line, separator)]
    if kind == 2:
        return [call("format_fields", [rng.choice(_FIELDS) for _ in range(rng.randrange(1, 5))], separator)]
    if kind < 5:
        return [call("parse_table", _draw_text(rng, separator), separator)]
    records = [{"n": rng.choice(_FIELDS), "m": rng.choice(_FIELDS)} for _ in range(rng.randrange(0, 6))]
    return [call("sum_column", records, rng.choice(["n", "m", "k"]))]


def _draw_text(rng: Random, separator: str) -> str:
    width = rng.randrange(1, 4)
    lines = [separator.join("abc"[:width])]
    for _ in range(rng.randrange(0, 5)):
        most = width + (rng.random() < 0.1)
        lines.append(
            separator.join(rng.choice(["", "x", "12", "-7", "y z"]) for _ in range(rng.randrange(0, most + 1)))
        )
    return "\n".join(lines)


def draw_numerals(rng: Random) -> Case:
    """Return a case of numerals."""
    kind = rng.randrange(6)
    if kind < 2:
        return [call("to_roman", rng.choice([rng.randrange(1, 4000), rng.randrange(1, 60), rng.randrange(-2, 4002)]))]
    if kind == 2:
        return [call("from_roman", "".join(rng.choice("IVXLCDMi") for _ in range(rng.randrange(0, 5))))]
    if kind == 3:
        return [call("from_roman", _numeral(rng.randrange(1, 4000)))]
    if kind == 4:
        return [call("to_base", rng.choice([rng.randrange(-300, 300), rng.randrange(0, 20)]), rng.randrange(1, 18))]
    return [call("digit_root", rng.choice([rng.randrange(0, 30), rng.randrange(0, 10**6)]))]


def _numeral(number: int) -> str:
    """Return a numeral without the subtractive form of a template's code."""
    written = ""
    for power, letters in ((1000, "M--"), (100, "CDM"), (10, "XLC"), (1, "IVX")):
        one, five, ten = letters
        forms = ("", one, one * 2, one * 3, one + five, five, five + one, five + one * 2, five + one * 3, one + ten)
        written += forms[number // power % 10]
    return written


_OWNERS = ("ada", "ben", "eve")


def draw_ledger(rng: Random) -> Case:
    """Return a case of ledger."""
    if rng.random() < 0.15:
        return [call("interest", rng.randrange(-2000, 900000), rng.randrange(0, 900), rng.randrange(0, 400))]
    calls: list[Call] = [call("Ledger", rng.choice([0, 100, 500]))]
    calls += [call(".open_account", owner) for owner in _OWNERS[: rng.randrange(1, 4)]]
    for _ in range(rng.randrange(4, 11)):
        calls.append(_draw_ledger_step(rng))
    return [*calls, *(call(".statement", owner) for owner in _OWNERS)]


def _draw_ledger_step(rng: Random) -> Call:
    owner, cents = rng.choice(_OWNERS), rng.choice([0, 100, 250, 900, 5000, rng.randrange(-5, 90000)])
    kind = rng.randrange(7)
    if kind < 3:
        return call(".deposit", owner, cents)
    if kind == 3:
        return call(".withdraw", owner, cents)
    if kind < 6:
        return call(".transfer", owner, rng.choice(_OWNERS), cents)
    return rng.choice([call(".close_month", rng.randrange(0, 900)), call(".open_account", owner)])


_NAMES = "abcdefgh"


def draw_queueing(rng: Random) -> Case:
    """Return a case of queueing."""
    kind = rng.randrange(5)
    if kind == 0:
        return [call("order_of", [[rng.randrange(5), rng.choice(_NAMES)] for _ in range(rng.randrange(0, 9))])]
    if kind == 1:
        jobs = [[rng.randrange(12), rng.randrange(1, 8), rng.choice(_NAMES)] for _ in range(rng.randrange(0, 8))]
        return [call("simulate", jobs, rng.randrange(0 if rng.random() < 0.05 else 1, 4))]
    calls: list[Call] = [call("RankQueue")]
    calls += [_draw_queueing_step(rng) for _ in range(rng.randrange(4, 13))]
    return [*calls, *(call(".pop") for _ in range(6))]


def _draw_queueing_step(rng: Random) -> Call:
    return call(".push", rng.randrange(7), rng.choice(_NAMES)) if rng.random() < 0.7 else call(".pop")


def _draw_matrix(rng: Random, rows: int, columns: int) -> list[list[int]]:
    return [[rng.randrange(-4, 6) for _ in range(columns)] for _ in range(rows)]


def draw_matrices(rng: Random) -> Case:
    """Return a case of matrices."""
    kind = rng.randrange(6)
    if kind == 0:
        return [call("transpose", _draw_matrix(rng, rng.randrange(1, 4), rng.randrange(1, 4)))]
    if kind == 1:
        inner = rng.randrange(1, 4)
        right = _draw_matrix(rng, inner if rng.random() < 0.9 else inner + 1, rng.randrange(1, 4))
        return [call("multiply", _draw_matrix(rng, rng.randrange(1, 4), inner), right)]
    if kind == 2:
        size = rng.randrange(1, 4)
        return [call("power", _draw_matrix(rng, size, size), rng.randrange(-1 if rng.random() < 0.2 else 0, 6))]
    if kind == 3:
        size = rng.randrange(1, 5)
        return [call("determinant", _draw_matrix(rng, size, size))]
    return [call("spiral", _draw_matrix(rng, rng.randrange(1, 5), rng.randrange(1, 5)))]


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


def draw_formulas(rng: Random) -> Case:
    """Return a case of formulas."""
    text = _draw_formula(rng, rng.randrange(1, 4))
    kind = rng.randrange(8)
    if kind == 0:
        return [call("tokenize", text)]
    if kind == 1:
        return [call("used_names", text)]
    # only formulas that end in a value: which of two mistakes is reported first is not defined
    return [call("evaluate", text, {"x": rng.randrange(1, 9), "y": rng.randrange(1, 9), "rate2": rng.randrange(1, 99)})]


def _draw_date(rng: Random) -> list[int]:
    year = rng.choice([1900, 1999, 2000, 2003, 2004, 2023, 2024, 2100, rng.randrange(1890, 2110)])
    month = rng.randrange(1, 13)
    longest = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]
    return [year, month, rng.choice([1, longest, rng.randrange(1, longest + 1)])]


def draw_calendars(rng: Random) -> Case:
    """Return a case of calendars."""
    kind = rng.randrange(7)
    date = _draw_date(rng)
    if kind == 0:
        return [call("is_leap", rng.choice([date[0], rng.randrange(1, 25) * 100]))]
    if kind == 1:
        return [call("month_length", date[0], rng.randrange(0, 14))]
    if kind == 2:
        return [call("day_of_year", [date[0], date[1], date[2] + rng.choice([0, 0, 0, -1, 1])])]
    if kind == 3:
        return [call("add_days", date, rng.choice([0, 1, 31, rng.randrange(0, 800)]))]
    if kind < 6:
        return [call("days_between", date, _draw_date(rng))]
    return [call("weekday", date)]


_PLACES = "abcdefg"


def _draw_roads(rng: Random) -> list[list[object]]:
    roads: list[list[object]] = []
    for _ in range(rng.randrange(1, 9)):
        start, end = rng.sample(_PLACES, 2)
        roads.append([start, end, rng.randrange(1, 10)])
    return roads


def draw_routes(rng: Random) -> Case:
    """Return a case of routes."""
    kind = rng.randrange(6)
    if kind < 2:
        return [call("distances", _draw_roads(rng), rng.choice(_PLACES))]
    if kind == 2:
        return [call("fewest_roads", _draw_roads(rng), rng.choice(_PLACES), rng.choice(_PLACES))]
    if kind == 3:
        return [call("islands", _draw_roads(rng), rng.sample(_PLACES, rng.randrange(0, 7)))]
    names = rng.sample(_PLACES, rng.randrange(1, 7))
    needs: dict[str, list[str]] = {}
    for at, name in enumerate(names):
        pool = names if rng.random() < 0.05 else names[:at]
        needs[name] = rng.sample(pool, min(len(pool), rng.randrange(0, 3)))
    return [call("order_tasks", needs)]


DRAWS: Final[Mapping[str, Callable[[Random], Case]]] = {
    "inventory": draw_inventory,
    "wrapping": draw_wrapping,
    "intervals": draw_intervals,
    "caching": draw_caching,
    "records": draw_records,
    "numerals": draw_numerals,
    "ledger": draw_ledger,
    "queueing": draw_queueing,
    "matrices": draw_matrices,
    "formulas": draw_formulas,
    "calendars": draw_calendars,
    "routes": draw_routes,
}
"""Functions by template, in a fixed order: tasks are drawn from it."""
