"""Prefix matching by length and hash finds what comparing the sequences would find."""

from hypothesis import given, strategies as st

from agent_layer.gateway.rollouts.prefix import PrefixTable
from agent_layer.schema.ids import content_hash

sequences = st.lists(st.integers(0, 1), max_size=12).map(bytes)


@given(st.lists(sequences, max_size=20), sequences)
def test_the_longest_earlier_sequence_is_found(earlier, sequence):
    table = PrefixTable()
    for one in earlier:
        table.add(table.find(one)[1], one)

    match, hashed = table.find(sequence)

    expected = max((one for one in earlier if sequence.startswith(one)), key=len, default=None)
    assert (match.key if match else None) == expected
    assert match is None or (match.length, match.hash) == (len(expected), content_hash(expected))
    assert (hashed.length, hashed.hash) == (len(sequence), content_hash(sequence))


@given(sequences, sequences)
def test_a_hash_goes_on_without_changing_where_it_came_from(first, second):
    _, hashed = PrefixTable().find(first)

    assert hashed.extended(second).hash == content_hash(first + second)
    assert hashed.hash == content_hash(first)
