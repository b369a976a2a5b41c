"""Work of the main thread in each frame of a scroll, from a trace that Chromium writes."""

import json
from collections.abc import Iterator, Sequence

from playwright.sync_api import Browser, Page

__all__ = ["scroll_frames"]

_WORK = frozenset(
    {
        *("EvaluateScript", "FunctionCall", "FireAnimationFrame", "TimerFire", "RunMicrotasks", "EventDispatch"),
        *("UpdateLayoutTree", "Layout", "PrePaint", "Paint", "Layerize", "UpdateLayer", "Commit"),
    }
)
_FRAME = "Commit"
"""Last work of a frame on the main thread."""
_NUM_SCROLLS, _SCROLL_PX = 80, 240


def scroll_frames(browser: Browser, page: Page, selector: str) -> list[float]:
    """Scroll a box down; return the milliseconds of script, layout and paint in each frame that did any."""
    page.hover(selector)
    browser.start_tracing(page=page, categories=["devtools.timeline", "disabled-by-default-devtools.timeline"])
    for _ in range(_NUM_SCROLLS):
        page.mouse.wheel(0, _SCROLL_PX)
        page.evaluate("new Promise((done) => requestAnimationFrame(done))")
    events = json.loads(browser.stop_tracing())["traceEvents"]
    thread = _busiest(events)
    own = sorted((one for one in events if (one.get("pid"), one.get("tid")) == thread), key=lambda one: one["ts"])
    return [found for found in _frames(own) if found > 0]


def _busiest(events: Sequence[dict]) -> tuple[int, int]:
    """Return the main thread that made the most frames."""
    begun: dict[tuple[int, int], int] = {}
    for one in events:
        if one["name"] == _FRAME:
            begun[one["pid"], one["tid"]] = begun.get((one["pid"], one["tid"]), 0) + 1
    return max(begun, key=lambda thread: begun[thread])


def _frames(events: Sequence[dict]) -> Iterator[float]:
    """Yield the work that each frame ends; what is inside other work counts once."""
    work = ended_at = 0.0
    for one in events:
        if one["name"] in _WORK and one.get("ph") == "X":
            end = one["ts"] + one.get("dur", 0)
            work += max(0.0, end - max(one["ts"], ended_at))
            ended_at = max(ended_at, end)
        if one["name"] == _FRAME:
            yield work / 1000
            work = 0.0
