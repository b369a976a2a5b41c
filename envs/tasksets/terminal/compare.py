"""Compares the files of a result with what they must be, as data; also a program of its own, for other verifiers.

``python3 -I compare.py EXPECTED.json FOLDER`` ends with status 0 if all are right. It needs nothing but Python.
"""

import json
import sys
from pathlib import Path
from typing import NoReturn

MAX_BYTES = 1 << 20
"""Largest size of a result."""


def is_right(expected: object, found: bytes) -> bool:
    """Whether a file is as expected: texts by line, without spaces at the ends of lines and of the text.

    JSON is compared by value: 1 is 1.0, as JSON has one kind of number, and neither true nor "1".
    """
    try:
        text = found.decode()
        if isinstance(expected, str):
            return _split_lines(text) == _split_lines(expected)
        value: object = json.loads(text, parse_constant=_refuse, parse_float=_read_float)
        return json.dumps(value, sort_keys=True) == json.dumps(expected, sort_keys=True)
    except (ValueError, RecursionError):
        return False


def _split_lines(text: str) -> list[str]:
    return [line.rstrip(" \t\r") for line in text.rstrip(" \t\r\n").split("\n")]


def _read_float(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() else value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _read(path: Path) -> bytes:
    """Return a plain file; empty: it is none, or too large."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
        return b""
    return path.read_bytes()


if __name__ == "__main__":
    results: dict[str, object] = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    sys.exit(not all(is_right(expected, _read(Path(sys.argv[2], name))) for name, expected in results.items()))
