"""Keys and fingers: rows are walked, things opened and turned, bars are wide enough; see ``test_each_view.py``, too."""

import re

from ..waiting import wait_until


def test_bars_of_the_histogram_are_wide_and_tall_enough_for_a_finger(tab):
    for width in (390, 700, 1280):
        tab.page.set_viewport_size({"width": width, "height": 844})
        tab.open("#/trajectories?run=r0")
        sizes = tab.page.locator(".histogram a").evaluate_all(
            "all => all.map(one => [one.offsetWidth, one.offsetHeight])"
        )
        assert len(sizes) > 1
        assert min(min(size) for size in sizes) >= 24, width


def test_skipping_leads_to_the_content(tab):
    tab.open("#/trajectories?run=r0")
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Enter")

    assert tab.page.evaluate("document.activeElement.id") == "main"


def test_j_and_k_walk_the_rows_and_enter_opens(tab):
    for view in ("#/runs", "#/run/r0", "#/learning/r0", "#/update/r0/1", "#/group/g0"):
        tab.open(view)
        stops = []
        for key in ("j", "j", "k"):
            tab.page.keyboard.press(key)
            stops.append(tab.page.evaluate("document.activeElement.getAttribute('href')"))
        assert stops[0] == stops[2], view
        tab.page.keyboard.press("Enter")

        tab.page.wait_for_url(re.compile(re.escape(stops[0]) + "$"))


def test_j_chooses_a_trajectory_and_a_step(tab):
    for view in ("#/failures", "#/trajectories?run=r0"):
        tab.open(view)
        tab.page.keyboard.press("j")
        first = tab.page.inner_text("tr[aria-selected=true] a")
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_url(re.compile("#/trajectory/"))
        tab.page.wait_for_selector("#step-0")
        assert tab.page.inner_text("h1") == first
    for key, step in (("j", 0), ("j", 1), ("k", 0)):
        tab.page.keyboard.press(key)
        tab.page.wait_for_selector(f"#step-{step}.on")


def test_arrows_turn_to_the_next_and_back(tab):
    for view, after in (
        ("#/trajectory/g0.0-0", "#/trajectory/g0.1-0"),
        ("#/diff/g0.0-0/g0.1-0", "#/diff/g0.0-0/g0.2-0"),
        ("#/update/r0/1", "#/update/r0/2"),
    ):
        tab.open(view)
        for key, there in (("ArrowRight", after), ("ArrowLeft", view)):
            tab.page.keyboard.press(key)
            tab.page.wait_for_url(re.compile(re.escape(there) + "$"))
            wait_until(lambda: tab.page.title().startswith(there.rpartition("/")[2]))  # noqa: B023 - called at once
            tab.page.wait_for_selector("main .loading", state="detached")


def test_a_slash_searches_and_a_question_mark_helps_everywhere(tab):
    for view in ("#/run/r0", "#/trajectories", "#/fleet"):
        tab.open(view)
        tab.page.keyboard.press("?")
        tab.page.wait_for_selector("dialog[open]")
        tab.page.keyboard.press("Escape")
        tab.page.wait_for_selector("dialog[open]", state="detached")
        tab.page.keyboard.press("/")

        tab.page.wait_for_selector("[data-search]:focus")
