"""Bounds of JSON texts: what a scan counts is what a parser would find, wherever strings, escapes and pieces end."""

import json

import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BadInputError
from agent_layer.schema import BodyBounds, check_bounds
from agent_layer.schema.wire import bounds as module

TEXTS = st.text(st.sampled_from('"\\[]{},:a\u00e4\n'), max_size=8)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)


def bounds(**fields):
    return BodyBounds(**{"values": 10**9, "depth": 10**9, "messages": 10**9, **fields})


def is_refused(body, **fields):
    try:
        check_bounds(body, bounds(**fields), "request")
    except BadInputError:
        return True
    return False


def find_depth(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(find_depth, inner), default=0)


def find_weight(value):
    """Commas and opening brackets, and one."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 1 if inner is None else 1 + sum(map(find_weight, inner)) + (not inner)


@given(value=VALUES, piece_bytes=st.integers(1, 40), small_bytes=st.sampled_from([0, 1000]), ensure_ascii=st.booleans())
def test_values_and_depth_are_those_of_the_parsed_text(value, piece_bytes, small_bytes, ensure_ascii):
    body = json.dumps(value, ensure_ascii=ensure_ascii).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_PIECE_BYTES", piece_bytes)
        patched.setattr(module, "_SMALL_BYTES", small_bytes)
        assert [is_refused(body, depth=depth) for depth in (find_depth(value) - 1, find_depth(value))] == [
            find_depth(value) > 0,
            False,
        ]
        num_values = find_weight(value)
        assert [is_refused(body, values=number) for number in (num_values - 1, num_values)] == [True, False]


@pytest.mark.parametrize(
    "body", [b"", b"[", b"}" * 9, b'"', b"\\" * 301, b"[}" * 9, b'{"messages": [1, 2, 3', b"\xff\xfe", b"[" * 9]
)
def test_what_is_no_json_is_left_to_the_parser(body):
    check_bounds(body, bounds(values=20, depth=3, messages=2), "request")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b'{"messages":[%b0]}' % (b'{"role":"user","content":""},' * 2_000_000), "MAX_BODY_VALUES"),
        (b'{"x":[%b0]}' % (b"0," * 30_000_000), "MAX_BODY_VALUES"),
        (b'{"x":[%b""]}' % (b'"",' * 20_000_000), "MAX_BODY_VALUES"),
        (b'{"x":"%b"}' % (b"\\n" * 30_000_000), "MAX_BODY_VALUES"),
        (b"[" * 90_000 + b"]" * 90_000, "MAX_BODY_DEPTH"),
        (b'{"a":' * 90_000 + b"1" + b"}" * 90_000, "MAX_BODY_DEPTH"),
        (b'{"messages":[%b0]}' % (b"0," * 10_000), "MAX_MESSAGES"),
        (b'{"input":[%b0]}' % (b"{}," * 10_000), "MAX_MESSAGES"),
    ],
    ids=["tiny messages", "numbers", "texts", "escapes", "lists", "objects", "messages", "items"],
)
def test_what_would_stall_a_process_is_refused_by_the_name_of_its_setting(body, named):
    with pytest.raises(BadInputError, match=f"expected at most .* raise AGENT_LAYER_{named}"):
        check_bounds(body, BodyBounds(values=200_000, depth=128, messages=10_000), "request")
