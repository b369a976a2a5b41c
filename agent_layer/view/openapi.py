"""The OpenAPI document of the API, derived from the tables of routes and the records of bodies and answers."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, cast, get_args

import msgspec

from agent_layer import __version__
from agent_layer.schema import Cause, RolloutStatus, Split
from agent_layer.view.answers.events import Change
from agent_layer.view.reads.images import IMAGES
from agent_layer.view.reads.routes import PREFIX, ROUTES, Route
from agent_layer.view.writes.exports import EXPORTS, ExportOrder
from agent_layer.view.writes.journal import WriteLine
from agent_layer.view.writes.routes import JOURNAL_ROUTES, WRITES

_Json: TypeAlias = dict[str, object]

_REFERENCE: Final = "#/components/schemas/{name}"
_RANGE: Final = "LO..HI, inclusive; either end may be left out"
_NUMBERS: Final = {
    "limit": "most lines of the answer",
    "bins": "most bins of the histogram",
    "after": "steps of training up to this one are left out",
    "from": "first token",
    "to": "end of the tokens, not included",
}
_WORDS: Final = {"split": get_args(Split), "status": get_args(RolloutStatus), "cause": get_args(Cause)}
"""Known words of a row's fields; a later version may add more."""
_TEXTS: Final = {
    "policy": f"policy versions: {_RANGE}",
    "reward": f"rewards: {_RANGE}",
    "label": "NAME=VALUE; may be given several times",
    "since": "RFC 3339 in UTC, or an age such as 2h or 3d",
    "until": "RFC 3339 in UTC, or an age such as 2h or 3d",
    "accepted": "1: only trajectories that count for their rollout",
    "step": "trajectories that have this step: a number, or 'last'",
    "order": "newest, oldest, reward or policy",
    "cursor": "of the page before, for the next one",
    "fields": "fields to count by, with commas between",
    "by": "fields to group by, with commas between",
    "a": "one trajectory",
    "b": "the other trajectory",
    "split": "train or eval",
}


def make_document() -> _Json:
    """Return the document as JSON."""
    routes = (*ROUTES, *JOURNAL_ROUTES)
    records = dict.fromkeys((*(route.answer for route in routes), *WRITES.values(), ExportOrder, WriteLine, Change))
    _, schemas = msgspec.json.schema_components(tuple(records), schema_hook=_make_schema, ref_template=_REFERENCE)
    row = cast("dict[str, dict[str, _Json]]", schemas["TrajectoryRow"])
    for name, words in _WORDS.items():
        row["properties"][name]["anyOf"] = [{"enum": sorted(words)}, {"type": "null"}]
    paths: dict[str, _Json] = {f"{PREFIX}{route.path}": {"get": _read(route)} for route in routes}
    for path, body in WRITES.items():
        paths.setdefault(f"{PREFIX}{path}", {})["post"] = _write(path, body, _describe_json(WriteLine))
    lines: _Json = {"application/x-ndjson": {"schema": {"type": "string"}}}
    paths |= {f"{PREFIX}{path}": {"post": _write(path, ExportOrder, lines)} for path in EXPORTS}
    paths[f"{PREFIX}{IMAGES}"] = {"get": _image()}
    paths[f"{PREFIX}/events"] = {"get": _events()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "agent-layer", "version": __version__, "description": "What is stored of runs, for reading."},
        "paths": paths,
        "components": {"schemas": {**schemas, "Error": _error()}},
    }


def _make_schema(kind: type) -> _Json:
    """Return the schema of what msgspec takes as it is: any JSON."""
    if kind is object:
        return {"description": "any JSON"}
    raise NotImplementedError(f"{kind} has no JSON schema")


def _read(route: Route) -> _Json:
    return {
        "summary": _first_line(route.read.__doc__),
        "parameters": [*_in_path(route.path), *map(_in_query, route.parameters)],
        "responses": _responses(_describe_json(route.answer)),
    }


def _write(path: str, body: type, answer: _Json) -> _Json:
    return {
        "summary": _first_line(body.__doc__),
        "description": "Needs 'view --allow-writes' and the operator's key.",
        "parameters": _in_path(path),
        "requestBody": {"required": True, "content": _describe_json(body)},
        "responses": _responses(answer),
    }


def _image() -> _Json:
    described = "Show a raster image of a message by the hash that stands in its place: PNG, JPEG, GIF or WebP."
    content: _Json = {f"image/{kind}": {} for kind in ("png", "jpeg", "gif", "webp")}
    return {"summary": described, "parameters": _in_path(IMAGES), "responses": _responses(content)}


def _events() -> _Json:
    described = {
        "run": "events of this run, and of the fleet, alone",
        "after": "id of the newest event that was received; 'Last-Event-ID' means the same",
    }
    return {
        "summary": "Stream what changes: server-sent events whose data is a Change; 'reload' asks to read all again.",
        "parameters": [_parameter("query", name, {"type": "string"}, text) for name, text in described.items()],
        "responses": _responses({"text/event-stream": {"schema": _reference(Change)}}),
    }


def _in_path(path: str) -> list[_Json]:
    names: Iterable[str] = re.findall(r"\{(\w+)\}", path)
    return [
        _parameter("path", name, {"type": "integer" if name == "step" else "string"}, f"the {name}") for name in names
    ]


def _in_query(name: str) -> _Json:
    if name in _NUMBERS:
        return _parameter("query", name, {"type": "integer", "minimum": 0}, _NUMBERS[name])
    kind: _Json = {"type": "array", "items": {"type": "string"}} if name == "label" else {"type": "string"}
    return _parameter("query", name, kind, _TEXTS.get(name, f"trajectories with this {name.replace('_', ' ')}"))


def _parameter(place: str, name: str, schema: _Json, description: str) -> _Json:
    return {"name": name, "in": place, "required": place == "path", "schema": schema, "description": description}


def _responses(content: Mapping[str, object]) -> _Json:
    failed = {"application/json": {"schema": {"$ref": _REFERENCE.format(name="Error")}}}
    return {
        "200": {"description": "the answer", "content": content},
        "default": {"description": "what failed, why, and what to do, in one sentence", "content": failed},
    }


def _describe_json(record: type) -> _Json:
    return {"application/json": {"schema": _reference(record)}}


def _reference(record: type) -> _Json:
    return {"$ref": _REFERENCE.format(name=record.__name__)}


def _error() -> _Json:
    texts = {name: {"type": "string"} for name in ("code", "message")}
    schema = {"type": "object", "properties": texts, "required": list(texts)}
    return {"title": "Error", "type": "object", "properties": {"error": schema}, "required": ["error"]}


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
