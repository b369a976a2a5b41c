"""Admission: no group begins too early, and no wait is in vain."""

from hypothesis import given, strategies as st

from trainer_adapter.data.max_staleness import plan_start_versions

plans = st.fixed_dictionaries(
    {
        "groups_per_step": st.integers(1, 4),
        "max_staleness": st.integers(0, 3),
        "ask_ahead_steps": st.integers(0, 3),
    }
)


@given(plans)
def test_with_nothing_dropped_a_position_begins_as_many_versions_before_its_step_as_staleness_allows(plan):
    size, waiting, starts = plan["groups_per_step"], [], []
    for version in range(6):
        new = plan_start_versions(waiting, version, **plan)
        starts += new
        waiting = (waiting + new)[size:]

    assert starts == [position // size - plan["max_staleness"] for position in range(len(starts))]


@given(plans, st.integers(0, 5))
def test_what_may_begin_at_once_is_what_asking_for_nothing_ahead_would_ask_for(plan, version):
    ahead, at_once = (
        plan_start_versions([], version, **plan),
        plan_start_versions([], version, **plan | {"ask_ahead_steps": 0}),
    )

    assert at_once == [start for start in ahead if start <= version]
    assert len(at_once) == plan["groups_per_step"] * (1 + plan["max_staleness"])
    assert len(ahead) == len(at_once) + plan["groups_per_step"] * plan["ask_ahead_steps"]


@given(plans, st.data())
def test_whatever_is_dropped_no_group_is_too_old_for_its_step_and_no_step_lacks_groups(plan, data):
    size, version = plan["groups_per_step"], 0
    waiting: list[tuple[int, int]] = []
    """(version from which it may begin, version by which it began at the earliest)"""

    def ask() -> None:
        new = plan_start_versions([start for start, _ in waiting], version, **plan)
        waiting.extend((start, max(start, version)) for start in new)
        waiting.sort()

    for _ in range(data.draw(st.integers(1, 8), "steps")):
        ask()
        for _ in range(data.draw(st.integers(0, 3), "dropped")):
            waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            ask()
        trained, waiting[:] = waiting[:size], waiting[size:]
        assert all(began <= version <= began + plan["max_staleness"] for _, began in trained)
        version += data.draw(st.booleans(), "changes weights")
