"""Micro-batches: every row once, within the limit, and hardly any padding where paths of a tree differ in length."""

from hypothesis import given, strategies as st

from trainer_adapter.data.microbatches import split_by_length

LENGTHS = st.lists(st.integers(1, 300), max_size=60)


def padded_tokens(parts, lengths):
    return [len(part) * max(lengths[row] for row in part) for part in parts]


@given(LENGTHS, st.integers(1, 1000))
def test_each_row_is_in_one_micro_batch_and_only_a_lone_row_exceeds_the_limit(lengths, limit):
    parts = split_by_length(lengths, limit)

    assert sorted(row for part in parts for row in part) == list(range(len(lengths)))
    assert all(
        tokens <= limit or len(part) == 1 for part, tokens in zip(parts, padded_tokens(parts, lengths), strict=True)
    )


def test_a_forked_trajectory_is_computed_without_much_padding():
    lengths = [50 * turn for turn in range(1, 101) for _ in range(3)]  # 400 steps, a fork at three of four

    tokens = padded_tokens(split_by_length(lengths, 16_384), lengths)

    assert sum(tokens) < 1.05 * sum(lengths)
    assert max(tokens) <= 16_384


def test_the_largest_micro_batch_comes_first_so_that_memory_runs_out_at_once_or_never():
    lengths = [3, 90, 100, 2]

    assert split_by_length(lengths, 200) == [[2, 1], [0, 3]]
