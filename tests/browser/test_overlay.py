"""Two runs beside each other, by an address: what both pages tell of each is what Python computes from the store."""

from statistics import fmean

import pytest

from agent_layer.schema.training import TrainedBatch, TrainedRollout

from ..builders import attempt
from ..stored import write_segment

_REWARDS = {"r0": {1: [0.0, 1.0], 2: [1.0, 0.5]}, "r1": {2: [0.0, 0.25], 5: [0.5, 0.75, 0.75]}}


@pytest.fixture
def tab(fresh_tab):
    """These tests change the store."""
    return fresh_tab


def test_a_run_beside_another(tab, fresh):
    for run, steps in _REWARDS.items():
        for step, rewards in steps.items():
            write_segment(fresh.store, _batch(run, step, rewards))
    tab.open("#/run/r0")
    tab.page.select_option("main select", "r1")
    tab.page.wait_for_selector("[data-compared]")
    assert tab.page.url.endswith("#/run/r0?with=r1")

    rows = {run: _accepted(fresh, run) for run in _REWARDS}
    table = _table(tab, "[data-compared]")
    assert table["Success"][:2] == [_percent(row.reward > 0 for row in rows[run]) for run in ("r0", "r1")]
    assert table["Mean reward"][:2] == [_number(fmean(row.reward for row in rows[run])) for run in ("r0", "r1")]
    assert table["Accepted"][:2] == [str(len(rows[run])) for run in ("r0", "r1")]
    reported = [f"{run} last {_number(fmean(steps[max(steps)]))}" for run, steps in _REWARDS.items()]
    assert tab.page.locator(f"figure[aria-label='Mean reward by training step: {', '.join(reported)}']").count() == 1
    assert tab.errors == []


def test_learning_beside_another(tab, fresh):
    tab.open("#/learning/r0?with=r1")
    tab.page.wait_for_selector("th:text('In r1')")

    found = _table(tab, "[aria-label='First and newest version'] table")
    for kind in {row.task_type for row in _accepted(fresh, "r0")}:
        for run, cell in (("r0", 2), ("r1", 3)):
            rows = [row for row in _accepted(fresh, run) if row.task_type == kind]
            newest = max((row.policy_max for row in rows), default=None)
            rate = _percent(row.reward > 0 for row in rows if row.policy_max == newest)
            assert found[kind][cell] == (f"{rate} v{newest}" if rows else "\u2013")


def test_a_long_name_beside_leaves_room_on_a_small_screen(tab, fresh):
    write_segment(
        fresh.store, _batch("a-run-with-a-name-" * 4, 1, [1.0]), *attempt("l.0-0", run="a-run-with-a-name-" * 4)
    )
    tab.page.set_viewport_size({"width": 390, "height": 844})
    tab.open("#/run/r0")
    tab.page.wait_for_selector("main select")
    ends = tab.page.locator("main .page-head :is(a, select)").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().right)"
    )

    assert max(ends) <= 390


def test_a_run_beside_one_that_is_not_there(tab):
    tab.open("#/run/r0?with=nothing")

    tab.page.get_by_text("run 'nothing': expected it in the store").wait_for()
    assert "Newest failures" in tab.page.inner_text("main")


def _batch(run, step, rewards):
    rollouts = [
        TrainedRollout(
            trajectory_id=f"{run}.{step}.{at}-0", group_id="g", reward=reward, reward_ids=[], samples_hash=""
        )
        for at, reward in enumerate(rewards)
    ]
    return TrainedBatch(
        run=run,
        batch_id=f"{run}/{step}",
        step=step,
        policy_version=step,
        trained_at=float(step),
        rollouts=rollouts,
        num_samples=len(rollouts),
        batch_hash="",
    )


def _accepted(fresh, run):
    return [row for row in fresh.store.query(run=run, limit=500).items if row.accepted]


def _table(tab, selector):
    """Texts of a table's cells by the first of each row."""
    rows = tab.page.locator(f"{selector} tbody tr").all()
    return {cells[0]: cells[1:] for cells in (row.locator("td").all_inner_texts() for row in rows)}


def _percent(values):
    share = fmean(values)
    return f"{100 * share:.{1 if 0 < share < 0.1 else 0}f} %"


def _number(value):
    return (f"{value:.0f}" if value == int(value) else f"{value:.2f}").replace("-", "\u2212")
