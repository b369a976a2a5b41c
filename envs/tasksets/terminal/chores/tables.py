"""Level 1: CSV, JSON, INI and encodings."""

import csv
import io
import json
from random import Random

from envs.tasksets.terminal.chores.chore import Chore, join_lines, python

_CITIES = ("Oslo", "Turin", "Lyon", "Graz", "Porto", "Split")
_WORDS = ("amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath")


def draw_join(rng: Random) -> Chore:
    """Return a chore: totals of one table by a column of another."""
    people = {number: rng.choice(_CITIES) for number in rng.sample(range(100, 999), 20)}
    orders = [(rng.choice([*people, 7]), rng.randrange(1, 500)) for _ in range(80)]
    totals = dict[str, object]()
    for person, amount in orders:
        if person in people:
            totals[people[person]] = int(str(totals.get(people[person], 0))) + amount
    return Chore(
        instruction="people.csv has columns id,city and orders.csv has columns person,amount. Write totals.json: an"
        " object of the sum of the amounts for each city that has orders. Orders of people who are not in people.csv"
        " do not count.",
        files={
            "people.csv": join_lines(["id,city", *(f"{number},{city}" for number, city in people.items())]),
            "orders.csv": join_lines(["person,amount", *(f"{person},{amount}" for person, amount in orders)]),
        },
        solution=python(
            """
import csv, json
city = {row["id"]: row["city"] for row in csv.DictReader(open("people.csv"))}
totals = {}
for row in csv.DictReader(open("orders.csv")):
    if row["person"] in city:
        totals[city[row["person"]]] = totals.get(city[row["person"]], 0) + int(row["amount"])
json.dump(totals, open("totals.json", "w"), indent=1)
"""
        ),
        results={"totals.json": totals},
    )


def draw_clean(rng: Random) -> Chore:
    """Return a chore: a table without doubled rows, and without spaces around its fields."""
    rows = sorted(
        {(rng.randrange(10**4), rng.choice(_WORDS), f"{rng.choice(_CITIES)}, {rng.choice('NSEW')}") for _ in range(30)}
    )
    dirty = [*rows, *rng.sample(rows, 8)]
    rng.shuffle(dirty)
    text, clean = io.StringIO(), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in dirty:
        writer.writerow([f"{' ' * rng.randrange(2)}{field}{' ' * rng.randrange(3)}" for field in row])
    csv.writer(clean, lineterminator="\n").writerows(rows)
    return Chore(
        instruction="raw.csv has three columns without a head: a number, a word, a place. Write clean.csv: the fields"
        " without spaces at their ends, each row once, ordered by number, then word, then place; quote only fields"
        " that need it.",
        files={"raw.csv": text.getvalue()},
        solution=python(
            """
import csv
rows = {tuple(field.strip() for field in row) for row in csv.reader(open("raw.csv"))}
with open("clean.csv", "w", newline="") as out:
    csv.writer(out, lineterminator="\\n").writerows(sorted(rows, key=lambda row: (int(row[0]), row[1], row[2])))
"""
        ),
        results={"clean.csv": clean.getvalue()},
    )


def draw_flatten(rng: Random) -> Chore:
    """Return a chore: a nested document as lines of paths and values."""

    def make(depth: int) -> object:
        if depth == 0 or rng.random() < 0.2:
            return rng.choice((rng.randrange(1000), rng.choice(_WORDS), True, None))
        if rng.random() < 0.3:
            return [make(depth - 1) for _ in range(rng.randrange(1, 4))]
        return {word: make(depth - 1) for word in rng.sample(_WORDS, 3)}

    def flatten(value: object, path: str) -> list[str]:
        match value:
            case dict():
                return [line for key, one in value.items() for line in flatten(one, f"{path}.{key}")]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            case list():
                return [line for at, one in enumerate(value) for line in flatten(one, f"{path}[{at}]")]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            case _:
                return [f"{path} = {json.dumps(value)}"]

    document = {word: make(3) for word in rng.sample(_WORDS, 4)}
    return Chore(
        instruction="Write flat.txt: a line for each number, text, truth value and null of document.json, such as"
        " '.birch.dune[0] = 3', '.cedar = \"x\"' or '.dune.ember = null', sorted as 'LC_ALL=C sort' does.",
        files={"document.json": json.dumps(document, indent=2)},
        solution=python(
            """
import json
def walk(value, path):
    if isinstance(value, (dict, list)):
        named = [("." + key, value[key]) for key in value] if isinstance(value, dict) else [
            (f"[{at}]", one) for at, one in enumerate(value)]
        return [line for name, one in named for line in walk(one, path + name)]
    return [path + " = " + json.dumps(value)]
open("flat.txt", "w").write("\\n".join(sorted(walk(json.load(open("document.json")), ""))) + "\\n")
"""
        ),
        results={"flat.txt": join_lines(sorted(flatten(document, "")))},
    )


def draw_settings(rng: Random) -> Chore:
    """Return a chore: what holds after several files of settings."""
    effective = dict[str, object]()
    files = dict[str, str]()
    for number in range(3):
        lines = list[str]()
        for section in rng.sample(("web", "mail", "cache"), 2):
            lines.append(f"[{section}]")
            for key in rng.sample(_WORDS, 4):
                value = str(rng.randrange(1000))
                lines += [rng.choice(("", "; a remark")), f"{key}{rng.choice(('=', ' = '))}{value}"]
                effective[f"{section}.{key}"] = int(value)
        files[f"conf.d/{number}0-{rng.choice(_WORDS)}.ini"] = join_lines(lines)
    return Chore(
        instruction="conf.d has files of settings in INI form; they are read in the order of their names, and a later"
        " one replaces what earlier ones say. Write effective.json: an object of what holds at the end, with keys"
        " such as 'web.dune' and whole numbers as values.",
        files=files,
        solution=python(
            """
import configparser, glob, json
parser = configparser.ConfigParser()
parser.read(sorted(glob.glob("conf.d/*.ini")))
found = {f"{name}.{key}": int(value) for name in parser.sections() for key, value in parser[name].items()}
json.dump(found, open("effective.json", "w"))
"""
        ),
        results={"effective.json": effective},
    )


def draw_encoding(rng: Random) -> Chore:
    """Return a chore: texts of three encodings as one of UTF-8."""
    lines = [
        [f"{rng.choice(('Ärger', 'façade', 'niño', 'Öl', 'crème', 'Straße'))} {rng.randrange(10**4)}" for _ in range(6)]
        for _ in range(3)
    ]
    return Chore(
        instruction="one.txt is in Latin-1, two.txt in UTF-16 with a mark of its order, three.txt in UTF-8 with lines"
        " that end in CR LF. Write all.txt: the lines of one.txt, two.txt and three.txt, in this order, in UTF-8 with"
        " lines that end in LF.",
        files={f"{name}.txt": join_lines(part) for name, part in zip(("one", "two", "three"), lines, strict=True)},
        prepare="iconv -f UTF-8 -t LATIN1 one.txt > new && mv new one.txt\n"
        "iconv -f UTF-8 -t UTF-16 two.txt > new && mv new two.txt\n"
        "sed -i 's/$/\\r/' three.txt\n",
        solution="{ iconv -f LATIN1 -t UTF-8 one.txt; iconv -f UTF-16 -t UTF-8 two.txt; tr -d '\\r' < three.txt; }"
        " > all.txt\n",
        results={"all.txt": join_lines([line for part in lines for line in part])},
    )
