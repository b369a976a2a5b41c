"""The page for people who do not see it well, or use no mouse: names, contrast, the order of focus, light and dark.

axe-core finds what is wrong; ``make setup test`` fetches it from npm, beside the other packages that only tests use.
"""

import sys
from pathlib import Path

import pytest

from ..integration.view.test_view import viewed  # noqa: F401 - the store that the API's own tests read
from .test_views import _train, chromium, tab  # noqa: F401 - the browser and the server of the other tests

_AXE = Path(sys.prefix) / "node" / "node_modules" / "axe-core" / "axe.min.js"
_RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]
_VIEWS = [
    "#/runs",
    "#/run/r0",
    "#/trajectories?run=r0",
    "#/trajectory/g0.0-0?step=1",
    "#/trajectory/g0.0-0?tab=tokens",
    "#/group/g0",
    "#/update/r0/1",
    "#/fleet",
    "#/review?run=r0",
    "#/failures",
    "#/learning/r0",
]
_FOUND = """async tags => (await axe.run(document, {runOnly: tags, resultTypes: ['violations']})).violations
  .flatMap(({id, nodes}) => nodes.map(node => `${id}: ${node.target} ${node.any[0]?.message ?? ''}`))"""


def find_faults(page):
    """What axe-core finds wrong with what a page shows now."""
    if not _AXE.is_file():
        pytest.skip("axe-core is not installed: 'make test' fetches it where npm is")
    page.evaluate(_AXE.read_text())
    return page.evaluate(_FOUND, _RULES)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_names_and_contrast(tab, viewed, theme):  # noqa: F811 - the fixtures imported above
    _train(viewed)
    tab.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    found = {}
    for view in _VIEWS:
        tab.open(view)
        found[view] = find_faults(tab.page)

    assert {view: lines for view, lines in found.items() if lines} == {}
