import msgspec
from hypothesis import given, strategies as st

from agent_layer.schema.ids import content_hash
from agent_layer.schema.messages import refer_to, resolve

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)


def store(contents, value):
    body = msgspec.json.encode(value)
    contents[content_hash(body)] = body
    return content_hash(body)


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4))
def test_a_value_split_into_contents_comes_back_whole(state):
    contents = {}
    split = {name: refer_to(store(contents, value)) for name, value in state.items()}

    assert resolve(contents, store(contents, {"channels": [split]})) == {"channels": [state]}


def test_a_reference_to_nothing_stays_a_reference():
    contents = {}
    outer = store(contents, [refer_to("0" * 32)])

    assert resolve(contents, outer) == [{"$content": "0" * 32}]
    assert resolve({}, "1" * 32) == {"$content": "1" * 32}


def test_references_that_double_again_and_again_are_not_followed_for_ever():
    contents = {}
    name = store(contents, "x")
    for _ in range(30):
        name = store(contents, [refer_to(name), refer_to(name)])

    assert len(msgspec.json.encode(resolve(contents, name))) < 1_000_000
