"""Mutations of valid inputs: JSON trees, and bytes. A seed repeats a run."""

import json
from collections.abc import Iterator
from random import Random

NASTY_VALUES = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    2**31,
    2**53 + 1,
    2**63,
    -(2**63) - 1,
    10**40,
    1e308,
    -0.0,
    "",
    " ",
    "x" * 3000,
    "\0",
    "\x1b[31m",
    "é\u202e\U0001f600",
    "$content",
    "../../etc/passwd",
    "assistant",
    "tool",
    "data:image/png;base64,AAAA",
    [],
    [[]],
    {},
    {"type": "text"},
    {"$content": "0" * 32},
    {"": {"": ""}},
    [None, "a", 1, {}],
    "1e400",
)
"""JSON values that readers forget."""
NASTY_TEXTS = (b"NaN", b"1e400", b"-Infinity", b'"\\ud800"', b'"\xff"', b"9" * 40, b"[" * 600 + b"]" * 600, b"\0", b"")
"""What no JSON writer writes."""
_MARK = "\ue000"


def mutate_json(value: object, chance: Random) -> bytes:
    """Return the text of a JSON value with one to four of its places changed, and sometimes no JSON at all."""
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        value = _change(value, chance)
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    if chance.random() < 0.2:
        places = [path for path, _ in _places(value) if path]
        if places:
            marked = _replaced(value, chance.choice(places), _MARK)
            text = json.dumps(marked, ensure_ascii=False).encode("utf-8", "surrogatepass")
            text = text.replace(f'"{_MARK}"'.encode(), chance.choice(NASTY_TEXTS), 1)
    return mutate_bytes(text, chance) if chance.random() < 0.1 else text


def mutate_bytes(content: bytes, chance: Random) -> bytes:
    """Flip, cut out, double, overwrite or insert some of the bytes."""
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 3, 8])):
        begin = chance.randrange(len(changed) + 1)
        end = min(len(changed), begin + chance.choice([1, 1, 4, 16, 200, len(changed)]))
        match chance.randrange(6):
            case 0 if begin < len(changed):
                changed[begin] ^= 1 << chance.randrange(8)
            case 1:
                del changed[begin:end]
            case 2:
                changed[begin:begin] = changed[begin:end]
            case 3:
                changed[begin:begin] = chance.randbytes(chance.choice([1, 4, 64]))
            case 4:
                changed[begin:end] = bytes(end - begin)
            case _:
                del changed[begin:]
    return bytes(changed)


def _change(value: object, chance: Random) -> object:
    places = list(_places(value))
    path, found = chance.choice(places)
    match chance.randrange(6):
        case 0 if path:
            return _replaced(value, path, _GONE)
        case 1:
            _, other = chance.choice(places)
            return _replaced(value, path, other)
        case 2 if isinstance(found, dict):
            return _replaced(value, path, {**found, chance.choice(["x", "", "type", "id", "role"]): nasty(chance)})
        case 3 if isinstance(found, list):
            return _replaced(value, path, [*found, nasty(chance), *found[:2]])
        case 4 if isinstance(found, str):
            at = chance.randrange(len(found) + 1)
            return _replaced(value, path, found[:at] + str(nasty(chance)) + found[at:])
        case _:
            return _replaced(value, path, nasty(chance))


def nasty(chance: Random) -> object:
    """Return a value that readers forget."""
    return chance.choice(NASTY_VALUES)


_GONE = object()
_Path = tuple[object, ...]


def _places(value: object, path: _Path = ()) -> Iterator[tuple[_Path, object]]:
    yield path, value
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from _places(member, (*path, key))


def _replaced(value: object, path: _Path, new: object) -> object:
    if not path:
        return new
    key, *rest = path
    if isinstance(value, dict):
        changed = {
            name: _replaced(member, tuple(rest), new) if name == key else member for name, member in value.items()
        }
        return {name: member for name, member in changed.items() if member is not _GONE}
    changed_items = [_replaced(member, tuple(rest), new) if at == key else member for at, member in enumerate(value)]
    return [member for member in changed_items if member is not _GONE]
