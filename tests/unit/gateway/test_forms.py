"""Whether an answer has the form that its request asks for, where no grammar forces it."""

import json
import time

import msgspec
import pytest
from hypothesis import given, strategies as st

from agent_layer.gateway.calls.forms import AskedForms, is_set_free
from agent_layer.gateway.dialects.chat import read_request

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NESTED = {
    "$defs": {"C": CITY},
    "type": "object",
    "properties": {"all": {"type": "array", "items": {"$ref": "#/$defs/C"}}},
}
TOOL = {"type": "function", "function": {"name": "find", "parameters": CITY}}
OTHER = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
STRICT = {"type": "function", "function": {**TOOL["function"], "strict": True}}
RIGHT, WRONG, BROKEN = '{"city": "Rome"}', '{"city": 3}', '{"city": "Ro'


def schema(of):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": of, "strict": True}}}


def calls(*arguments, name="find"):
    return {"tool_calls": [{"type": "function", "function": {"name": name, "arguments": one}} for one in arguments]}


def asking(tools):
    return read_request(msgspec.json.encode({"messages": [], **({"tools": tools} if tools else {})}))


def chosen(name):
    return {"tool_choice": {"type": "function", "function": {"name": name}}}


ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "required", "tools": [{"type": "function", "name": "find"}]},
}
TEXTS = [
    (schema(CITY), [RIGHT], [WRONG, BROKEN, "Rome", "", None, f"```json\n{RIGHT}\n```"]),
    (schema(NESTED), ['{"all": []}', f'{{"all": [{RIGHT}]}}'], [f'{{"all": [{RIGHT}, {WRONG}]}}', "[]"]),
    (schema({"type": "string"}), ['"Rome"'], ["Rome", "1"]),
    (schema({"allOf": [CITY]}), [RIGHT], [WRONG]),
    (schema({"anyOf": [CITY, {"type": "null"}]}), [RIGHT, "null"], [WRONG]),
    ({"response_format": {"type": "json_object"}}, [RIGHT, "{}"], ["[]", "x", BROKEN]),
    ({"guided_json": CITY}, [RIGHT], [WRONG]),
    ({"guided_json": json.dumps(CITY)}, [RIGHT], [WRONG]),
    ({"structured_outputs": {"json": CITY}}, [RIGHT], [WRONG]),
    ({"structured_outputs": {"json_object": True}}, ["{}"], ["x"]),
    ({"guided_choice": ["a", "b"]}, ["a"], ["c", '"a"', None]),
    ({"structured_outputs": {"choice": ["a"]}}, ["a"], ["b"]),
    ({"guided_regex": "a+"}, [], ["a", "b"]),
    ({"structured_outputs": {"grammar": "x"}}, [], ["x"]),
]
CALLS = [
    ({"tool_choice": "required"}, [TOOL], [calls(RIGHT), calls(RIGHT, RIGHT)], [{"content": "Rome"}, calls(WRONG)]),
    ({"tool_choice": "required"}, [TOOL], [], [calls(RIGHT, WRONG), calls(BROKEN), calls(RIGHT, name="none"), {}]),
    (chosen("find"), [TOOL, OTHER], [calls(RIGHT)], [calls("{}", name="other"), calls("[]")]),
    ({"tool_choice": ALLOWED}, [TOOL, OTHER], [calls(RIGHT)], [calls("{}", name="other"), {"content": "x"}]),
    (
        {},
        [STRICT, OTHER],
        [{"content": "x"}, calls(RIGHT), calls('{"x": 1}', name="other")],
        [calls(WRONG), calls("1")],
    ),
    (
        {},
        [TOOL, OTHER],
        [{"content": None}, calls(RIGHT)],
        [calls(one) for one in (WRONG, "", "Infinity", "[]", BROKEN)],
    ),
    ({}, [OTHER], [{}, calls("{}", name="other")], [calls("{}", name="none"), calls(None, name="other")]),
    ({}, None, [{}], [calls("{}")]),
    (schema(CITY), [TOOL], [{"content": RIGHT}, calls(RIGHT)], [{"content": "x"}, calls(WRONG)]),
]


@pytest.mark.parametrize(("sampling", "right", "wrong"), TEXTS)
def test_a_text_has_the_form_that_is_asked_or_not(sampling, right, wrong):
    forms = AskedForms(sampling, asking([]))

    assert [forms.fit({"content": text}) for text in (*right, *wrong)] == [True] * len(right) + [False] * len(wrong)


@pytest.mark.parametrize(("sampling", "tools", "right", "wrong"), CALLS)
def test_calls_are_those_that_a_grammar_would_force_or_not(sampling, tools, right, wrong):
    forms = AskedForms(sampling, asking(tools))

    assert [forms.fit(message) for message in (*right, *wrong)] == [True] * len(right) + [False] * len(wrong)


def test_only_what_lost_its_grammar_is_compared():
    assert is_set_free(["rearranged:system", "neutralised:response_format"])
    assert is_set_free(["neutralised:tools.strict"])
    assert not is_set_free(["neutralised:top_p", "not_applied:tool_choice"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "enum", "anyOf", "items", "properties", "required", "$ref", "minimum", "minLength", "a"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(wanted=JSON, answer=JSON, choice=JSON)
def test_no_schema_and_no_answer_breaks_the_comparison(wanted, answer, choice):
    tool = {"type": "function", "function": {"name": "find", "parameters": wanted}}
    forms = AskedForms(schema(wanted) | {"tool_choice": choice}, asking([tool]))

    for message in ({"content": json.dumps(answer)}, {"content": answer}, calls(json.dumps(answer)), calls(answer)):
        assert forms.fit(message) in (True, False)


AGAIN = {"$ref": "#/$defs/A"}


@pytest.mark.parametrize(
    "endless",
    [
        {"$defs": {"A": {"anyOf": [AGAIN, AGAIN, AGAIN]}}, **AGAIN},
        {"$defs": {"A": {"anyOf": [AGAIN] * 10_000}}, **AGAIN},
        {"$defs": {"A": {"items": AGAIN, "anyOf": [AGAIN, AGAIN]}}, **AGAIN},
        {"items": {"enum": list(range(50_000))}},
        {"uniqueItems": True, "allOf": [{"uniqueItems": True}] * 10_000},
    ],
)
def test_what_a_schema_would_be_compared_with_for_ever_is_left_to_the_agent_soon(endless):
    began = time.process_time()

    assert AskedForms(schema(endless), asking([])).fit({"content": json.dumps(list(range(50_001, 60_002)))})

    assert time.process_time() - began < 2
