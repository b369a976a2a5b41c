"""This file holds the search for trajectories: how an answer is found page by page.

The sorted set with the fewest members leads, and every condition is tested on the rows. A set that is sorted by
something else than the order asked for must be read and sorted whole before it can lead. That pays while it is small:
c such members cost c, a walk over n members in order about limit * n / c, so it leads when c * c < limit * n.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.store.filters import Filters, Lead, conditions_of, leads_of
from agent_layer.store.index import Direction, Index, Position, is_after
from agent_layer.store.rows import TrajectoryRow

if TYPE_CHECKING:  # comes with an extra
    import pandas
    import pyarrow

__all__ = ["Order", "Page", "find_trajectories"]

Order: TypeAlias = Literal["newest", "oldest", "reward", "policy"]
"""``reward`` and ``policy`` (newest version) put the largest first and show only trajectories that have one."""

_FIELDS = {"newest": "started_at", "oldest": "started_at", "reward": "reward", "policy": "policy_max"}
"""Order → the field it sorts by."""

_PAGE = 1_024


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of an answer."""

    items: list[TrajectoryRow]
    cursor: str | None = None
    """Hand it back for the next page; None when this is the last."""

    def to_arrow(self) -> "pyarrow.Table":
        """Give the rows as a table of ``tables.trajectories.TRAJECTORY_SCHEMA``.

        Raises: BadInputError: the extra ``arrow`` is not installed.
        """
        from agent_layer.store.tables.trajectories import tabulate_rows  # noqa: PLC0415  # comes with an extra

        return tabulate_rows(self.items)

    def to_pandas(self) -> "pandas.DataFrame":
        """Give the same table as a data frame, indexed by trajectory id; raises what ``to_arrow`` does."""
        return self.to_arrow().to_pandas().set_index("trajectory_id")  # pyright: ignore[reportUnknownMemberType]  # pandas is untyped


def find_trajectories(
    index: Index, filters: Filters, order: Order = "newest", limit: int = 32, cursor: str | None = None
) -> Page:
    """Give the first trajectories, in the order asked for, that pass all filters.

    Raises: BadInputError: a filter, the order, the limit or the cursor is not one that can be asked for.
    """
    if order not in _FIELDS:
        raise BadInputError(f"order {order!r}: expected one of {', '.join(get_args(Order))}; choose one of these")
    if limit < 1:
        raise BadInputError(f"limit {limit}: expected at least one trajectory; ask for 1 or more")
    matches: list[Position] = []
    for page in _matches(index, filters, order, limit, _read_cursor(cursor, order)):
        matches += page
        if len(matches) > limit:
            break
    return Page(
        items=index.rows(one.trajectory_id for one in matches[:limit]),
        cursor=_write_cursor(matches[limit - 1], order) if len(matches) > limit else None,
    )


def _matches(
    index: Index, filters: Filters, order: Order, limit: int, after: Position | None
) -> Iterator[list[Position]]:
    """Pages of trajectories that pass all filters, in the order asked for."""
    direction: Direction = "ascending" if order == "oldest" else "descending"
    field, conditions = _FIELDS[order], conditions_of(filters)
    lead = _choose_lead(index, leads_of(filters, field, index.keys), field, limit)
    if lead.sorted_by == field:
        yield from index.walk(lead.span, direction, after, conditions)
        return
    members = index.members(lead.span, index.keys.by("all" if field == "started_at" else field))
    members = sorted((one for one in members if is_after(one, after, direction)), reverse=direction == "descending")
    for start in range(0, len(members), _PAGE):
        page = members[start : start + _PAGE]
        yield [page[at] for at in index.pick([one.trajectory_id for one in page], conditions)]


def _choose_lead(index: Index, leads: list[Lead], order_field: str, limit: int) -> Lead:
    sizes = dict(zip(leads, index.counts(lead.span for lead in leads), strict=True))
    in_order = min((lead for lead in leads if lead.sorted_by == order_field), key=sizes.__getitem__)
    smallest = min(leads, key=sizes.__getitem__)
    return smallest if sizes[smallest] ** 2 < limit * sizes[in_order] else in_order


def _write_cursor(last: Position, order: str) -> str:
    return f"{order},{last.score!r},{last.trajectory_id}"


def _read_cursor(cursor: str | None, order: str) -> Position | None:
    """A cursor is 'ORDER,SCORE,TRAJECTORY': the last trajectory that was shown, and where it stood."""
    if cursor is None:
        return None
    try:
        given, score, trajectory_id = cursor.split(",")
        if given == order:
            return Position(float(score), trajectory_id)
    except ValueError:
        pass
    raise BadInputError(
        f"cursor {cursor!r}: expected the cursor of an answer in the order {order!r};"
        " repeat the query that gave it, with nothing changed but the cursor"
    )
