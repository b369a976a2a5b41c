"""Pages of an answer as users read them: rows, and tables of these."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from agent_layer.store.index.filters import Filters
from agent_layer.store.index.index import Index
from agent_layer.store.index.plan import Order
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.index.search import RowPage, find_trajectories, scan_trajectories

if TYPE_CHECKING:
    import pandas
    import pyarrow

_READ_REST = "read_rest"
"""Name of what a first page reads later rows with; no field, because it is nothing that can be stored or compared."""


class Page(RowPage, frozen=True, kw_only=True):
    """One page of an answer, and tables of its rows."""

    def to_reader(self) -> "pyarrow.RecordBatchReader":
        """Return the rows as a stream of Arrow batches with the schema ``arrow.trajectories.TRAJECTORY_SCHEMA``.

        Raises: BadInputError: the extra ``arrow`` is not installed.
        """
        from agent_layer.store.arrow.trajectories import stream_rows  # noqa: PLC0415  # comes with an extra

        return stream_rows(self._rows())

    def to_arrow(self) -> "pyarrow.Table":
        """Return the rows as a table; raises the same as ``to_reader``."""
        return self.to_reader().read_all()

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the same table as a data frame, indexed by trajectory id; raises the same as ``to_reader``."""
        return self.to_arrow().to_pandas().set_index("trajectory_id")  # pyright: ignore[reportUnknownMemberType]  # pandas is untyped

    def _rows(self) -> Iterator[TrajectoryRow]:
        return iter(self.items)


class FirstPage(Page, frozen=True, kw_only=True, dict=True):
    """First page of an answer without a limit of its rows.

    ``to_reader``, ``to_arrow`` and ``to_pandas`` have all rows of the answer; they read the later pages one by one.
    """

    def _rows(self) -> Iterator[TrajectoryRow]:
        yield from self.items
        if self.cursor is not None:
            read_rest = cast("Callable[[str], Iterator[TrajectoryRow]]", vars(self)[_READ_REST])
            yield from read_rest(self.cursor)


def read_page(index: Index, filters: Filters, order: Order, limit: int | None, cursor: str | None) -> Page:
    """Return a page of at most ``limit`` rows; None: the first page, that knows how to read the others.

    Raises: BadInputError: a filter, the order, the limit or the cursor is not valid.
    """
    if limit is not None:
        found = find_trajectories(index, filters, order, limit, cursor)
        return Page(items=found.items, cursor=found.cursor)
    found = find_trajectories(index, filters, order, cursor=cursor)
    first = FirstPage(items=found.items, cursor=found.cursor)
    vars(first)[_READ_REST] = partial(scan_trajectories, index, filters, order)
    return first
