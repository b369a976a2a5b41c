"""Calls functions of the judged code, or runs statements, each in a process of its own; writes their values as JSON.

Runs in a box with Python 3.8 or newer, in the folder of the code; standard input has calls and limits. Standard library
only, and in one file. The scorer trusts nothing here: the judged code can take over this process, and then only claims
other values.

Output: ``{"answers": [text or null, ...]}``, one per call in order; null: the process ended, or was too slow, before it
answered. The first slow call is the last. Each text is JSON: ``{"value": V}`` or ``{"raised": name of the type}``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # importing typing would cost each box milliseconds
if TYPE_CHECKING:
    from typing import Any

DEEPEST = 60
_MAX_INTEGER_BITS = 12000
_HEADER = 8
"""Digits of the length before an answer."""
_dumps = json.dumps  # before judged code is imported, which may replace it


def main() -> None:
    """Carry out all calls."""
    request = json.loads(sys.stdin.buffer.read())
    output = os.dup(1)
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # what judged code prints is its own affair
        os.dup2(quiet, descriptor)
    sys.stdin, sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(n, mode)) for n, mode in enumerate("rww"))
    answers: list[str | None] = []
    for call in request["calls"]:
        answer, is_slow = _call_apart(call, output, request["seconds"], request["max_bytes"])
        answers.append(answer)
        if is_slow:
            break
    _write(output, json.dumps({"answers": answers}).encode())


def _call_apart(call: dict[str, Any], output: int, seconds: float, max_bytes: int) -> tuple[str | None, bool]:
    """Return what a call answered, or None, and whether it was too slow."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.close(reading)
            os.close(output)
            _answer(call, writing)
        finally:
            os._exit(0)
    os.close(writing)
    try:
        return _read_answer(reading, time.monotonic() + seconds, max_bytes)
    finally:
        os.close(reading)
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _read_answer(reading: int, deadline: float, max_bytes: int) -> tuple[str | None, bool]:
    received = b""
    wanted = _HEADER
    while len(received) < wanted:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            return None, True
        piece = os.read(reading, min(1 << 16, wanted - len(received)))
        if not piece:
            return None, False
        received += piece
        if wanted == _HEADER and len(received) == _HEADER:
            if not received.isdigit() or int(received) > max_bytes:
                return None, False
            wanted += int(received)
    return received[_HEADER:].decode("utf-8", "replace"), False


def _answer(call: dict[str, Any], writing: int) -> None:
    """Make one call, and write its answer behind the answer's length."""
    sys.path.insert(0, os.getcwd())
    try:
        value = _run_code(call["code"]) if "code" in call else _make_call(call)
        answer = {"value": encode(value, DEEPEST)}
    except BaseException as error:  # noqa: BLE001  # judged code raises anything, SystemExit included
        answer = {"raised": type(error).__name__}
    body = _dumps(answer).encode()
    _write(writing, b"%0*d" % (_HEADER, len(body)) + body)


def _run_code(code: str) -> object:
    """Return what statements name ``FOUND``; values of a subclass of a plain type count as that type."""
    global _plain_type  # noqa: PLW0603  # of this process, which has no other request
    _plain_type = _base_type
    names: dict[str, Any] = {"__name__": "hidden_test"}
    exec(compile(code, "hidden_test", "exec"), names)  # the statements are the scorer's own
    return names["FOUND"]


def _make_call(call: dict[str, Any]) -> object:
    arguments = _decode(call["args"])
    named = {name: _decode(one) for name, one in call["kwargs"].items()}
    module, _, path = call["call"].partition(":")
    found: Any = __import__(module)
    for name in [*module.split(".")[1:], *path.split(".")]:
        found = getattr(found, name)
    value = found(*arguments, **named)
    if call["then"]:
        value = [
            getattr(value, name) if given is None else getattr(value, name)(*_decode(given))
            for name, given in call["then"]
        ]
    return [value, *arguments] if call["mutates"] else value


def _write(descriptor: int, body: bytes) -> None:
    while body:
        body = body[os.write(descriptor, body) :]


def _exact_type(value: object) -> type[object]:
    return type(value)


def _base_type(value: object) -> type[object]:
    return next((base for base in type(value).__mro__ if base in _ENCODERS or base in (bool, str)), type(value))


_plain_type = _exact_type


def encode(value: Any, depth: int) -> object:
    """Return a plain value as JSON that keeps its type; anything else is named, and equals nothing."""
    kind = _plain_type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return str.__str__(value)
    if kind not in _ENCODERS or depth == 0:
        return {"$object": kind.__name__}
    return _ENCODERS[kind](value, depth - 1)


def _encode_int(value: int, _: int) -> object:
    value = int.__pos__(value)
    if -(1 << 63) <= value < 1 << 64:
        return value
    return {"$int": str(value)} if value.bit_length() < _MAX_INTEGER_BITS else {"$object": "int"}


def _encode_float(value: float, _: int) -> object:
    value = float.__pos__(value)
    return value if value - value == 0 else {"$float": repr(value)}


def _encode_items(value: Any, depth: int) -> list[object]:
    return [encode(one, depth) for one in value]


def _encode_set(value: Any, depth: int) -> object:
    return {"$set": sorted(_encode_items(value, depth), key=lambda one: _dumps(one, sort_keys=True))}


def _encode_dict(value: dict[Any, Any], depth: int) -> object:
    if all(_plain_type(key) is str and not key.startswith("$") for key in value):
        return {str.__str__(key): encode(one, depth) for key, one in value.items()}
    return {"$dict": [[encode(key, depth), encode(one, depth)] for key, one in value.items()]}


def _encode_tuple(value: Any, depth: int) -> object:
    return {"$tuple": _encode_items(value, depth)}


def _encode_bytes(value: bytes, _: int) -> object:
    return {"$bytes": value.hex()}


_ENCODERS: dict[type, Any] = {
    int: _encode_int,
    float: _encode_float,
    list: _encode_items,
    tuple: _encode_tuple,
    set: _encode_set,
    frozenset: _encode_set,
    bytes: _encode_bytes,
    dict: _encode_dict,
}


def _decode_tuple(inner: Any) -> object:
    return tuple(map(_decode, inner))


def _decode_set(inner: Any) -> object:
    return set(map(_decode, inner))


def _decode_dict(inner: Any) -> object:
    return {_decode(key): _decode(one) for key, one in inner}


_DECODERS: dict[str, Any] = {
    "$tuple": _decode_tuple,
    "$set": _decode_set,
    "$dict": _decode_dict,
    "$bytes": bytes.fromhex,
    "$int": int,
    "$float": float,
}


def _decode(value: Any) -> Any:
    """Return the value that tagged JSON stands for."""
    kind = _exact_type(value)
    if kind is list:
        return [_decode(one) for one in value]
    if kind is not dict:
        return value
    for tag in value:
        if tag in _DECODERS:
            return _DECODERS[tag](value[tag])
    return {key: _decode(value[key]) for key in value}


if __name__ == "__main__":
    main()
