"""Only what an engine can continue from token ids alone is continued so."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, strategies as st

from agent_layer.engines import NEUTRAL_SAMPLING
from agent_layer.gateway.calls.end_parts import extend_policy_runs
from agent_layer.gateway.dialects.chat import read_request
from agent_layer.gateway.dialects.continuation import JoinedAnswer, continuation_body, supports_continuation


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"response_format": {"type": "json_object"}},
        {"frequency_penalty": 1.0},
        {"logit_bias": {"1": 1}},
        {"top_logprobs": 2},
        {"stream": True, "stream_options": {"continuous_usage_stats": True}},
        {"n": 2},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
    ],
)
def test_what_needs_a_parser_the_past_or_pictures_is_not_continued(fields):
    assert is_continuable({})
    assert not is_continuable(fields)


def is_continuable(fields):
    message = {"messages": [{"role": "user", "content": [{"type": "text", "text": "go"}]}], "max_tokens": 9, **fields}
    request = read_request(msgspec.json.encode(message))
    return supports_continuation(request, request.sampling)


def test_the_rest_of_an_answer_is_sampled_like_its_beginning():
    sampling = {**NEUTRAL_SAMPLING, "temperature": 0.7, "max_tokens": 9, "seed": 5}

    rest = msgspec.json.decode(continuation_body("m", sampling, [1, 2], [3, 4], with_usage=False))

    assert {name: rest[name] for name in NEUTRAL_SAMPLING} == NEUTRAL_SAMPLING | {"temperature": 0.7}
    assert (rest["prompt"], rest["max_tokens"]) == ([1, 2, 3, 4], 7)
    assert rest["seed"] != 5  # the same would draw the numbers of the first tokens again


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=8))
def test_runs_name_the_version_of_every_token(legs):
    runs, num_tokens = [], 0
    for version, num_new in legs:
        num_tokens += num_new
        runs = extend_policy_runs(runs, version, num_tokens)

    expanded = [version for version, number in runs for _ in range(number)]
    assert expanded == [version for version, number in legs for _ in range(number)]
    assert all(number > 0 for _, number in runs)
    assert all(one[0] != next_one[0] for one, next_one in pairwise(runs))


def event(text, token_ids, **more):
    entries = [{"token": "x", "logprob": -1.0} for _ in token_ids]
    choice = {"delta": {"content": text}, "token_ids": token_ids, "logprobs": {"content": entries}}
    return b"data: " + msgspec.json.encode({"id": "c", "choices": [choice], **more}) + b"\n\n"


def test_an_answer_is_not_cut_within_a_letter():
    answer = JoinedAnswer()

    answer.feed(event("ab", [1], prompt_token_ids=[9]))
    assert answer.can_be_cut
    answer.feed(event("", [2]))
    assert not answer.can_be_cut
    answer.feed(event("é", [3]))
    assert answer.can_be_cut


def test_half_an_event_is_neither_shown_nor_remembered():
    answer, half = JoinedAnswer(), event("cd", [2])[:30]

    shown = answer.feed(event("ab", [1], prompt_token_ids=[9]) + half)
    answer.go_on()

    assert shown == event("ab", [1], prompt_token_ids=[9])
    assert answer.token_ids == [1]


@pytest.mark.parametrize("strange", [b'{"choices": null}', b'{"choices": 5}', b'{"choices": [{"token_ids": ["x"]}]}'])
def test_an_event_that_cannot_be_read_passes_and_ends_the_cutting(strange):
    answer = JoinedAnswer()
    answer.feed(event("ab", [1], prompt_token_ids=[9]))

    seen = answer.feed(b"data: %b\n\n" % strange)

    assert seen == b"data: %b\n\n" % strange
    assert answer.can_be_cut == (b"null" in strange)
