"""Text in lines of bounded width."""

from random import Random

from envs.tasksets.repair.programs.template import Case, Template, call

_SOURCE = '''\
"""Text in lines of bounded width."""


def split_long(word, width):
    """Cut a word into pieces of at most this width."""
    pieces = []
    start = 0
    while start < len(word):
        pieces.append(word[start:start + width])
        start += width
    return pieces


def wrap_text(text, width):
    """Return lines of whole words; a word that is wider than a line is cut."""
    if width < 1:
        raise ValueError("a line has at least one column")
    lines = []
    line = ""
    for word in text.split():
        for piece in split_long(word, width):
            if not line:
                line = piece
            elif len(line) + 1 + len(piece) <= width:
                line = line + " " + piece
            else:
                lines.append(line)
                line = piece
    if line:
        lines.append(line)
    return lines


def justify(line, width):
    """Widen the gaps between words, leftmost first, until the line is full."""
    words = line.split()
    if len(words) < 2:
        return line
    spaces = width - sum(len(word) for word in words)
    gaps = len(words) - 1
    if spaces < gaps:
        return line
    each, extra = divmod(spaces, gaps)
    result = words[0]
    for index in range(gaps):
        size = each + 1 if index < extra else each
        result += " " * size + words[index + 1]
    return result
'''

_INDEPENDENT = """\
def split_long(word, width):
    return [word[at : at + width] for at in range(0, len(word), width)]


def wrap_text(text, width):
    if not width >= 1:
        raise ValueError(width)
    rows = [[]]
    used = 0
    for word in text.split():
        for piece in split_long(word, width):
            needed = len(piece) + (1 if rows[-1] else 0)
            if used + needed > width:
                rows.append([])
                used, needed = 0, len(piece)
            rows[-1].append(piece)
            used += needed
    return [" ".join(row) for row in rows if row]


def justify(line, width):
    words = line.split()
    missing = width - len(" ".join(words))
    if len(words) <= 1 or missing < 0:
        return line
    fillers = [" "] * (len(words) - 1)
    while missing:
        for position in range(len(fillers)):
            if missing:
                fillers[position] += " "
                missing -= 1
    return "".join(word + filler for word, filler in zip(words, fillers + [""]))
"""

_WORDS = ("a", "to", "the", "lamp", "river", "window", "gardens", "mountain", "extraordinary", "I", "is")


def _draw(rng: Random) -> Case:
    text = " ".join(rng.choice(_WORDS) for _ in range(rng.randrange(0, 9)))
    kind = rng.randrange(6)
    if kind < 3:
        return [call("wrap_text", text, rng.randrange(0 if rng.random() < 0.1 else 1, 18))]
    if kind < 5:
        return [call("justify", text, len(text) + rng.randrange(-4, 14))]
    return [call("split_long", rng.choice(_WORDS), rng.randrange(1, 9))]


WRAPPING = Template(
    name="wrapping",
    source=_SOURCE,
    independent=_INDEPENDENT,
    names={
        "split_long": ("split_long", "cut_word", "chop"),
        "wrap_text": ("wrap_text", "fold", "to_lines"),
        "justify": ("justify", "stretch", "fill_line"),
        "word": ("word", "token", "term"),
        "width": ("width", "columns", "limit"),
        "pieces": ("pieces", "parts", "chunks"),
        "spaces": ("spaces", "blanks", "padding"),
        "extra": ("extra", "remainder", "left_over"),
    },
    draw=_draw,
    edges=[
        [call("wrap_text", "", 5)],
        [call("wrap_text", "ab cd", 0)],
        [call("wrap_text", "ab cd", 1)],
        [call("wrap_text", "ab cd", 5)],
        [call("wrap_text", "ab cd", 4)],
        [call("wrap_text", "abcdefgh", 4)],
        [call("wrap_text", "ab abcdefgh cd", 3)],
        [call("wrap_text", "  one   two ", 7)],
        [call("justify", "a b c", 10)],
        [call("justify", "a b c", 5)],
        [call("justify", "a b c", 4)],
        [call("justify", "alone", 12)],
        [call("justify", "", 3)],
        [call("justify", "ab cd", 9)],
        [call("justify", "a  b", 4)],
        [call("justify", "a  b", 3)],
        [call("split_long", "abcd", 4)],
        [call("split_long", "", 4)],
    ],
)
