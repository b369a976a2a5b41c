"""Level 3: repositories and databases."""

from collections import Counter
from random import Random

from envs.tasksets.terminal.chores.chore import PREPARE_GIT, Chore, join_lines, python

_PEOPLE = ("ada", "ben", "cleo", "dora")
_WORDS = ("amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath")


def _stamp(number: int) -> str:
    return f"2026-03-{1 + number // 20:02}T{number % 20:02}:00:00Z"


def draw_authors(rng: Random) -> Chore:
    """Return a chore: commits by author on one branch."""
    counts, script = Counter[str](), list[str]()
    for number in range(rng.randrange(14, 20)):
        author, is_aside = rng.choice(_PEOPLE), number > 9 and rng.random() < 0.4
        if is_aside:
            script.append("git -C repo checkout -q -B aside\n")
        script.append(
            f"echo {number} >> repo/{rng.choice(_WORDS)}.txt\ncommit {author} 'Change {number}' {_stamp(number)}\n"
        )
        if is_aside:
            script.append("git -C repo checkout -q main\n")
        counts[author] += not is_aside
    return Chore(
        instruction="Write authors.json: an object of the number of commits on the branch main of repo for each name"
        " of an author.",
        prepare=PREPARE_GIT + "".join(script),
        solution=python(
            """
import collections, json, subprocess
names = subprocess.run(["git", "-C", "repo", "log", "main", "--format=%an"], capture_output=True, text=True).stdout
json.dump(collections.Counter(names.split()), open("authors.json", "w"))
"""
        ),
        results={"authors.json": {author: count for author, count in counts.items() if count}},
    )


def draw_lost(rng: Random) -> Chore:
    """Return a chore: the last text of a file that was removed."""
    name, script, text = rng.choice(_WORDS), list[str](), list[str]()
    for number in range(rng.randrange(4, 8)):
        text.append(f"{rng.choice(_WORDS)} {rng.randrange(10**6)}")
        script.append(f"echo '{text[-1]}' >> repo/{name}.txt\ncommit ada 'Note {number}' {_stamp(number)}\n")
        script.append(f"echo {number} >> repo/other.txt\ncommit ben 'Other {number}' {_stamp(number)}\n")
    script.append(f"git -C repo rm -q {name}.txt && commit cleo 'Tidy up' {_stamp(30)}\n")
    script.append("echo end >> repo/other.txt && commit dora 'End' 2026-03-09T00:00:00Z\n")
    return Chore(
        instruction="A file was removed from repo by mistake, in the commit 'Tidy up'. Write restored.txt: what it"
        " contained last.",
        prepare=PREPARE_GIT + "".join(script),
        solution="commit=$(git -C repo log --format=%H --grep='^Tidy up$')\n"
        'name=$(git -C repo show --format= --name-only "$commit")\n'
        'git -C repo show "$commit~1:$name" > restored.txt\n',
        results={"restored.txt": join_lines(text)},
    )


def draw_first(rng: Random) -> Chore:
    """Return a chore: the commit that made a sum too large."""
    script, subjects, values = list[str](), list[str](), dict[str, int]()
    limit, guilty = rng.randrange(900, 1500), ""
    for number in range(40):
        name = rng.choice(_WORDS)
        values[name] = rng.randrange(100, 300)
        subjects.append(f"Set {name} for the {number + 1}. time")
        script.append(f"echo {values[name]} > repo/{name}.txt\ncommit ada '{subjects[-1]}' {_stamp(number)}\n")
        if sum(values.values()) > limit and not guilty:
            guilty = subjects[-1]
            break
    script.append(
        "for word in amber birch; do echo 5 > repo/$word.txt; done; commit ben 'Small again' 2026-04-01T00:00:00Z\n"
    )
    if not guilty:
        return draw_first(rng)
    return Chore(
        instruction="Each file of repo has a number. Write culprit.txt: the subject of the first commit after which"
        f" the sum of all numbers was above {limit}.",
        prepare=PREPARE_GIT + "".join(script),
        solution=f"""for commit in $(git -C repo rev-list --reverse main); do
  sum=0
  for name in $(git -C repo ls-tree --name-only "$commit"); do
    sum=$((sum + $(git -C repo show "$commit:$name")))
  done
  if [ $sum -gt {limit} ]; then git -C repo log -1 --format=%s "$commit" > culprit.txt; break; fi
done
""",
        results={"culprit.txt": f"{guilty}\n"},
    )


