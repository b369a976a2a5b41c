"""Whatever a value holds, each part of it has a JSON form that can be stored, and only what has none is changed."""

import dataclasses
import json
import re
from decimal import Decimal

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from agent_layer.schema.json_forms import mend_surrogates, to_json_form

texts = st.text(st.characters(exclude_categories=()), max_size=6)
plain = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    plain
    | st.integers(-(2**80), 2**80)
    | st.sampled_from([np.float64(0.5), np.int32(3), np.arange(3), Decimal("1.5")]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@dataclasses.dataclass
class Pair:
    left: object
    right: object


@given(values)
def test_every_value_can_be_stored(value):
    form = to_json_form(value, repr)

    assert msgspec.json.decode(msgspec.json.encode(form)) == form
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(form)) == form


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"x": "cut \ud83d", "y": "whole \U0001f600"}, {"x": "cut \\ud83d", "y": "whole \U0001f600"}),
        ([2**64 - 1, 2**64, -(2**63) - 1], [2**64 - 1, str(2**64), str(-(2**63) - 1)]),
        (
            {"n": np.float32(0.5), "all": np.eye(2), "ok": np.bool_(1)},
            {"n": 0.5, "all": [[1, 0], [0, 1]], "ok": True},
        ),
        (Pair("\ud800", [np.int64(1), Pair(1, 2)]), {"left": "\\ud800", "right": [1, {"left": 1, "right": 2}]}),
        ({("a", 1): {1}, "b": object}, {"('a', 1)": [1], "b": "<class 'object'>"}),
    ],
)
def test_only_what_has_no_form_is_changed(value, form):
    assert to_json_form(value, repr) == form


def test_a_value_that_contains_itself_ends():
    value = {"x": 1}
    value["self"] = value

    assert to_json_form(value, lambda _: "again")["self"]["x"] == 1


@given(st.recursive(texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)))
def test_mended_json_is_the_same_but_for_lone_surrogates(value):
    mended = mend_surrogates(json.dumps(value).encode())

    assert msgspec.json.decode(mended) == replaced(json.loads(json.dumps(value)))


def replaced(value):
    match value:
        case str():
            return re.sub("[\ud800-\udfff]", "\ufffd", value)
        case list():
            return [replaced(one) for one in value]
        case _:
            return {replaced(name): replaced(one) for name, one in value.items()}
