"""What misfits a JSON Schema: what its readers agree on, and nothing else."""

import time

import jsonschema
import pytest
from hypothesis import given, strategies as st

from agent_layer.schema import find_misfit

DATE = r"^\d{4}-\d{2}-\d{2}$"
NAMES = st.sampled_from("abc")
SCALARS = st.sampled_from([None, True, False, 0, 1, 2, 5, 1.0, 1.5, -3, "", "a", "ab", "abc", "b-a", "a\nb", "é"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)


def put(name, values):
    return st.builds(lambda value: {name: value}, values)


SIMPLE = [
    put("type", st.sampled_from(["object", "array", "string", "integer", "number", "null", ["string", "boolean"]])),
    put("enum", st.lists(SCALARS, min_size=1, max_size=3)),
    put("const", SCALARS),
    *(put(name, st.sampled_from([0, 1, 1.5, 5])) for name in ("minimum", "exclusiveMaximum")),
    *(put(name, st.integers(0, 3)) for name in ("minLength", "maxItems", "minProperties", "maxProperties")),
    put("pattern", st.sampled_from(["^a", "b$", "^[a-z]+$", "[^a]", "^(?:[a-z]+-?)+$"])),
    put("required", st.lists(NAMES, max_size=2)),
    put("uniqueItems", st.booleans()),
    put("title", st.just("t")),
]


def extend(inner):
    choice, member = inner | st.booleans(), st.dictionaries(NAMES, inner | st.booleans(), max_size=2)
    several = st.lists(choice, min_size=1, max_size=3)
    parts = [
        *(put(name, several) for name in ("anyOf", "oneOf", "allOf", "prefixItems")),
        *(put(name, choice) for name in ("not", "items", "additionalProperties")),
        st.builds(lambda *of: dict(zip(("if", "then", "else"), of, strict=True)), choice, choice, choice),
        put("properties", member),
        put("patternProperties", st.builds(lambda of: {"^a|b$": of}, choice)),
    ]
    return merge(st.one_of(*SIMPLE, *parts))


def merge(parts):
    return st.lists(parts, max_size=3).map(lambda found: {name: one for part in found for name, one in part.items()})


SCHEMAS = st.recursive(merge(st.one_of(*SIMPLE)), extend, max_leaves=6)
PASSED_OVER = [{"format": "date"}, {"contains": {"const": 7}}, {"minLength": "x"}, {"$ref": "http://127.0.0.1/schema"}]


@given(schema=SCHEMAS, value=VALUES)
def test_a_value_misfits_where_a_whole_reader_says_so(schema, value):
    assert (find_misfit(schema, value) is None) == jsonschema.Draft202012Validator(schema).is_valid(value)


@given(schema=SCHEMAS, part=st.sampled_from(PASSED_OVER), value=VALUES)
def test_what_is_passed_over_makes_nothing_misfit_wherever_it_stands(schema, part, value):
    beside = {"anyOf": [schema, part]}
    for one in (beside, {"not": part}, {"oneOf": [part, {}]}, {"if": part, "then": False}, {"not": {"allOf": [part]}}):
        assert find_misfit(one, value) is None
    if "$ref" not in part:
        assert (find_misfit(schema | part, value) is None) >= (find_misfit(schema, value) is None)


FITS_SOME_READER = [
    ({"type": "string", "nullable": True}, None),  # OpenAPI
    ({"type": "STRING"}, 1),  # Google
    ({"minimum": 5, "exclusiveMinimum": True}, 5),  # draft 4
    ({"items": [{"type": "string"}]}, [1]),  # draft 7
    ({"$ref": "#/$defs/A", "minLength": 3, "$defs": {"A": {}}}, "x"),  # draft 7 reads a reference alone
    ({"additionalProperties": False, "patternProperties": {r"(?=x)": {}}}, {"x": 1}),
    ({"pattern": r"^\p{L}+$"}, "1"),
    ({"pattern": r"^(?P<year>\d+)$"}, "x"),
    ({"pattern": r"^\w$"}, "é"),
    ({"pattern": "^.{2}$"}, "🙂"),
    ({"pattern": "^a$"}, "a\n"),
    ({"pattern": r"^\<a\>$"}, "<a>"),
    ({"pattern": "^[a-z&&[^b]]$"}, "b"),
    ({"pattern": "("}, "x"),
    ({"pattern": 5, "not": 5, "if": 5, "anyOf": [5], "oneOf": {}, "allOf": 5, "uniqueItems": "yes"}, "x"),
    ({"$ref": "#/nowhere"}, 1),
    ({"uniqueItems": True}, [1, True, "1", [1], {"a": 1}, {"a": True}]),
]


@pytest.mark.parametrize(("schema", "value"), FITS_SOME_READER)
def test_what_some_reader_accepts_passes(schema, value):
    assert find_misfit(schema, value) is None


MISFITS = [
    ({"pattern": DATE}, "1. May", "expected the arguments to match"),
    ({"properties": {"a": {"pattern": "^[a-z]+$"}}}, {"a": "é"}, "expected a to match"),
    ({"uniqueItems": True}, [{"a": 1, "b": 2}, 3, {"b": 2, "a": 1}], "expected the arguments to have each item once"),
    ({"not": {"type": "null"}}, None, "expected the arguments to be other than"),
    ({"anyOf": [{}], "oneOf": [{"type": "string"}]}, 1, "expected the arguments to be string"),
    ({"oneOf": [{"type": "integer"}, {"minimum": 1}]}, 1, "expected the arguments to fit one alternative, found 2"),
    ({"properties": {"a": False}}, {"a": 1}, "expected no a, found 1"),
    ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}, "expected b, found none"),
]


@pytest.mark.parametrize(("schema", "value", "sentence"), MISFITS)
def test_the_sentence_says_what_was_expected_where(schema, value, sentence):
    assert find_misfit(schema, value).startswith(sentence)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^(a+)+$", "a" * 100_000 + "!"),
        ("(a|a)*b", "a" * 100_000),
        ("(" * 400 + "a" + ")+" * 400 + "$", "a" * 10_000 + "!"),
        (r"(\w{1000}){1000}", "a"),
        ("a{1000}{1000}{1000}", "a"),
        ("[^a].{4900}a$", "b" * 2000),
        ("x" * 1_000_000, "x"),
    ],
)
def test_no_pattern_takes_long(pattern, text):
    began = time.process_time()

    for _ in range(5):
        find_misfit({"items": {"pattern": pattern}, "uniqueItems": True}, [text] * 100)

    assert time.process_time() - began < 2
