"""Everything of a view is reached: on a screen of 390 pixels, and by keys alone, in the order in which it is read."""

import re

from ..integration.view.test_view import viewed  # noqa: F401 - the store that the API's own tests read
from ..waiting import wait_until
from .test_views import _train, chromium, tab  # noqa: F401 - the browser and the server of the other tests

_VIEWS = [
    "#/runs",
    "#/run/r0",
    "#/learning/r0",
    "#/update/r0/1",
    "#/trajectories?run=r0",
    "#/trajectory/g0.0-0",
    "#/trajectory/g0.0-0?tab=tokens",
    "#/trajectory/g0.0-0?tab=forks",
    "#/group/g0",
    "#/diff/g0.0-0/g0.1-0",
    "#/failures",
    "#/fleet",
    "#/review?run=r0",
]
_MOST_STOPS = 14
_IS_SIDEWAYS = "document.documentElement.scrollWidth > innerWidth"
_LOST = """[...document.querySelectorAll(':is(a, button, input, select, summary):not(.skip)')].filter(one => {
  if (!one.checkVisibility()) return false;
  const {left, right, width} = one.getBoundingClientRect();
  const box = one.closest('.scroll-x, .siblings');
  return width < 1 || (left < 0 || right > innerWidth) && !(box && box.scrollWidth > box.clientWidth);
}).map(one => one.outerHTML.slice(0, 120))"""
"""Controls that neither the screen shows nor a box that scrolls by itself."""
_STOP = """(() => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  const isOutlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1;
  return {text: one.textContent, at: [...document.querySelectorAll('*')].indexOf(one), tag: one.tagName,
          isSeen: isOutlined && box.bottom > 0 && box.top < innerHeight,
          isNamed: Boolean(one.textContent || one.ariaLabel || one.placeholder)} })()"""


def test_a_small_screen_shows_every_control_and_does_not_scroll_sideways(tab, viewed):  # noqa: F811 - imported above
    _train(viewed)
    tab.page.set_viewport_size({"width": 390, "height": 844})
    for view in _VIEWS:
        tab.open(view)

        assert not tab.page.evaluate(_IS_SIDEWAYS), view
        assert tab.page.evaluate(_LOST) == [], view


def test_bars_of_the_histogram_are_wide_and_tall_enough_for_a_finger(tab):  # noqa: F811
    for width in (390, 700, 1280):
        tab.page.set_viewport_size({"width": width, "height": 844})
        tab.open("#/trajectories?run=r0")
        sizes = tab.page.locator(".histogram a").evaluate_all(
            "all => all.map(one => [one.offsetWidth, one.offsetHeight])"
        )
        assert len(sizes) > 1
        assert min(min(size) for size in sizes) >= 24, width


def test_focus_follows_the_text_and_is_seen(tab, viewed):  # noqa: F811
    _train(viewed)
    for view in _VIEWS:
        tab.open(view)
        _expect_walk(tab)


def _expect_walk(tab):  # noqa: F811
    tab.page.keyboard.press("Tab")
    first, stops = tab.page.evaluate(_STOP), []
    assert first["text"] == "Skip to the content"
    while len(stops) < _MOST_STOPS:
        tab.page.keyboard.press("Tab")
        if (stop := tab.page.evaluate(_STOP))["tag"] == "BODY" or stop["at"] == first["at"]:
            break  # around the end
        stops.append(stop)

    assert [stop for stop in stops if not (stop["isSeen"] and stop["isNamed"])] == []
    assert [stop["at"] for stop in stops] == sorted({stop["at"] for stop in stops})


def test_skipping_leads_to_the_content(tab):  # noqa: F811
    tab.open("#/trajectories?run=r0")
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Enter")

    assert tab.page.evaluate("document.activeElement.id") == "main"


def test_j_and_k_walk_the_rows_and_enter_opens(tab, viewed):  # noqa: F811
    _train(viewed)
    for view in ("#/runs", "#/run/r0", "#/learning/r0", "#/update/r0/1", "#/group/g0"):
        tab.open(view)
        stops = []
        for key in ("j", "j", "k"):
            tab.page.keyboard.press(key)
            stops.append(tab.page.evaluate("document.activeElement.getAttribute('href')"))
        assert stops[0] == stops[2], view
        tab.page.keyboard.press("Enter")

        tab.page.wait_for_url(re.compile(re.escape(stops[0]) + "$"))


def test_j_chooses_a_trajectory_and_a_step(tab):  # noqa: F811
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


def test_arrows_turn_to_the_next_and_back(tab, viewed):  # noqa: F811
    _train(viewed)
    _train(viewed, step=2)
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


def test_a_slash_searches_and_a_question_mark_helps_everywhere(tab):  # noqa: F811
    for view in ("#/run/r0", "#/trajectories", "#/fleet"):
        tab.open(view)
        tab.page.keyboard.press("?")
        tab.page.wait_for_selector("dialog[open]")
        tab.page.keyboard.press("Escape")
        tab.page.wait_for_selector("dialog[open]", state="detached")
        tab.page.keyboard.press("/")

        tab.page.wait_for_selector("[data-search]:focus")
