"""Roman numerals, and numbers in other bases."""

from random import Random

from envs.tasksets.repair.programs.template import Case, Template, call

_SOURCE = '''\
"""Roman numerals, and numbers in other bases."""

STEPS = [
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"),
    (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
]


def to_roman(number):
    """Return the numeral of a number from 1 to 3999."""
    if number < 1 or number > 3999:
        raise ValueError("a numeral needs a number from 1 to 3999")
    numeral = ""
    for value, letters in STEPS:
        while number >= value:
            numeral += letters
            number -= value
    return numeral


def from_roman(numeral):
    """Return the number of a numeral in its usual form."""
    rest = numeral.upper()
    total = 0
    for value, letters in STEPS:
        while rest.startswith(letters):
            total += value
            rest = rest[len(letters):]
    if rest or total == 0 or to_roman(total) != numeral.upper():
        raise ValueError("this is no numeral")
    return total


def to_base(number, base):
    """Return the digits of a number, most significant first; a minus stands in front."""
    if base < 2 or base > 16:
        raise ValueError("a base is from 2 to 16")
    if number == 0:
        return "0"
    rest = abs(number)
    digits = ""
    while rest > 0:
        rest, digit = divmod(rest, base)
        digits = "0123456789abcdef"[digit] + digits
    return "-" + digits if number < 0 else digits


def digit_root(number):
    """Return the last digit that is left when digits are added again and again, and how often that was."""
    rounds = 0
    while number >= 10:
        number = sum(int(digit) for digit in str(number))
        rounds += 1
    return [number, rounds]
'''

_INDEPENDENT = """\
def to_roman(number):
    if not 0 < number < 4000:
        raise ValueError(number)
    parts = []
    letters = (("M", "", ""), ("C", "D", "M"), ("X", "L", "C"), ("I", "V", "X"))
    for power, (one, five, ten) in zip((3, 2, 1, 0), letters):
        digit = number // 10**power % 10
        if digit == 9:
            parts.append(one + ten)
        elif digit == 4:
            parts.append(one + five)
        else:
            parts.append(five * (digit > 4) + one * (digit % 5 if digit != 5 else 0) if power < 3 else one * digit)
    return "".join(parts)


def from_roman(numeral):
    wanted = numeral.upper()
    values = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
    total = 0
    for at, letter in enumerate(wanted):
        if letter not in values:
            raise ValueError(numeral)
        following = values.get(wanted[at + 1], 0) if at + 1 < len(wanted) else 0
        total += -values[letter] if values[letter] < following else values[letter]
    if total < 1 or total > 3999 or to_roman(total) != wanted:
        raise ValueError(numeral)
    return total


def to_base(number, base):
    if base not in range(2, 17):
        raise ValueError(base)
    sign = "-" if number < 0 else ""
    number = abs(number)
    reverse = []
    while True:
        reverse.append("0123456789abcdef"[number % base])
        number //= base
        if not number:
            return sign + "".join(reversed(reverse))


def digit_root(number):
    if number < 10:
        return [number, 0]
    total, rest = 0, number
    while rest:
        total, rest = total + rest % 10, rest // 10
    root, rounds = digit_root(total)
    return [root, rounds + 1]
"""


def _draw(rng: Random) -> Case:
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


NUMERALS = Template(
    name="numerals",
    source=_SOURCE,
    independent=_INDEPENDENT,
    names={
        "to_roman": ("to_roman", "as_numeral", "romanize"),
        "from_roman": ("from_roman", "read_numeral", "parse_roman"),
        "to_base": ("to_base", "in_base", "digits_in"),
        "digit_root": ("digit_root", "reduce_digits", "root_of_digits"),
        "numeral": ("numeral", "roman", "written"),
        "total": ("total", "amount", "result"),
        "rest": ("rest", "remaining", "left"),
        "rounds": ("rounds", "passes", "times"),
    },
    draw=_draw,
    edges=[
        [call("to_roman", 0)],
        [call("to_roman", 1)],
        [call("to_roman", 3999)],
        [call("to_roman", 4000)],
        [call("to_roman", 1994)],
        [call("to_roman", 444)],
        [call("to_roman", 888)],
        [call("to_roman", 995)],
        [call("to_roman", 49)],
        [call("from_roman", "")],
        [call("from_roman", "IIII")],
        [call("from_roman", "mcmxciv")],
        [call("from_roman", "VX")],
        [call("from_roman", "MMMCMXCIX")],
        [call("from_roman", "MMMM")],
        [call("from_roman", "XIIX")],
        [call("from_roman", "A")],
        [call("from_roman", "XA")],
        [call("to_base", 0, 2)],
        [call("to_base", -10, 2)],
        [call("to_base", 255, 16)],
        [call("to_base", 255, 17)],
        [call("to_base", 5, 1)],
        [call("to_base", 1, 2)],
        [call("to_base", -1, 3)],
        [call("to_base", 0, 17)],
        [call("digit_root", 9)],
        [call("digit_root", 10)],
        [call("digit_root", 0)],
        [call("digit_root", 199)],
    ],
)
