"""Names and schemas of Google's API in one spelling: camel case, and JSON Schema as everybody else writes it."""

import re
from typing import Final, cast

from agent_layer.schema import JsonObject

_OPAQUE: Final = frozenset(
    {"args", "response", "parametersJsonSchema", "responseJsonSchema", "labels", "default", "example"}
)
"""Members whose own members are the client's."""
_NAMED: Final = frozenset({"properties", "defs", "$defs"})
"""Members that are dictionaries of schemas."""
_HUMP: Final = re.compile(r"(?<=[a-z0-9])_([a-z0-9])")
_INTEGERS: Final = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
"""JSON texts of protocol buffers quote these."""
_RENAMED: Final = {"defs": "$defs", "ref": "$ref", "example": "examples"}
_LEFT_OUT: Final = frozenset({"nullable", "propertyOrdering"})


def to_camel_case(name: str) -> str:
    """Return a name in camel case; protocol buffers have it in snake case, too."""
    return _HUMP.sub(lambda found: found[1].upper(), name)


def rename_members(value: object) -> object:
    """Return a value with the names of all members in camel case; what is the client's own stays."""
    match value:
        case dict():
            return dict(_rename(name, one) for name, one in cast("JsonObject", value).items())
        case list():
            return [rename_members(one) for one in cast("list[object]", value)]
        case _:
            return value


def _rename(name: str, value: object) -> tuple[str, object]:
    camel = to_camel_case(name)
    if camel in _OPAQUE:
        return camel, value
    if camel in _NAMED and isinstance(value, dict):
        return camel, {own: rename_members(one) for own, one in cast("JsonObject", value).items()}
    return camel, rename_members(value)


def to_json_schema(schema: object) -> object:
    """Return a schema of OpenAPI, with its types in capitals, as JSON Schema; None: there is none."""
    if isinstance(schema, list):
        return [to_json_schema(one) for one in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast("JsonObject", schema)
    found = {_RENAMED.get(name, name): _to_member(name, value) for name, value in fields.items() if _is_kept(name)}
    if fields.get("nullable") is True:
        found["type"] = [found.get("type"), "null"]
        if isinstance(allowed := found.get("enum"), list):
            found["enum"] = [*cast("list[object]", allowed), None]
    return found


def _is_kept(name: str) -> bool:
    return name not in _LEFT_OUT


def _to_member(name: str, value: object) -> object:
    match name, value:
        case "type", str():
            return value.lower()
        case "example", _:
            return [value]
        case _, str() if name in _INTEGERS and value.isdecimal():
            return int(value)
        case (("properties" | "defs" | "$defs"), dict()):
            return {own: to_json_schema(one) for own, one in cast("JsonObject", value).items()}
        case (("items" | "anyOf" | "prefixItems" | "additionalProperties"), _):
            return to_json_schema(value)
        case _:
            return value
