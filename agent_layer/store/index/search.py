"""Search for trajectories, page by page, and the explanation of a search."""

import math
import time
from collections.abc import Iterator, Sequence
from typing import get_args

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.infra import batched
from agent_layer.store.index.bounded_search import Match, search
from agent_layer.store.index.filters import Conditions, Filters
from agent_layer.store.index.index import Index, Position
from agent_layer.store.index.members import find_matches
from agent_layer.store.index.plan import Order, Ordering, find_ordering
from agent_layer.store.index.rows import TrajectoryRow

_PAGE = 512

FIRST_PAGE = 32
"""Rows of a page for which no limit was given."""

MAX_SEARCH = 1_024
"""A longer answer consists of several searches, so that each call stays small."""


class RowPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of an answer, in the requested order of its rows.

    No trajectory is on two pages unless it moved meanwhile: by order of start, when its ``AttemptStarted`` arrives
    after its steps. Before that, ``task_id`` is None and its start is that of the first record.
    """

    items: list[TrajectoryRow]
    cursor: str | None = None
    """Pass it to get the next page; None on the last page."""


def find_trajectories(
    index: Index, filters: Filters, order: Order = "newest", limit: int = FIRST_PAGE, cursor: str | None = None
) -> RowPage:
    """Return the first trajectories, in the requested order, that pass all filters.

    Raises: BadInputError: a filter, the order, the limit or the cursor is not valid.
    """
    conditions, ordering = index.parse(filters), check_order(order, limit)
    found, after = list[Match](), _read_cursor(cursor, order)
    while (num_wanted := min(limit + 1 - len(found), MAX_SEARCH)) > 0:
        more = search(index, conditions, ordering, num_wanted, after).matches
        found += more
        if len(more) < num_wanted:
            break
        after = more[-1].position
    last = found[limit - 1].position if len(found) > limit else None
    return RowPage(
        items=_read_in_order(index, ordering, found[:limit], last),
        cursor=None if last is None else _write_cursor(last, order),
    )


def _read_in_order(
    index: Index, ordering: Ordering, found: Sequence[Match], last: Position | None
) -> list[TrajectoryRow]:
    """Read the rows, sorted by their current values: a start or a reward may have become known meanwhile.

    A row that has moved behind the last of the page belongs to a later page.
    """
    standing = [
        stands
        for page in batched(found, _PAGE)
        for stands in index.rows_with_positions(
            [(one.position.trajectory_id, one.ordinal) for one in page], ordering.column
        )
    ]
    here = dict(stands for stands in standing if last is None or not ordering.is_before(last, stands[0]))
    return [here[position] for position in ordering.sort(here)]


def scan_trajectories(
    index: Index, filters: Filters, order: Order = "oldest", cursor: str | None = None
) -> Iterator[TrajectoryRow]:
    """Yield all trajectories that pass the filters, or those behind a cursor, a page at a time.

    Raises: BadInputError: a filter or the cursor is not valid.
    """
    while True:
        page = find_trajectories(index, filters, order, _PAGE, cursor)
        yield from page.items
        if (cursor := page.cursor) is None:
            return


def check_order(order: str, limit: int) -> Ordering:
    """How the order sorts.

    Raises: BadInputError: there is no such order, or the limit is below 1.
    """
    if (ordering := find_ordering(order)) is None:
        raise BadInputError(f"order {order!r}: expected one of {', '.join(get_args(Order))}; choose one of these")
    if limit < 1:
        raise BadInputError(f"limit {limit}: expected at least one trajectory; ask for 1 or more")
    return ordering


def _write_cursor(last: Position, order: str) -> str:
    return f"{order},{last.value!r},{last.started_at!r},{last.trajectory_id}"


def _read_cursor(cursor: str | None, order: str) -> Position | None:
    """A cursor is 'ORDER,VALUE,START,TRAJECTORY': the last trajectory that was shown, and where it stood."""
    if cursor is None:
        return None
    try:
        given, value, started_at, trajectory_id = cursor.split(",", 3)
        place = Position(float(value), float(started_at), trajectory_id)
        if given == order and not (math.isnan(place.value) or math.isnan(place.started_at)):
            return place
    except ValueError:
        pass
    raise BadInputError(
        f"cursor {cursor!r}: expected the cursor of an answer in the order {order!r};"
        " repeat the query that gave it, with nothing changed but the cursor"
    )


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """How a search found its answer."""

    lead: str
    """The condition that the fewest trajectories meet."""
    conditions: dict[str, int]
    """Condition → how many trajectories meet it alone."""
    num_trajectories: int
    """Trajectories in the whole index."""
    num_blocks: int
    """Blocks, of 2,048 trajectories each, in the whole index."""
    num_planned: int
    """Blocks that can hold answers: every requested value occurs in them, and their zones overlap each range."""
    num_read: int
    """Blocks whose bitmaps were read before the answer was complete."""
    num_tested: int
    """Trajectories in these whose numbers were compared."""
    num_found: int
    seconds: float
    """Seconds of the search alone."""


def explain_search(index: Index, filters: Filters, order: Order = "newest", limit: int = 32) -> Explanation:
    """Search, and report how the answer was found.

    Raises: BadInputError: what ``find_trajectories`` raises it for.
    """
    conditions = index.parse(filters)
    began = time.perf_counter()
    found = search(index, conditions, check_order(order, limit), min(limit, MAX_SEARCH))
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
        num_found=len(found.matches),
        seconds=seconds,
    )


def _single(conditions: Conditions) -> list[Conditions]:
    """Each condition alone."""
    return [
        *(
            Conditions(names=(name,), bounded=tuple(one for one in conditions.bounded if one.name == name))
            for name in conditions.names
        ),
        *(Conditions(names=("all",), without=(name,)) for name in conditions.without),
        *(Conditions(names=("all",), ranges=(one,)) for one in conditions.ranges),
    ]


def _shown(one: Conditions) -> str:
    if one.ranges:
        (wanted,) = one.ranges
        return f"{wanted.low:g} <= {wanted.column} <= {wanted.high:g}"
    return f"not {one.without[0]}" if one.without else one.names[0]


def _count_alone(index: Index, conditions: Conditions) -> int:
    return sum(found.members.bit_count() for found in find_matches(index, conditions))