def _make_database(statements: list[str]) -> tuple[dict[str, str], str]:
    """Return files, and the program that makes shop.db of them."""
    program = (
        python("import sqlite3\nsqlite3.connect('shop.db').executescript(open('shop.sql').read())") + "rm shop.sql\n"
    )
    return {"shop.sql": join_lines(statements)}, program


def draw_totals(rng: Random) -> Chore:
    """Return a chore: sums out of three tables."""
    people = {number: rng.choice(_PEOPLE) + str(number % 3) for number in range(1, 12)}
    prices = {word: rng.randrange(1, 90) for word in _WORDS}
    statements = ["CREATE TABLE people (id INTEGER, name TEXT);", "CREATE TABLE prices (item TEXT, cents INTEGER);"]
    statements.append("CREATE TABLE orders (person INTEGER, item TEXT, number INTEGER, cancelled INTEGER);")
    statements += [f"INSERT INTO people VALUES ({number}, '{name}');" for number, name in people.items()]
    statements += [f"INSERT INTO prices VALUES ('{item}', {cents});" for item, cents in prices.items()]
    totals = dict[str, object]()
    for _ in range(70):
        person, item, number, is_cancelled = (
            rng.choice([*people]),
            rng.choice(_WORDS),
            rng.randrange(1, 9),
            rng.random() < 0.2,
        )
        statements.append(f"INSERT INTO orders VALUES ({person}, '{item}', {number}, {int(is_cancelled)});")
        if not is_cancelled:
            totals[people[person]] = int(str(totals.get(people[person], 0))) + number * prices[item]
    files, program = _make_database(statements)
    return Chore(
        instruction="shop.db is a database of SQLite with people, prices and orders. Write spent.json: an object of"
        " what all orders of each name cost together, in cents. Several people may have one name; orders that are"
        " cancelled do not count.",
        files=files,
        prepare=program,
        solution=python(
            """
import json, sqlite3
rows = sqlite3.connect("shop.db").execute(
    "SELECT name, sum(number * cents) FROM orders JOIN people ON person = id JOIN prices USING (item)"
    " WHERE NOT cancelled GROUP BY name")
json.dump(dict(rows.fetchall()), open("spent.json", "w"))
"""
        ),
        results={"spent.json": totals},
    )


def draw_orphans(rng: Random) -> Chore:
    """Return a chore: rows that refer to nothing."""
    known, orphans = rng.sample(range(1, 99), 20), list[int]()
    statements = [
        "CREATE TABLE folders (id INTEGER PRIMARY KEY);",
        "CREATE TABLE notes (id INTEGER, folder INTEGER, text TEXT);",
    ]
    statements += [f"INSERT INTO folders VALUES ({one});" for one in known]
    for number in rng.sample(range(1000, 9999), 60):
        folder = rng.choice([*known, *known, *known, 200, 201])
        has_none = rng.random() < 0.1
        statements.append(f"INSERT INTO notes VALUES ({number}, {'NULL' if has_none else folder}, 'x');")
        if not has_none and folder not in known:
            orphans.append(number)
    files, program = _make_database(statements)
    return Chore(
        instruction="In shop.db, a database of SQLite, each row of notes belongs to a folder, or to none where its"
        " folder is NULL. Write orphans.txt: the ids of notes whose folder does not exist, one a line, the smallest"
        " first.",
        files=files,
        prepare=program,
        solution=python(
            """
import sqlite3
rows = sqlite3.connect("shop.db").execute(
    "SELECT id FROM notes WHERE folder IS NOT NULL AND folder NOT IN (SELECT id FROM folders) ORDER BY id")
open("orphans.txt", "w").write("".join(f"{row[0]}\\n" for row in rows))
"""
        ),
        results={"orphans.txt": join_lines([str(one) for one in sorted(orphans)])},
    )
