"""Links to the page: one declaration for each kind of thing that a command names."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias
from urllib.parse import quote, urlencode

from agent_layer.settings import Settings
from agent_layer.store import Filters
from agent_layer.view.addresses import find_page
from agent_layer.view.reads.params import query_parameters

Thing: TypeAlias = Literal[
    "failures", "fleet", "group", "learning", "run", "runs", "step", "trajectories", "trajectory", "update"
]

_PLACES: Final[Mapping[Thing, str]] = {
    "failures": "#/failures",
    "fleet": "#/fleet",
    "group": "#/group/{}",
    "learning": "#/learning/{}",
    "run": "#/run/{}",
    "runs": "#/runs",
    "step": "#/trajectory/{}?step={}",
    "trajectories": "#/trajectories",
    "trajectory": "#/trajectory/{}",
    "update": "#/update/{}/{}",
}
"""Where the page shows a thing, with a place for each of its names; core/router.js reads it."""


def link_to(
    settings: Settings, thing: Thing, *names: str | int, filters: Filters | None = None, order: str = ""
) -> str | None:
    """Return the link of a thing on the page that serves the namespace, as ``make_link``; None: no page is known."""
    address = find_page(settings)
    return None if address is None else make_link(address, thing, *names, filters=filters, order=order)


def make_link(address: str, thing: Thing, *names: str | int, filters: Filters | None = None, order: str = "") -> str:
    """Return the link of a thing. It has no token, because ``find_page`` returns none.

    Args:
        address: of the page.
        thing: its kind.
        names: that ``_PLACES`` has room for.
        filters: of a list of things.
        order: of that list; empty: the page's own.
    """
    place = address + _PLACES[thing].format(*(quote(str(name), safe="") for name in names))
    parameters = [*query_parameters(filters or {}), *([("order", order)] if order else [])]
    return f"{place}?{urlencode(parameters)}" if parameters else place
