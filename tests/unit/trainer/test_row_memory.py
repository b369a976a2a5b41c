"""An update that ran out of memory lowers the longest row, so that its groups end no run for ever."""

import pytest
from hypothesis import given, strategies as st

from trainer_adapter.loop.row_memory import is_out_of_memory, lower_row_memory, read_row_memory


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=200), st.integers(1, 100_000), st.integers(1, 100_000))
def test_a_few_starts_are_enough_whatever_the_rows(tmp_path_factory, rows, fits, microbatch):
    path, num_starts = tmp_path_factory.mktemp("run") / "row_memory.json", 0
    fits = max(fits, microbatch)

    while max((row for row in rows if row <= (read_row_memory(path) or row)), default=0) > fits:
        longest = max(row for row in rows if row <= (read_row_memory(path) or row))
        assert lower_row_memory(path, longest, microbatch) == read_row_memory(path) < longest
        num_starts += 1

    assert num_starts < 100
    assert (read_row_memory(path) or fits) >= fits * 7 // 8


def test_a_micro_batch_as_large_as_it_was_asked_for_blames_no_row(tmp_path):
    assert lower_row_memory(tmp_path / "row_memory.json", 16, 16) is None
    assert read_row_memory(tmp_path / "row_memory.json") is None


def test_a_torn_file_is_none(tmp_path):
    (tmp_path / "row_memory.json").write_bytes(b'{"max_to')
    assert read_row_memory(tmp_path / "row_memory.json") is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: not enough memory"), True),
        (RuntimeError("shape mismatch"), False),
    ],
)
def test_want_of_memory_is_told_from_other_failures(error, expected):
    assert is_out_of_memory(error) is expected
