"""A value compared with a JSON Schema: arguments of a tool call, an answer in a form that was asked.

A value misfits where every reader of the schema would say so, of whatever draft. What readers take differently, and
what is not known here, passes: the tool or the agent itself decides then. So a part that was passed over counts neither
as fitting below ``not``, ``if`` and ``oneOf``. References lead inside the schema; nothing is fetched. The work is
bounded, whatever the schema says: patterns go to a matcher of linear time (Rust's, through pydantic).
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, cast
from urllib.parse import unquote

import msgspec
from pydantic_core import SchemaError, SchemaValidator, core_schema

from agent_layer.schema.messages import as_json_object
from agent_layer.schema.record import JsonObject

_DEEPEST: Final = 64
_MAX_COMPARED: Final = 10_000
"""Values compared with parts of a schema; alternatives of alternatives of alternatives would go on for ever."""
_PATTERN_COST: Final = 100
"""Comparisons that a pattern counts as."""
_MAX_PATTERN_LENGTH: Final = 1000
_MAX_PATTERN_STATES: Final = 5000
"""Characters that a pattern describes at most, repetitions counted out."""
_MAX_PATTERN_WORK: Final = 10_000_000
"""Characters of a pattern, times those of a text."""
_MAX_VALUE_LENGTH: Final = 80
_WHOLE: Final = "the arguments"
_TYPES: Final[Mapping[str, Callable[[object], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
    "number": lambda value: _is_number(value),  # noqa: PLW0108  # it follows
}
_BOUNDS: Final[Mapping[str, tuple[Callable[[float, float], bool], str]]] = {
    "minimum": (lambda value, bound: value >= bound, "at least"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "more than"),
    "maximum": (lambda value, bound: value <= bound, "at most"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "less than"),
}
_SIZES: Final[Mapping[str, tuple[type, str, str]]] = {
    "minLength": (str, "minimum", "characters"),
    "maxLength": (str, "maximum", "characters"),
    "minItems": (list, "minimum", "items"),
    "maxItems": (list, "maximum", "items"),
    "minProperties": (dict, "minimum", "members"),
    "maxProperties": (dict, "maximum", "members"),
}
_OF_VALUES: Final = frozenset((*_BOUNDS, *_SIZES, "enum", "const", "pattern"))
_JOINING: Final = frozenset(("anyOf", "oneOf", "allOf", "not", "if"))
_NUMBER: Final = (int, float)
_FORMS: Final[Mapping[str, type | tuple[type, ...]]] = {
    **dict.fromkeys((*_SIZES, *_BOUNDS), _NUMBER),
    **dict.fromkeys(("enum", "required", "allOf", "anyOf", "oneOf", "prefixItems"), list),
    **dict.fromkeys(("properties", "patternProperties", "$defs", "definitions"), dict),
    **dict.fromkeys(("not", "if", "then", "else", "items", "additionalProperties"), (dict, bool)),
    **dict.fromkeys(("const", "default", "examples"), object),
    **dict.fromkeys(("title", "description", "$comment", "$schema", "pattern"), str),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly", "uniqueItems", "nullable"), bool),
    "type": (str, list),
}
"""Members of a schema that are known, in the forms that they have; all others may say anything."""
_CLASSES: Final = {"d": "[0-9]", "D": "[^0-9]", "w": "[0-9A-Za-z_]", "W": "[^0-9A-Za-z_]"}
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_TAKEN_DIFFERENTLY: Final = re.compile(r"\\[pPzAau<>]|\\b\{|\(\?(?!:)|\{,|&&|--|~~|\[\^?\]|\[[^\]]*\[")
"""What engines of regular expressions read in ways of their own, once other escapes are taken out."""
_COUNT: Final = re.compile(r"(\)?)\{(\d{1,9}),?(\d{0,9})\}")


def find_misfit(schema: JsonObject, value: object) -> str | None:
    """Return the first way in which a value does not fit a schema, as a sentence; None: it fits, or is not known to."""
    return _find(schema, value, "", _Whole(schema), 0)


class _Whole:
    """The whole schema, how much was compared with it, and how much of it was passed over."""

    def __init__(self, root: JsonObject) -> None:
        self.root, self.num_compared, self.num_passed_over = root, 0, 0

    def may_compare(self, cost: int = 1) -> bool:
        """Whether there is room for one more comparison; what there is none for is passed over."""
        self.num_compared += cost
        if self.num_compared > _MAX_COMPARED:
            self.num_passed_over += 1
        return self.num_compared <= _MAX_COMPARED


def _find(schema: object, value: object, place: str, whole: _Whole, depth: int) -> str | None:
    return next(_misfits(schema, value, place, whole, depth), None)


def _surely_fits(schema: object, value: object, whole: _Whole, depth: int) -> bool:
    """Whether a value fits, and no part of the schema was passed over."""
    before = whole.num_passed_over
    return _find(schema, value, "", whole, depth) is None and whole.num_passed_over == before


def _misfits(schema: object, value: object, place: str, whole: _Whole, depth: int) -> Iterator[str]:
    if schema is False:
        yield f"expected no {place}, found {_quote(value)}" if place else f"expected nothing, found {_quote(value)}"
    if isinstance(schema, bool) or not whole.may_compare():
        return
    schema = _follow(schema, whole) if depth <= _DEEPEST else None
    if schema is None:
        whole.num_passed_over += 1
    elif value is not None or schema.get("nullable") is not True:  # OpenAPI's
        misfit = _type_misfit(schema, value, place, whole)
        yield from _parted_misfits(schema, value, place, whole, depth) if misfit is None else [misfit]


def _parted_misfits(schema: JsonObject, value: object, place: str, whole: _Whole, depth: int) -> Iterator[str]:
    for names, find in ((_OF_VALUES, _value_misfits), (_JOINING, _joined_misfits)):
        if not names.isdisjoint(schema):
            yield from find(schema, value, place, whole, depth)
    if isinstance(value, dict):
        yield from _object_misfits(schema, cast("JsonObject", value), place, whole, depth)
    elif isinstance(value, list):
        yield from _list_misfits(schema, cast("list[object]", value), place, whole, depth)


def _joined_misfits(schema: JsonObject, value: object, place: str, whole: _Whole, depth: int) -> Iterator[str]:
    """Yield the misfits of what joins other schemas."""
    for name in ("anyOf", "oneOf"):
        yield from _misfits_of_all(name, _as_list(schema.get(name)), value, place, whole, depth + 1)
    for one in _as_list(schema.get("allOf")):
        yield from _misfits(one, value, place, whole, depth + 1)
    if "not" in schema and _surely_fits(schema["not"], value, whole, depth + 1):
        yield f"expected {place or _WHOLE} to be other than its schema excludes, found {_quote(value)}"
    if "if" in schema:
        before = whole.num_passed_over
        branch = "else" if _find(schema["if"], value, place, whole, depth + 1) is not None else "then"
        if branch == "else" or whole.num_passed_over == before:
            yield from _misfits(schema.get(branch, True), value, place, whole, depth + 1)


def _misfits_of_all(
    name: str, alternatives: Sequence[object], value: object, place: str, whole: _Whole, depth: int
) -> Iterator[str]:
    """Yield the misfit of the first alternative when a value fits none, and that it fits several of ``oneOf``."""
    misfits = list[str]()
    for one in alternatives:
        before = whole.num_passed_over
        misfit = _find(one, value, place, whole, depth)
        if misfit is not None:
            misfits.append(misfit)
        elif name == "anyOf" or whole.num_passed_over > before:
            return
    num_fitting = len(alternatives) - len(misfits)
    if alternatives and num_fitting == 0:
        yield misfits[0]
    elif num_fitting > 1:
        yield f"expected {place or _WHOLE} to fit one alternative, found {num_fitting} that it fits"


def _type_misfit(schema: JsonObject, value: object, place: str, whole: _Whole) -> str | None:
    found = schema.get("type")
    kinds = [kind for kind in _as_list(found) or [found] if isinstance(kind, str)]
    if not _TYPES.keys() >= set(kinds):
        whole.num_passed_over += 1
    elif kinds and not any(_TYPES[kind](value) for kind in kinds):
        return f"expected {place or _WHOLE} to be {' or '.join(kinds)}, found {_quote(value)}"
    return None


def _object_misfits(schema: JsonObject, value: JsonObject, place: str, whole: _Whole, depth: int) -> Iterator[str]:
    properties, patterns = (as_json_object(schema.get(name)) for name in ("properties", "patternProperties"))
    prefix = f"{place}." if place else ""
    for name in _as_list(schema.get("required")):
        if whole.may_compare() and isinstance(name, str) and name not in value:
            yield f"expected {prefix}{name}, found none"
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        own = [properties[name]] if name in properties else []
        for pattern, of_pattern in patterns.items():
            is_match = _matches(pattern, name, whole)
            own += [of_pattern] if is_match else [True] if is_match is None else []
        if not own and others is False:
            yield f"there is no {prefix}{name}; known: {', '.join(properties) or 'none'}"
        for one in own or [others]:
            yield from _misfits(one, item, f"{prefix}{name}", whole, depth + 1)


def _list_misfits(schema: JsonObject, value: list[object], place: str, whole: _Whole, depth: int) -> Iterator[str]:
    if schema.get("uniqueItems") is True:
        seen = set[bytes]()
        for index, item in enumerate(value):
            if whole.num_compared > _MAX_COMPARED:
                break
            text = msgspec.json.encode(item, order="sorted")
            if whole.may_compare(1 + len(text) // _PATTERN_COST) and text in seen:
                yield f"expected {place or _WHOLE} to have each item once, found item {index} again: {_quote(item)}"
            seen.add(text)
    firsts, others = _as_list(schema.get("prefixItems")), schema.get("items", True)
    for index, item in enumerate(value):
        of_item = firsts[index] if index < len(firsts) else others
        if of_item is not True:
            yield from _misfits(of_item, item, f"{place}[{index}]", whole, depth + 1)


def _value_misfits(schema: JsonObject, value: object, place: str, whole: _Whole, _: int) -> Iterator[str]:
    about = place or _WHOLE
    choices = _as_list(schema.get("enum"))
    if choices and whole.may_compare(len(choices)) and not any(_is_equal(one, value) for one in choices):
        yield f"expected {about} to be one of {', '.join(map(repr, choices))}, found {_quote(value)}"
    if "const" in schema and not _is_equal(schema["const"], value):
        yield f"expected {about} to be {_quote(schema['const'])}, found {_quote(value)}"
    for name, (holds, words) in _BOUNDS.items() if _is_number(value) else ():
        bound = schema.get(name)
        if _is_number(bound) and not holds(cast("float", value), cast("float", bound)):
            yield f"expected {about} to be {words} {_quote(bound)}, found {_quote(value)}"
    yield from _size_misfits(schema, value, about)
    pattern = schema.get("pattern")
    if isinstance(value, str) and isinstance(pattern, str) and _matches(pattern, value, whole) is False:
        yield f"expected {about} to match {_quote(pattern)}, found {_quote(value)}"


def _size_misfits(schema: JsonObject, value: object, about: str) -> Iterator[str]:
    for name, (kind, end, items) in _SIZES.items() if isinstance(value, str | list | dict) else ():
        bound, (holds, words) = schema.get(name), _BOUNDS[end]
        size = len(cast("Sequence[object]", value))
        if isinstance(value, kind) and _is_number(bound) and not holds(size, cast("float", bound)):
            yield f"expected {about} to have {words} {bound} {items}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_equal(one: object, other: object) -> bool:
    """Whether two values of JSON are equal: 1 and 1.0 are, 1 and true are not."""
    return one is other if isinstance(one, bool) or isinstance(other, bool) else one == other


def _follow(found: object, whole: _Whole) -> JsonObject | None:
    """Return the schema that a schema refers to (``#/$defs/NAME``, relative to the whole); None: it is not known."""
    for _ in range(_DEEPEST):
        if not isinstance(found, dict):
            return {} if found is True else None
        schema = cast("JsonObject", found)
        if "$ref" not in schema:
            whole.num_passed_over += sum(not _is_known(name, one) for name, one in schema.items())
            return schema
        reference = schema["$ref"]
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            return None
        whole.num_passed_over += len(schema) > 1  # drafts differ in whether a reference's neighbours count
        found = whole.root
        for name in unquote(reference).split("/")[1:]:
            found = as_json_object(found).get(name.replace("~1", "/").replace("~0", "~"))
    return None


def _is_known(name: str, value: object) -> bool:
    form = _FORMS.get(name)
    return form is not None and isinstance(value, form) and not (form is _NUMBER and isinstance(value, bool))


class _Pattern(NamedTuple):
    validator: SchemaValidator
    num_states: int


def _matches(pattern: str, text: str, whole: _Whole) -> bool | None:
    """Whether a pattern is found in a text, by ECMA 262; None: it is not known."""
    compiled = _compile(pattern) if whole.may_compare(_PATTERN_COST) else None
    if compiled is not None and len(text) * compiled.num_states <= _MAX_PATTERN_WORK:
        if compiled.validator.isinstance_python(text):
            return True
        # beyond ASCII, engines differ in what a letter, a space or one character is; Python's $ skips a last newline
        if (text.isascii() or ("\\" not in pattern and max(text) <= "\uffff")) and not text.endswith("\n"):
            return False
    whole.num_passed_over += 1
    return None


@lru_cache(maxsize=64)
def _compile(pattern: str) -> _Pattern | None:
    """Return what looks for a pattern; None: it may be read in several ways, or takes too much."""
    if len(pattern) > _MAX_PATTERN_LENGTH:
        return None
    plain = _ESCAPE.sub(lambda found: found[0] if found[1] in "pPzAau<>b" else "", pattern)
    counts = [(bool(group), int(most or least)) for group, least, most in _COUNT.findall(plain)]
    num_copies = math.prod(max(1, count) for is_group, count in counts if is_group)
    num_states = num_copies * (len(pattern) + sum(count for is_group, count in counts if not is_group))
    if num_states > _MAX_PATTERN_STATES or _TAKEN_DIFFERENTLY.search(plain):
        return None
    translated = _ESCAPE.sub(lambda found: _CLASSES.get(found[1], found[0]), pattern)
    try:
        return _Pattern(SchemaValidator(core_schema.str_schema(pattern=translated)), num_states)
    except SchemaError:
        return None


def _as_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}…"
