"""The schedule of sources: each has its share at every moment."""

from collections import Counter

from hypothesis import given, strategies as st

from trainer_adapter.tasks.schedule import choose_source


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=7), st.integers(1, 300))
def test_every_source_is_within_one_task_of_its_share_at_every_moment(numbers, length):
    weights = {str(at): weight for at, weight in enumerate(numbers)}
    counts = Counter()

    for num in range(1, length + 1):
        counts[choose_source(weights, counts)] += 1
        assert all(abs(counts[name] - num * weight / sum(numbers)) <= 1 for name, weight in weights.items())


def test_a_schedule_by_hand():
    counts = Counter()
    drawn = []
    for _ in range(8):
        drawn.append(choose_source({"a": 2, "b": 1, "c": 1, "off": 0}, counts))
        counts[drawn[-1]] += 1

    assert Counter(drawn[:4]) == Counter(drawn[4:]) == {"a": 2, "b": 1, "c": 1}
    assert drawn[0] == "a"
