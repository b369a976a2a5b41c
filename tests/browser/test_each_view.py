"""Each view: it renders, asks no other host, is read with keys or on a small screen, and has names and contrast.

Every control is reached on a screen of 390 pixels, and by keys alone, in the order in which it is read.
"""

import pytest

from ..waiting import wait_until
from .tabs import find_faults

_VIEWS = {
    "#/runs": "r0",
    "#/run/r0": "Update 1",
    "#/trajectories?run=r0": "g0.0-0",
    "#/trajectory/g0.0-0?step=1": "Step 1",
    "#/trajectory/g0.0-0?tab=tokens": "Log-probability by position",
    "#/trajectory/g0.0-0?tab=forks": "Broken prefixes",
    "#/group/g0": "Member 3",
    "#/diff/g0.0-0/g0.1-0": "They part at",
    "#/learning/r0": "First and newest version",
    "#/failures": "By whose fault",
    "#/update/r0/1": "greedy",
    "#/fleet": "No worker was seen in the last day",
    "#/review?run=r0": "--allow-writes",
}
"""With a text that is there."""
_MAX_STOPS = 14
_GROUND = "getComputedStyle(document.documentElement).backgroundColor"
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


@pytest.mark.parametrize("view", _VIEWS)
def test_it_asks_no_other_host_and_is_read_by_keys_and_on_a_small_screen(tab, view):
    tab.page.set_viewport_size({"width": 390, "height": 844})
    tab.open(view)
    assert not tab.page.evaluate(_IS_SIDEWAYS)
    assert tab.page.evaluate(_LOST) == []

    tab.page.set_viewport_size({"width": 1280, "height": 900})
    wait_until(lambda: _VIEWS[view] in tab.page.inner_text("main"))
    _expect_walk(tab)
    assert tab.errors == []
    assert tab.hosts == {tab.address.split("/")[2]}


def _expect_walk(tab):
    tab.page.keyboard.press("Tab")
    first, stops = tab.page.evaluate(_STOP), []
    assert first["text"] == "Skip to the content"
    while len(stops) < _MAX_STOPS:
        tab.page.keyboard.press("Tab")
        if (stop := tab.page.evaluate(_STOP))["tag"] == "BODY" or stop["at"] == first["at"]:
            break  # around the end
        stops.append(stop)

    assert [stop for stop in stops if not (stop["isSeen"] and stop["isNamed"])] == []
    assert [stop["at"] for stop in stops] == sorted({stop["at"] for stop in stops})


@pytest.mark.parametrize("view", _VIEWS)
def test_names_and_contrast_by_day_and_by_night(tab, view):
    tab.page.emulate_media(color_scheme="light", reduced_motion="reduce")
    tab.open(view)
    assert find_faults(tab.page) == []
    day = tab.page.evaluate(_GROUND)
    tab.page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    wait_until(lambda: tab.page.evaluate(_GROUND) != day)
    assert find_faults(tab.page) == []
