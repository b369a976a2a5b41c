"""The OpenAPI document names every route, each answer has the form that it tells, and what it promised stays."""

import json
from copy import deepcopy
from pathlib import Path

from jsonschema import Draft202012Validator

from agent_layer.view.openapi import make_document
from agent_layer.view.reads.images import IMAGES
from agent_layer.view.reads.routes import PREFIX, ROUTES
from agent_layer.view.writes.exports import EXPORTS
from agent_layer.view.writes.routes import JOURNAL_ROUTES, WRITES

from ...builders import attempt
from ...stored import write_segment
from ...viewing import store_update

_PROMISED = Path(__file__).with_name("openapi.json")
"""What outsiders rely on. After an addition: ``curl -s http://127.0.0.1:8792/api/v1/openapi.json > openapi.json``."""
_PLACES = {"run": "r0", "step": "1", "trajectory": "g0.0-0", "group": "g0"}
_VALUES_SENT = {
    "/diff": "?a=g0.0-0&b=g0.1-0",
    "/summary": "?by=run,status",
    "/search": "?text=what",
    "/runs/{run}/learning": "?by=task_type",
}


def test_every_route_is_in_it():
    paths = make_document()["paths"]
    reads = {f"{PREFIX}{route.path}" for route in (*ROUTES, *JOURNAL_ROUTES)} | {
        f"{PREFIX}/events",
        f"{PREFIX}{IMAGES}",
    }

    assert {path for path, how in paths.items() if "get" in how} == reads
    assert {path for path, how in paths.items() if "post" in how} == {f"{PREFIX}{path}" for path in (*WRITES, *EXPORTS)}
    assert [path for path, how in paths.items() for one in how.values() if not one["summary"].endswith(".")] == []
    for route in ROUTES:
        attributes = {
            one["name"] for one in paths[f"{PREFIX}{route.path}"]["get"]["parameters"] if one["in"] == "query"
        }
        assert attributes == set(route.parameters)


def test_answers_have_the_form_that_it_tells(fresh):
    write_segment(fresh.store, *attempt("late.0-0", at=9000.0, run="r0", status="running", labels={"team": "a"}))
    store_update(fresh.store)
    document, faults = fresh.get("/api/v1/openapi.json"), {}
    for route in (*ROUTES, *JOURNAL_ROUTES):
        answer = fresh.get(f"{PREFIX}{route.path.format(**_PLACES)}{_VALUES_SENT.get(route.path, '')}")
        reported = document["paths"][f"{PREFIX}{route.path}"]["get"]["responses"]["200"]["content"]["application/json"]
        validator = Draft202012Validator({**reported["schema"], "components": document["components"]})
        faults[route.path] = [f"{one.json_path}: {one.message[:200]}" for one in validator.iter_errors(answer)]

    assert {path: found for path, found in faults.items() if found} == {}


def test_errors_have_the_form_that_it_tells(viewed):
    error = viewed.get("/api/v1/runs/none", 404)
    Draft202012Validator(make_document()["components"]["schemas"]["Error"]).validate(error)


def test_what_it_promised_stays():
    assert _breaks(json.loads(_PROMISED.read_text()), json.loads(json.dumps(make_document()))) == []


def test_a_renamed_field_a_removed_route_and_another_type_are_breaks():
    promised = json.loads(_PROMISED.read_text())
    renamed, removed, retyped, demanding = (deepcopy(promised) for _ in range(4))
    fields = renamed["components"]["schemas"]["RunLine"]["properties"]
    fields["renamed"] = fields.pop("success_rate")
    del removed["paths"][f"{PREFIX}/query"]
    retyped["components"]["schemas"]["RunLine"]["properties"]["num_accepted"] = {"type": "string"}
    demanding["paths"][f"{PREFIX}/count"]["get"]["parameters"].append({"name": "x", "in": "query", "required": True})

    assert _breaks(promised, promised) == []
    assert _breaks(promised, renamed) == ["RunLine.success_rate"]
    assert _breaks(promised, removed) == [f"get {PREFIX}/query"]
    assert _breaks(promised, retyped) == ["RunLine.num_accepted"]
    assert _breaks(promised, demanding) == [f"get {PREFIX}/count needs x"]


def _breaks(promised, present):
    """Return what a program that was written for the one document misses in the other."""
    return [*_lost_routes(promised["paths"], present["paths"]), *_lost_fields(promised, present)]


def _lost_routes(promised, present):
    for path, ways in promised.items():
        for way, route in ways.items():
            if (now := present.get(path, {}).get(way)) is None:
                yield f"{way} {path}"
                continue
            names = {one["name"] for one in now["parameters"]}
            yield from (f"{way} {path} lost {one['name']}" for one in route["parameters"] if one["name"] not in names)
            known = {one["name"] for one in route["parameters"]}
            yield from (
                f"{way} {path} needs {one['name']}"
                for one in now["parameters"]
                if one["required"] and one["name"] not in known
            )


def _lost_fields(promised, present):
    now = present["components"]["schemas"]
    for name, schema in promised["components"]["schemas"].items():
        for field, kind in schema.get("properties", {}).items():
            if _kind(now.get(name, {}).get("properties", {}).get(field)) != _kind(kind):
                yield f"{name}.{field}"


def _kind(schema):
    """Return a form without what may change: descriptions, defaults, and further values of an enumeration."""
    if not isinstance(schema, dict):
        return schema
    found = {name: _inner(value) for name, value in schema.items() if name not in ("description", "default", "enum")}
    is_text = all(isinstance(value, str) for value in schema.get("enum", [None]))
    return {"type": "string", **found} if is_text else found


def _inner(value):
    return [_kind(one) for one in value] if isinstance(value, list) else _kind(value)
