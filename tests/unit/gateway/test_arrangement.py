"""A conversation is arranged so that templates take it, and so that what continued still continues."""

import json

import pytest
from hypothesis import given, strategies as st

from agent_layer.gateway.calls.arrangement import REARRANGED, arrange
from agent_layer.gateway.calls.forms import describe_form
from agent_layer.gateway.dialects.chat import read_request

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}}
CONTENTS = st.one_of(
    st.text("abc", min_size=1, max_size=3),
    st.lists(st.text("abc", min_size=1, max_size=3).map(lambda text: {"type": "text", "text": text}), min_size=1),
)
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool"])
CONVERSATIONS = st.lists(
    st.builds(lambda role, content: {"role": role, "content": content}, ROLES, CONTENTS), min_size=1, max_size=8
)
FORMS = st.sampled_from([None, "answer with JSON"])


def arranged(messages, form=None, **fields):
    request = arrange(read_request(json.dumps({"messages": messages, **fields}).encode()), form)
    assert json.loads(bytes(request.pieces["messages"])) == [json.loads(bytes(one)) for one in request.messages]
    assert request.roles == [json.loads(bytes(one))["role"] for one in request.messages]
    return request


def read_messages(request):
    return [json.loads(bytes(one)) for one in request.messages]


def words(messages):
    contents = [one["content"] for one in messages]
    return "".join(one if isinstance(one, str) else "".join(part["text"] for part in one) for one in contents).split()


@given(messages=CONVERSATIONS)
def test_one_system_message_stands_first_and_every_text_stays_in_its_place(messages):
    found = read_messages(arranged(messages))

    assert not [one for one in found[1:] if one["role"] == "system"]
    assert not [one for one in found if one["role"] == "developer"]
    assert "".join(words(found)) == "".join(words(messages))
    assert [one["content"] for one in found if one["role"] in ("assistant", "tool")] == [
        one["content"] for one in messages if one["role"] in ("assistant", "tool")
    ]


@given(messages=CONVERSATIONS, form=FORMS)
def test_what_continues_a_prompt_continues_it_when_both_are_arranged(messages, form):
    """A prompt ends before an answer, and another continues it with that answer."""
    whole = read_messages(arranged(messages, form))
    for place in (index for index, one in enumerate(messages) if index and one["role"] == "assistant"):
        before = read_messages(arranged(messages[:place], form))
        has_place = {one["role"] for one in messages[:place]} & {"system", "developer", "user"}
        if form is None or has_place:
            assert whole[: len(before) + 1] == [*before, messages[place]]


@given(messages=CONVERSATIONS)
def test_what_a_template_takes_anyway_stays_byte_for_byte(messages):
    later = {one["role"] for one in messages[1:]}
    is_fine = not later & {"system", "developer"} and messages[0]["role"] != "developer"
    request = read_request(json.dumps({"messages": messages}).encode())

    found = arrange(request)

    assert (found is request) == is_fine
    assert found.findings == ([] if is_fine else [REARRANGED])


def test_a_reminder_that_is_no_text_alone_keeps_its_parts():
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    text = {"type": "text", "text": "hi"}

    found = arranged([{"role": "user", "content": "hi"}, {"role": "system", "content": [image]}])

    assert read_messages(found) == [{"role": "user", "content": [text, image]}]


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], 0),
        ([{"role": "developer", "content": "s"}, {"role": "user", "content": "u"}], 0),
        (
            [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "u"}],
            0,
        ),
        ([{"role": "assistant", "content": "a"}, {"role": "user", "content": "u"}], 1),
    ],
)
def test_a_form_stands_where_it_stays(messages, place):
    found = read_messages(arranged(messages, "in JSON"))

    chosen = messages[place]
    assert found == [
        *messages[:place],
        {"role": chosen["role"].replace("developer", "system"), "content": chosen["content"] + "\n\nin JSON"},
        *messages[place + 1 :],
    ]


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}, "tool_choice": "required"}, None),
        ({"response_format": {"type": "json_object"}}, "one JSON object"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}, "schema"),
        ({"guided_json": SCHEMA}, "schema"),
        ({"structured_outputs": {"json": SCHEMA}}, "schema"),
        ({"json_schema": json.dumps(SCHEMA, separators=(",", ":"))}, "schema"),
        ({"guided_choice": ["x", "y"]}, '["x","y"]'),
        ({"structured_outputs": {"choice": ["x", "y"], "regex": None}}, '["x","y"]'),
        ({"structured_outputs": {"json_object": True}}, "one JSON object"),
        ({"guided_regex": "x+"}, "this regex describes, and nothing else:\nx+"),
        ({"ebnf": "root ::= x"}, "this ebnf describes, and nothing else:\nroot ::= x"),
    ],
)
def test_a_form_is_told_in_words(sampling, expected):
    found = describe_form(sampling, with_tools=False)

    assert (found is None) == (expected is None)
    if expected is not None:
        assert found.startswith("Answer with ")
        text = json.dumps(SCHEMA, separators=(",", ":")) if expected == "schema" else expected
        assert text in found
        assert describe_form(sampling, with_tools=True).startswith("Unless you call a tool, answer with ")


@pytest.mark.parametrize("tools", [{}, {"tools": None}, {"tools": []}])
@pytest.mark.parametrize(
    ("choice", "lost"),
    [("auto", []), ("none", []), (None, []), ("required", ["tool_choice"]), ({"type": "function"}, ["tool_choice"])],
)
def test_without_tools_none_is_chosen(tools, choice, lost):
    found = arranged([{"role": "user", "content": "u"}], tool_choice=choice, **tools)

    assert not {"tools", "tool_choice"} & json.loads(found.for_engine("m", {})).keys()
    assert (found.sampling, found.not_applied, found.tools) == ({}, lost, None)
