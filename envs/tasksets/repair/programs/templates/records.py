"""Lines of separated fields."""

from random import Random

from envs.tasksets.repair.programs.template import Case, Template, call

_SOURCE = '''\
"""Lines of separated fields; a field in quotes may contain the separator, and a quote twice."""


def parse_fields(line, separator):
    """Return the fields of one line."""
    fields = []
    current = ""
    quoted = False
    index = 0
    while index < len(line):
        char = line[index]
        if char == '"' and quoted and line[index + 1:index + 2] == '"':
            current += char
            index += 1
        elif char == '"':
            quoted = not quoted
        elif char == separator and not quoted:
            fields.append(current)
            current = ""
        else:
            current += char
        index += 1
    if quoted:
        raise ValueError("a quote is open at the end of the line")
    fields.append(current)
    return fields


def format_fields(fields, separator):
    """Return the line that has these fields."""
    written = []
    for field in fields:
        if separator in field or '"' in field:
            field = '"' + field.replace('"', '""') + '"'
        written.append(field)
    return separator.join(written)


def parse_table(text, separator):
    """Return a record for each line below the head; empty lines do not count, missing fields are empty."""
    rows = [parse_fields(line, separator) for line in text.splitlines() if line.strip()]
    if not rows:
        return []
    head = rows[0]
    records = []
    for row in rows[1:]:
        if len(row) > len(head):
            raise ValueError("a line has more fields than the head")
        padded = row + [""] * (len(head) - len(row))
        records.append(dict(zip(head, padded)))
    return records


def sum_column(records, name):
    """Add the whole numbers of one column; return the sum, and how many fields were none."""
    total = 0
    skipped = 0
    for record in records:
        value = record.get(name, "").strip()
        digits = value[1:] if value.startswith("-") else value
        if digits.isdecimal():
            total += int(value)
        else:
            skipped += 1
    return [total, skipped]
'''

_INDEPENDENT = """\
def parse_fields(line, separator):
    if line.count('"') % 2:
        raise ValueError(line)
    fields, outside = [[]], True
    previous = None
    for char in line:
        if char == '"':
            if outside and previous == "closed":
                fields[-1].append(char)
                outside, previous = False, None
            elif outside:
                outside, previous = False, None
            else:
                outside, previous = True, "closed"
            continue
        previous = None
        if outside and char == separator:
            fields.append([])
        else:
            fields[-1].append(char)
    return ["".join(field) for field in fields]


def format_fields(fields, separator):
    def quote(field):
        if any(char in (separator, '"') for char in field):
            return "".join(['"', *('""' if char == '"' else char for char in field), '"'])
        return field

    return separator.join(map(quote, fields))


def parse_table(text, separator):
    head = None
    table = []
    for line in text.splitlines():
        if line.strip() == "":
            continue
        row = parse_fields(line, separator)
        if head is None:
            head = row
            table = []
            continue
        if not len(row) <= len(head):
            raise ValueError(line)
        table.append({name: (row[at] if at < len(row) else "") for at, name in enumerate(head)})
    return table


def sum_column(records, name):
    numbers = []
    for record in records:
        field = record[name].strip() if name in record else ""
        if field.removeprefix("-").isdecimal():
            numbers.append(int(field))
    return [sum(numbers), len(records) - len(numbers)]
"""

_FIELDS = ("", "x", "12", "-7", "a b", "two", 'a "b"', "p;q", "3,4", '"', "--5", " 8 ")


def _draw(rng: Random) -> Case:
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


RECORDS = Template(
    name="records",
    source=_SOURCE,
    independent=_INDEPENDENT,
    names={
        "parse_fields": ("parse_fields", "split_line", "read_fields"),
        "format_fields": ("format_fields", "write_line", "join_fields"),
        "parse_table": ("parse_table", "read_table", "load_rows"),
        "sum_column": ("sum_column", "add_up", "column_total"),
        "separator": ("separator", "delimiter", "divider"),
        "quoted": ("quoted", "in_quotes", "is_open"),
        "current": ("current", "field_text", "buffer"),
        "head": ("head", "header", "titles"),
        "skipped": ("skipped", "ignored", "not_numbers"),
    },
    draw=_draw,
    edges=[
        [call("parse_fields", "", ",")],
        [call("parse_fields", ",", ",")],
        [call("parse_fields", "a,b;c", ";")],
        [call("parse_fields", '"a,b",c', ",")],
        [call("parse_fields", '"say ""hi""",2', ",")],
        [call("parse_fields", '""', ",")],
        [call("parse_fields", '""""', ",")],
        [call("parse_fields", 'x"', ",")],
        [call("parse_fields", 'a"b"c,d', ",")],
        [call("format_fields", ["a", "b,c", 'd"e', ""], ",")],
        [call("format_fields", ["a;b", "c"], ",")],
        [call("parse_table", "", ",")],
        [call("parse_table", "a,b\n\n1\n2,3\n", ",")],
        [call("parse_table", "a,b\n1,2,3", ",")],
        [call("parse_table", "a,b\n  \n4,5", ",")],
        [call("parse_table", "a", ",")],
        [call("sum_column", [{"n": " 4 "}, {"n": "-9"}, {"n": "x"}, {"m": "1"}], "n")],
        [call("sum_column", [{"n": "-"}, {"n": ""}, {"n": "--2"}, {"n": "007"}], "n")],
        [call("sum_column", [{"n": "10"}, {"n": "20"}, {"n": "-5"}], "n")],
    ],
)
