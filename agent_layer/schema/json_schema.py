"""A value compared with a JSON Schema: arguments of a tool call, an answer in a form that was asked.

Covers what schemas of tools use: types, properties, items, enumerations, alternatives, references and bounds. What it
does not know, it lets pass: the tool or the agent itself decides then. The work is bounded, whatever the schema says.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, cast
from urllib.parse import unquote

from agent_layer.schema.messages import as_json_object, as_json_objects
from agent_layer.schema.record import JsonObject

_DEEPEST: Final = 64
_MAX_COMPARED: Final = 10_000
"""Values compared with parts of a schema; alternatives of alternatives of alternatives would go on for ever."""
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
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
_BOUNDS: Final[Mapping[str, tuple[Callable[[float, float], bool], str]]] = {
    "minimum": (lambda value, bound: value >= bound, "at least"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "more than"),
    "maximum": (lambda value, bound: value <= bound, "at most"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "less than"),
}
_SIZES: Final[Mapping[str, tuple[type, str]]] = {
    "minLength": (str, "minimum"),
    "maxLength": (str, "maximum"),
    "minItems": (list, "minimum"),
    "maxItems": (list, "maximum"),
}


def find_misfit(schema: JsonObject, value: object) -> str | None:
    """Return the first way in which a value does not fit a schema, as a sentence; None: it fits."""
    return next(_misfits(schema, value, "", _Whole(schema), 0), None)


class _Whole:
    """The whole schema, and how much was compared with it."""

    def __init__(self, root: JsonObject) -> None:
        self.root, self.num_compared = root, 0


def _misfits(schema: JsonObject, value: object, place: str, whole: _Whole, depth: int) -> Iterator[str]:
    whole.num_compared += 1
    if depth > _DEEPEST or whole.num_compared > _MAX_COMPARED:
        yield f"expected {place or _WHOLE} to be nested at most {_DEEPEST} deep, found more"
        return
    schema = _follow(schema, whole.root)
    if (misfit := _type_misfit(schema, value, place)) is not None:
        yield misfit
        return
    whole.num_compared += len(_as_list(schema.get("enum")))
    yield from _value_misfits(schema, value, place or _WHOLE)
    if (misfit := _find_unlike_all(schema, value, place, whole, depth)) is not None:
        yield misfit
    for one in as_json_objects(schema.get("allOf")):
        yield from _misfits(one, value, place, whole, depth + 1)
    if isinstance(value, dict):
        yield from _object_misfits(schema, cast("JsonObject", value), place, whole, depth)
    elif isinstance(value, list):
        yield from _list_misfits(schema, cast("list[object]", value), place, whole, depth)


def _find_unlike_all(schema: JsonObject, value: object, place: str, whole: _Whole, depth: int) -> str | None:
    """Return the misfit of the first alternative when a value fits none; None: it fits one, or there are none."""
    first: str | None = None
    for one in as_json_objects(schema.get("anyOf") or schema.get("oneOf")):
        misfit = next(_misfits(one, value, place, whole, depth + 1), None)
        if misfit is None or whole.num_compared > _MAX_COMPARED:
            return misfit
        first = first or misfit
    return first


def _type_misfit(schema: JsonObject, value: object, place: str) -> str | None:
    found = schema.get("type")
    kinds = [kind for kind in _as_list(found) or [found] if isinstance(kind, str)]
    if not kinds or any(_TYPES.get(kind, _is_anything)(value) for kind in kinds):
        return None
    return f"expected {place or _WHOLE} to be {' or '.join(kinds)}, found {_quote(value)}"


def _object_misfits(schema: JsonObject, value: JsonObject, place: str, whole: _Whole, depth: int) -> Iterator[str]:
    properties = as_json_object(schema.get("properties"))
    prefix = f"{place}." if place else ""
    for name in _as_list(schema.get("required")):
        whole.num_compared += 1
        if isinstance(name, str) and name not in value:
            yield f"expected {prefix}{name}, found none"
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name in properties:
            yield from _misfits(as_json_object(properties[name]), item, f"{prefix}{name}", whole, depth + 1)
        elif others is False:
            yield f"there is no {prefix}{name}; known: {', '.join(properties) or 'none'}"
        elif isinstance(others, dict):
            yield from _misfits(cast("JsonObject", others), item, f"{prefix}{name}", whole, depth + 1)


def _list_misfits(schema: JsonObject, value: list[object], place: str, whole: _Whole, depth: int) -> Iterator[str]:
    firsts, others = _as_list(schema.get("prefixItems")), as_json_object(schema.get("items"))
    for index, item in enumerate(value):
        of_item = as_json_object(firsts[index]) if index < len(firsts) else others
        if of_item:
            yield from _misfits(of_item, item, f"{place}[{index}]", whole, depth + 1)


def _value_misfits(schema: JsonObject, value: object, about: str) -> Iterator[str]:
    choices = _as_list(schema.get("enum"))
    if choices and value not in choices:
        yield f"expected {about} to be one of {', '.join(map(repr, choices))}, found {_quote(value)}"
    if "const" in schema and value != schema["const"]:
        yield f"expected {about} to be {_quote(schema['const'])}, found {_quote(value)}"
    yield from _bound_misfits(schema, value, about)
    for name, (kind, end) in _SIZES.items():
        if isinstance(value, kind) and isinstance(bound := schema.get(name), int):
            holds, words = _BOUNDS[end]
            if not holds(len(cast("Sequence[object]", value)), bound):
                yield f"expected {about} to have {words} {bound} {'characters' if kind is str else 'items'}"


def _bound_misfits(schema: JsonObject, value: object, about: str) -> Iterator[str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        for name, (holds, words) in _BOUNDS.items():
            bound = schema.get(name)
            if isinstance(bound, int | float) and not isinstance(bound, bool) and not holds(value, bound):
                yield f"expected {about} to be {words} {_quote(bound)}, found {_quote(value)}"


def _follow(schema: JsonObject, root: JsonObject) -> JsonObject:
    """Return what a schema refers to: ``#/$defs/NAME``, relative to the whole."""
    for _ in range(_DEEPEST):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        found = root
        for name in unquote(reference).removeprefix("#/").split("/"):
            found = as_json_object(found.get(name.replace("~1", "/").replace("~0", "~")))
        schema = found
    return {}


def _as_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _is_anything(_: object) -> bool:
    return True


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}…"
