"""Values of any kind become JSON values one by one; stored JSON of any kind can be read and shown."""

import dataclasses
import datetime
import enum
import json
import math
import re
import uuid
from collections import OrderedDict, deque
from decimal import Decimal
from types import MappingProxyType

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, ConfigDict

from agent_layer.schema.json_forms import MAX_DEPTH, json_text, json_value, mend_surrogates, read_json, safe_repr
from agent_layer.schema.messages import parse_json_text


class Point(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    x: object


@dataclasses.dataclass
class Pair:
    left: object
    right: object = 1


class Colour(enum.Enum):
    RED = "red"
    BOTH = (1, 2)


class Odd:
    def __repr__(self):
        return "<odd \ud83d>"


FORMS = [
    ("\ud83d", "\\ud83d"),
    ("say \ud83d\ude00", "say 😀"),
    (np.float32(0.5), 0.5),
    (np.float64("nan"), "NaN"),
    (np.int64(3), 3),
    (np.bool_(1), True),
    (np.str_("word"), "word"),
    (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (np.array([{"deep": np.int8(1)}]), [{"deep": 1}]),
    (np.datetime64("2020-01-02", "D"), "2020-01-02"),
    (np.zeros((300, 300)), repr(np.zeros((300, 300)))),
    (math.nan, "NaN"),
    (-math.inf, "-Infinity"),
    (Decimal("1.50"), "1.50"),
    (2**64 - 1, 2**64 - 1),
    (2**64, str(2**64)),
    (-(2**80), str(-(2**80))),
    (10**5000, hex(10**5000)),
    ({3, 1}, [1, 3]),
    (frozenset([(1, "\udc00")]), [[1, "\\udc00"]]),
    (deque([np.int8(1)]), [1]),
    (b"a\xff", "Yf8="),
    (bytearray(b"ab"), "YWI="),
    (datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC), "2020-01-02T00:00:00Z"),
    (datetime.timedelta(days=3), "P3D"),
    (uuid.UUID(int=3), str(uuid.UUID(int=3))),
    (Colour.RED, "red"),
    (Colour.BOTH, [1, 2]),
    (Point(x=1), {"x": 1}),
    (Point(x="\ud83d"), {"x": "\\ud83d"}),
    (Point(x=np.array([1])), {"x": [1]}),
    (Point(x=[Point(x=Odd())]), {"x": [{"x": "<odd \\ud83d>"}]}),
    (Pair(np.int8(1), Point(x=b"ab")), {"left": 1, "right": {"x": "ab"}}),
    (OrderedDict(a=np.int8(1)), {"a": 1}),
    (MappingProxyType({"a": {1}}), {"a": [1]}),
    ({1: 2, "1": 3, None: 4, (1, 2): 5, Colour.RED: 6, "\ud83d": 7, 1.5: 8}, None),
    (Odd(), "<odd \\ud83d>"),
    (Pair, repr(Pair)),
    (ValueError("no"), "ValueError('no')"),
]


@pytest.mark.parametrize(
    ("value", "form"), FORMS, ids=[f"{at}-{type(one).__name__}" for at, (one, _) in enumerate(FORMS)]
)
def test_what_has_no_json_form_is_converted_by_itself(value, form):
    around = {"before": [1, "one"], "odd": [value], "after": {"yes": True}}

    found = json_value(around)

    if form is not None:
        assert found == {"before": [1, "one"], "odd": [form], "after": {"yes": True}}
    assert len(found["odd"][0] if isinstance(value, dict) else found) == (len(value) if isinstance(value, dict) else 3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found)) == found
    text = msgspec.json.decode(json_text(around))  # which has a form for long integers, too
    assert isinstance(value, int | set) or text == found


hostile = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(categories=["Cs", "L", "N"]), max_size=4)
    | st.sampled_from([value for value, _ in FORMS if type(value) is not int]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.none(), inner, max_size=3)
        | st.builds(Pair, inner)
        | st.builds(Point, x=inner)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@given(hostile)
def test_every_value_has_a_form_that_both_encodings_hold(value):
    found = json_value(value)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found)) == found
    assert json.loads(msgspec.json.encode(found)) == found
    assert json_value(found) == found
    msgspec.json.decode(json_text(value))


def test_what_is_endless_or_too_deep_ends_in_its_repr():
    endless = {"name": "a"}
    endless["self"] = [endless]
    deep = 1
    for _ in range(50_000):
        deep = [deep]

    assert json_value(endless) == {"name": "a", "self": ["{'name': 'a', 'self': [{...}]}"]}
    found, depth = json_value({"deep": deep, "fine": np.int8(1)}), 0
    assert found["fine"] == 1
    while isinstance(found := found["deep"] if isinstance(found, dict) else found[0], list):
        depth += 1
    assert depth <= MAX_DEPTH
    assert msgspec.json.decode(json_text(deep))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"x":"\\ud83d","y":"\\ud83d\\ude00"}', {"x": "\\ud83d", "y": "😀"}),
        ('{"x":NaN,"y":[-Infinity,1e400]}', {"x": "NaN", "y": ["-Infinity", "Infinity"]}),
        ('{"x":1', '{"x":1'),
        ("word", "word"),
        ("[" * 5_000 + "]" * 5_000, "[" * 5_000 + "]" * 5_000),
        ("\ud83d", "\ud83d"),
    ],
)
def test_json_of_other_writers_is_read_by_value(text, value):
    assert parse_json_text(text) == value
    assert read_json(text.encode("utf-8", "surrogatepass")) in (
        value,
        text.encode("utf-8", "surrogatepass").decode("utf-8", "backslashreplace"),
    )


class Awkward:
    """Raises on every inspection."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def model_dump(self, mode):
        raise AttributeError(mode)


class AwkwardError(Exception):
    __repr__ = __str__ = Awkward.__repr__


def test_a_value_that_cannot_be_described_fails_nobody():
    message = "<Awkward, whose repr raises RuntimeError>"
    assert json_value(Awkward()) == message
    assert json_value({"deep": [Awkward()], "fine": 1}) == {"deep": [message], "fine": 1}
    assert json_value({Awkward()}) == [message]
    assert safe_repr(AwkwardError()) == "<AwkwardError, whose repr raises RuntimeError>"


texts = st.text(st.characters(exclude_categories=()), max_size=6)


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
