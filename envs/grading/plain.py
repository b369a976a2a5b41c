"""Plain values as judged code claims them: strict JSON, read and compared by exact type.

Values that JSON has no form for are tagged: ``{"$tuple": [...]}``, ``{"$set": [...]}``, ``{"$bytes": hex}``,
``{"$int": digits}`` beyond 64 bits, ``{"$float": "nan" | "inf" | "-inf"}``, ``{"$dict": [[key, value], ...]}`` where a
key is no text or begins with ``$``, ``{"$object": type}`` for everything else, which equals nothing.

Everything here works on values that ``read_json`` made, so no foreign ``__eq__`` ever runs.
"""

import json
import math
import re
from collections.abc import Sequence, Sized
from typing import Final, NoReturn, TypeVar, cast

from agent_layer.errors import BadInputError

DEEPEST: Final = 200
"""Nesting of a claim, tags included."""
_MAX_DIGITS: Final = 4300
"""Digits of an integer; reading more takes quadratic time."""
_DIGITS: Final = re.compile(rf"-?[0-9]{{1,{_MAX_DIGITS - 1}}}")
_TAGS: Final = frozenset({"$tuple", "$set", "$bytes", "$int", "$float", "$dict", "$object"})


Made = TypeVar("Made", bound=Sized)


class ForgedJsonError(BadInputError):
    """A claim is no JSON that an honest writer produces."""


def read_json(text: str | bytes) -> object:
    """Parse strict JSON: no NaN, no duplicated key, no overflow, bounded nesting and digits.

    Raises: ForgedJsonError: it is none.
    """
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=_make_object,
            parse_constant=_refuse,
            parse_float=_read_float,
            parse_int=_read_int,
        )
    except RecursionError as error:
        raise ForgedJsonError("claim: it is nested too deep; return a flatter value") from error
    except ValueError as error:
        raise ForgedJsonError(f"claim: it is no JSON, {error}; return plain values") from error
    if not _is_shallow(value, DEEPEST):
        raise ForgedJsonError(f"claim: it is nested deeper than {DEEPEST}; return a flatter value")
    return value


def equal_values(expected: object, found: object, tolerance: float = 0.0, *, by_value: bool = False) -> bool:
    """Whether two plain values are the same, by exact type: ``True`` is not 1, and 1 is not 1.0.

    A NaN equals a NaN, 0.0 equals -0.0, the order of a dict's keys and of a set's items does not count. An
    ``{"$object": ...}`` equals nothing.

    Args:
        expected: of the grading.
        found: of ``read_json``.
        tolerance: absolute and relative difference that two finite floats may have.
        by_value: numbers of different types may be equal, as Python's ``==`` has it.
    """
    if by_value:
        expected, found = _read_long(expected), _read_long(found)
        if isinstance(expected, int | float) and isinstance(found, int | float):
            is_near = isinstance(expected, float) or isinstance(found, float)
            return expected == found or (is_near and _is_close(expected, found, tolerance))
    if type(expected) is not type(found):
        return False
    match expected:
        case float():
            return _is_close(expected, cast("float", found), tolerance)
        case list():
            return _equal_lists(
                cast("list[object]", expected), cast("list[object]", found), tolerance, by_value=by_value
            )
        case dict():
            return _equal_dicts(
                cast("dict[str, object]", expected), cast("dict[str, object]", found), tolerance, by_value=by_value
            )
        case _:
            return expected == found


def value_key(value: object) -> str:
    """Return a text that values which are equal by value share, and no others: 1, 1.0 and ``True`` have the same."""
    return json.dumps(_drop_types(value), sort_keys=True)


def check_plain(value: object, subject: str) -> None:
    """Check that tags in a grading are well formed.

    Raises: BadInputError: one is not, so that nothing could ever equal it.
    """
    match value:
        case list():
            for one in cast("list[object]", value):
                check_plain(one, subject)
        case dict():
            fields = cast("dict[str, object]", value)
            tags = [key for key in fields if key.startswith("$")]
            if tags and (len(fields) != 1 or tags[0] not in _TAGS - {"$object"}):
                raise BadInputError(
                    f"{subject}: {tags[0]!r} is no tag of a plain value; write a dict with such keys as"
                    ' {"$dict": [[key, value], ...]}'
                )
            for one in fields.values():
                check_plain(one, subject)
        case _:
            return


