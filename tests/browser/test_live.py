"""A live run moves the page: only the views that a change touches ask again, and no more than once a second."""

from itertools import pairwise

import pytest

from ..builders import attempt, call
from ..stored import write_segment
from ..waiting import wait_until

_SENT = """path => performance.getEntriesByType('resource')
  .filter(one => new URL(one.name).pathname === '/api/v1/' + path).map(one => one.startTime)"""
_ARE_SPARSE = 900.0
"""Milliseconds between two questions; the page itself waits 1,000, by another clock."""


@pytest.fixture
def tab(fresh_tab):
    """These tests change the store."""
    return fresh_tab


def test_a_live_run_moves_the_page_which_asks_less_often_while_it_goes_on(tab, fresh):
    tab.open("#/run/r0")
    tab.page.wait_for_selector("[data-live=true]", state="attached")
    num_before, names = tab.ask("runs/r0")["counts"]["trajectories"], []

    def moves():
        names.append(f"new{len(names)}.0-0")
        write_segment(fresh.store, *attempt(names[-1], at=5000.0 + len(names), run="r0", status="failed"))
        tab.page.wait_for_timeout(200)
        return len(tab.page.evaluate(_SENT, "runs/r0")) >= 4  # the first two: before the stream, and at its beginning

    wait_until(moves, what="the page to ask twice while the run goes on")
    pauses = [late - early for early, late in pairwise(tab.page.evaluate(_SENT, "runs/r0")[1:])]
    assert [pause for pause in pauses if pause < _ARE_SPARSE] == []
    assert max(pauses) >= 2 * _ARE_SPARSE
    tab.page.get_by_text(names[-1]).first.wait_for()
    tab.page.locator(".tiles", has_text=f"{num_before + len(names)}").wait_for()  # may come with the next answer
    assert tab.errors == []


def test_what_a_change_does_not_touch_is_not_asked_again(tab, fresh):
    write_segment(fresh.store, *attempt("slow.0-0", run="r0", status="running"))
    tab.open("#/trajectory/slow.0-0")
    tab.page.wait_for_selector("[data-live=true]", state="attached")
    write_segment(fresh.store, *attempt("other.0-0", run="r0"))
    write_segment(fresh.store, *call("slow.0-0", run="r0", at=3.0))
    tab.page.get_by_text("Step 0").first.wait_for()
    tab.open("#/run/r1")
    tab.page.wait_for_selector("[data-live=true]", state="attached")
    before = tab.page.evaluate(_SENT, "runs/r1")
    write_segment(fresh.store, *attempt("other.1-0", run="r0"))
    write_segment(fresh.store, *attempt("seen.0-0", at=6000.0, run="r1", status="failed"))
    tab.page.get_by_text("seen.0-0").first.wait_for()

    assert len(tab.page.evaluate(_SENT, "runs/r1")) <= len(before) + 2
    assert tab.errors == []


def test_the_choice_of_a_second_run_asks_again_only_for_new_runs(tab, fresh):
    tab.open("#/run/r0")
    tab.page.wait_for_selector("[data-live=true]", state="attached")
    write_segment(fresh.store, *attempt("known.0-0", at=8000.0, run="r0", status="failed"))
    tab.page.get_by_text("known.0-0").first.wait_for()
    assert len(tab.page.evaluate(_SENT, "runs")) <= 2  # before the stream, and at its beginning

    write_segment(fresh.store, *attempt("first.0-0", at=8002.0, run="begun"))
    tab.page.wait_for_selector("main select option[value=begun]", state="attached")
    assert tab.errors == []


def test_without_a_stream_the_page_says_what_that_means_on_a_telephone_too(tab):
    tab.page.set_viewport_size({"width": 390, "height": 844})
    badge = tab.page.locator("[data-live]")
    for answer, word, reported in (
        (lambda route: route.fulfill(status=503), "asks every 4 s", "what you see may be that old"),
        (lambda route: route.abort(), "cut off", "the server does not answer"),
    ):
        tab.page.route("**/api/v1/events*", answer)
        tab.open("#/run/r0")
        tab.page.get_by_text(word).first.wait_for()
        assert badge.is_visible()
        assert reported in badge.inner_text()
        assert reported in badge.get_attribute("title")
        tab.page.unroute("**/api/v1/events*")
