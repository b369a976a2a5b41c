"""Sampling that a trainer cannot reproduce is replaced, refused or named, never passed in silence."""

import json

import msgspec
import pytest

from agent_layer.engines import NEUTRAL_SAMPLING, find_unreproducible
from agent_layer.gateway.calls.sampling import settle_sampling
from agent_layer.gateway.dialects.refusals import RefusedError

SUBJECT = "rollout r-0"
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
NEUTRALISABLE = {
    "temperature": 0.0,
    "top_p": 0.8,
    "top_k": 50,
    "min_p": 0.05,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "logit_bias": {"3": 5.0},
    "bad_words": ["no"],
    "allowed_token_ids": [1, 2],
    "min_tokens": 4,
    "thinking_token_budget": 100,
    "use_beam_search": True,
    "logits_processors": ["x"],
    "vllm_xargs": {"x": 1},
}
GRAMMARS = {
    "response_format": SCHEMA,
    "structured_outputs": {"regex": "a+"},
    "guided_json": {"type": "object"},
    "guided_regex": "a+",
    "guided_choice": ["a", "b"],
    "guided_grammar": "root ::= 'a'",
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "regex": "a+",
    "ebnf": "root ::= 'a'",
    "json_schema": '{"type": "object"}',
    "structural_tag": '{"type": "structural_tag"}',
}
NEUTRAL = {
    "temperature": 0.7,
    "top_p": 1,
    "top_k": 0,
    "min_p": 0,
    "repetition_penalty": 1,
    "logit_bias": {},
    "bad_words": [],
    "min_tokens": 0,
    "use_beam_search": False,
    "response_format": {"type": "text"},
    "tool_choice": "auto",
    "presence_penalty": None,
}
FREE = {"max_tokens": 4, "stop": ["x"], "seed": 7, "n": 2, "ignore_eos": True, "chat_template_kwargs": {"a": 1}}


def make_tools(**function):
    tool = {"type": "function", "function": {"name": "f", "parameters": {}, **function}}
    return msgspec.Raw(json.dumps([tool, {"type": "function", "function": {"name": "g"}}]).encode())


@pytest.mark.parametrize(("name", "value"), (NEUTRALISABLE | GRAMMARS).items())
def test_everything_that_changes_the_distribution_has_a_name(name, value):
    assert find_unreproducible({"temperature": 1.0, "max_tokens": 4, name: value}) == [name]


def test_lengths_stops_seeds_and_neutral_values_change_no_distribution():
    assert find_unreproducible(NEUTRAL | FREE) == []


def test_what_an_engine_would_fill_by_itself_is_always_named():
    fields = {"temperature": 0.7, "top_p": None, "max_tokens": 4}

    settled = [settle_sampling(fields, None, policy, SUBJECT) for policy in ("neutralise", "refuse", "keep")]

    expected = {name: value for name, value in NEUTRAL_SAMPLING.items() if name != "temperature"}
    assert [(one.changes, one.tools, one.findings) for one in settled] == [(expected, None, [])] * 3


@pytest.mark.parametrize(("name", "value"), NEUTRALISABLE.items())
def test_a_field_with_a_neutral_value_gets_it(name, value):
    settled = settle_sampling({name: value}, None, "neutralise", SUBJECT)

    assert find_unreproducible({name: value} | settled.changes) == []
    assert settled.findings == [f"neutralised:{name}"]


@pytest.mark.parametrize(("name", "value"), GRAMMARS.items())
def test_a_grammar_is_left_out(name, value):
    settled = settle_sampling({name: value}, None, "neutralise", SUBJECT)

    assert settled.changes == {**NEUTRAL_SAMPLING, name: "auto" if name == "tool_choice" else None}
    assert settled.findings == [f"neutralised:{name}"]


@pytest.mark.parametrize(("name", "value"), GRAMMARS.items())
def test_a_run_may_refuse_grammars_alone(name, value):
    assert settle_sampling({"top_p": 0.5}, None, "refuse_grammars", SUBJECT).findings == ["neutralised:top_p"]
    with pytest.raises(RefusedError, match=f"rollout r-0: .* found {name}; leave it out") as refused:
        settle_sampling({name: value, "top_p": 0.5}, None, "refuse_grammars", SUBJECT)

    assert (refused.value.status, refused.value.code) == (400, "unreproducible_sampling")


def test_a_run_may_refuse_all_of_it():
    with pytest.raises(RefusedError, match=r"found temperature, top_p, tools\.strict; leave"):
        settle_sampling({"temperature": 0, "top_p": 0.5}, make_tools(strict=True), "refuse", SUBJECT)


def test_what_is_kept_is_named_for_the_trainer():
    fields = {"temperature": 0.0, "top_p": 0.5} | GRAMMARS

    settled = settle_sampling(fields, make_tools(strict=True), "keep", SUBJECT)

    assert {**fields, **settled.changes}.items() >= fields.items()
    assert settled.tools is None
    assert settled.findings == [
        "unreproducible:ebnf",
        "unreproducible:guided_choice",
        "unreproducible:guided_grammar",
        "unreproducible:guided_json",
        "unreproducible:guided_regex",
        "unreproducible:json_schema",
        "unreproducible:regex",
        "unreproducible:response_format",
        "unreproducible:structural_tag",
        "unreproducible:structured_outputs",
        "greedy",
        "unreproducible:tool_choice",
        "unreproducible:top_p",
        "unreproducible:tools.strict",
    ]


def test_strict_tools_are_sent_without_their_grammar():
    settled = settle_sampling({}, make_tools(strict=True, description="d"), "neutralise", SUBJECT)

    assert [tool["function"] for tool in settled.tools] == [
        {"name": "f", "parameters": {}, "description": "d"},
        {"name": "g"},
    ]
    assert settled.findings == ["neutralised:tools.strict"]
    assert settle_sampling({}, None, "neutralise", SUBJECT).tools is None
    outside = msgspec.Raw(b'[{"type": "function", "strict": true, "function": {"name": "f"}}]')
    assert settle_sampling({}, outside, "neutralise", SUBJECT).tools == [
        {"type": "function", "function": {"name": "f"}}
    ]