def read_value(value: object) -> object:
    """Return the Python value that a claim stands for, for checks: tuples, frozensets, bytes, dicts.

    Raises: ForgedJsonError: a tag is malformed, or the value has no plain form.
    """
    match value:
        case list():
            return [read_value(one) for one in cast("list[object]", value)]
        case dict():
            fields = cast("dict[str, object]", value)
            tags = [key for key in fields if key.startswith("$")]
            if tags and len(fields) == 1:
                return _read_tagged(tags[0], fields[tags[0]])
            if tags:
                raise ForgedJsonError(f"claim: {tags[0]} has members beside it; return plain values")
            return {key: read_value(one) for key, one in fields.items()}
        case _:
            return value


def _read_tagged(tag: str, inner: object) -> object:
    try:
        match tag, inner:
            case "$tuple", list():
                return tuple(read_value(one) for one in cast("list[object]", inner))
            case "$set", list():
                items = cast("list[object]", inner)
                return _check_size(frozenset(map(read_value, items)), items)
            case "$dict", list():
                pairs = cast("list[list[object]]", inner)
                return _check_size({read_value(key): read_value(one) for key, one in pairs}, pairs)
            case "$bytes", str():
                return bytes.fromhex(inner)
            case "$int", str():
                return _read_int(inner)
            case "$float", str():
                return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[inner]
            case _:
                raise ForgedJsonError(f"claim: {tag} has no plain form; return plain values")
    except (TypeError, ValueError, KeyError) as error:
        raise ForgedJsonError(f"claim: {tag} is malformed, {error!r}; return plain values") from error


def _check_size(made: Made, items: Sequence[object]) -> Made:
    if len(made) != len(items):
        raise ValueError("an item is there twice")
    return made


def _is_close(expected: float, found: float, tolerance: float) -> bool:
    try:
        return math.isclose(expected, found, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:  # an integer beyond all floats
        return False


def _equal_lists(expected: Sequence[object], found: Sequence[object], tolerance: float, *, by_value: bool) -> bool:
    return len(expected) == len(found) and all(
        equal_values(one, other, tolerance, by_value=by_value) for one, other in zip(expected, found, strict=True)
    )


def _equal_dicts(expected: dict[str, object], found: dict[str, object], tolerance: float, *, by_value: bool) -> bool:
    if expected.keys() != found.keys() or "$object" in expected:
        return False
    if len(expected) == 1 and (tag := next(iter(expected))) in ("$set", "$dict"):
        one, other = expected[tag], found[tag]
        if not isinstance(one, list) or not isinstance(other, list):
            return False
        items = _in_order(cast("list[object]", one)), _in_order(cast("list[object]", other))
        return _equal_lists(*items, tolerance, by_value=by_value)
    return all(equal_values(value, found[key], tolerance, by_value=by_value) for key, value in expected.items())


def _in_order(items: Sequence[object]) -> list[object]:
    return sorted(items, key=value_key)


def _drop_types(value: object) -> object:
    value = _read_long(value)
    match value:
        case bool() | float() if int(value) == value:
            return int(value)
        case list():
            return [_drop_types(one) for one in cast("list[object]", value)]
        case dict():
            fields = cast("dict[str, object]", value)
            unordered = fields.keys() & {"$set", "$dict"}
            return {
                key: _drop_types(
                    _in_order(cast("list[object]", one)) if key in unordered and isinstance(one, list) else one
                )
                for key, one in fields.items()
            }
        case _:
            return value


def _read_long(value: object) -> object:
    """Return an integer that is tagged for its length, and any other value as it is."""
    match value:
        case {"$int": str() as digits} if _DIGITS.fullmatch(digits):
            return int(digits)
        case _:
            return value


def _is_shallow(value: object, depth: int) -> bool:
    match value:
        case list():
            inner: Sequence[object] = cast("list[object]", value)
        case dict():
            inner = list(cast("dict[str, object]", value).values())
        case _:
            return True
    return depth > 0 and all(_is_shallow(one, depth - 1) for one in inner)


def _make_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is duplicated")
    return made


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _read_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _read_int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError("an integer is too long")
    return int(text)
