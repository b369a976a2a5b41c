"""This file holds the explanation of a search: what leads it, and how much of the index it has to look at."""

import time

import msgspec

from agent_layer.store.filters import Conditions, Filters, NumberRange, conditions_of
from agent_layer.store.index import Index, seek_in_turns
from agent_layer.store.plan import Order
from agent_layer.store.query import LARGEST_SEARCH, check_order, search

__all__ = ["Explanation", "explain_search"]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """How a search finds its answer."""

    lead: str
    """The condition that the fewest trajectories meet."""
    conditions: dict[str, int]
    """Condition → how many trajectories meet it alone."""
    num_trajectories: int
    """In the whole index."""
    num_blocks: int
    """Of 2,048 trajectories each, in the whole index."""
    num_planned: int
    """Blocks that can hold answers: every value asked for occurs in them, and their numbers reach into each range."""
    num_read: int
    """Blocks that were looked into before the answer was complete."""
    num_tested: int
    """Trajectories in these whose numbers were compared."""
    num_found: int
    seconds: float
    """Of the search alone."""


def explain_search(index: Index, filters: Filters, order: Order = "newest", limit: int = 32) -> Explanation:
    """Search, and tell how.

    Raises: BadInputError: what ``find_trajectories`` raises it for.
    """
    conditions = conditions_of(filters)
    began = time.perf_counter()
    found = search(index, conditions, check_order(order, limit), min(limit, LARGEST_SEARCH))
    seconds = time.perf_counter() - began
    counts = {_shown(one): _count_alone(index, one) for one in _single(conditions)}
    return Explanation(
        lead=min(counts, key=counts.__getitem__),
        conditions=counts,
        num_trajectories=_count_alone(index, Conditions(names=("all",))),
        num_blocks=found.num_blocks,
        num_planned=found.num_planned,
        num_read=found.num_read,
        num_tested=found.num_tested,
        num_found=len(found.positions),
        seconds=seconds,
    )


def _single(conditions: Conditions) -> list[Conditions]:
    """Each condition alone."""
    return [
        *(Conditions(names=(name,)) for name in conditions.names),
        *(Conditions(names=("all",), without=(name,)) for name in conditions.without),
        *(Conditions(names=("all",), ranges=(one,)) for one in conditions.ranges),
    ]


def _shown(one: Conditions) -> str:
    if one.ranges:
        (asked,) = one.ranges
        return _range_text(asked)
    return f"not {one.without[0]}" if one.without else one.names[0]


def _range_text(asked: NumberRange) -> str:
    return f"{asked.low:g} <= {asked.column} <= {asked.high:g}"


def _count_alone(index: Index, conditions: Conditions) -> int:
    blocks = [zone.block for zone in index.read_map().zones]
    return sum(index.count(sought) for sought in seek_in_turns(conditions, blocks))
