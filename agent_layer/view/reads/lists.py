"""Answers about many trajectories: pages, texts inside them, counts, facets, the histogram of rewards, summaries."""

import math
import re
import sys
from collections.abc import Iterator
from typing import Final, cast, get_args

from agent_layer.errors import BadInputError
from agent_layer.store import Filters
from agent_layer.store.index import By, Order
from agent_layer.view.answers import (
    Bin,
    CountAnswer,
    FacetAnswer,
    FacetLine,
    HistogramAnswer,
    QueryAnswer,
    SearchAnswer,
    SearchLine,
    SnippetPiece,
    SummaryAnswer,
    SummaryLine,
)
from agent_layer.view.reads.asked import Asked
from agent_layer.view.reads.source import Source

ABOVE_ZERO: Final = sys.float_info.min
"""Least reward of a success, as in ``agent-layer summary``."""
FAILED: Final = ("failed", "dead", "lost", "truncated")
"""Statuses of attempts that did not end as they should."""
_SEARCH_SECONDS: Final = 2.0
"""For bringing the text index up to date; a page asks again until nothing waits."""
_DIGITS: Final = re.compile("[0-9]+")
_MOST_DIGITS: Final = 20
_BUCKETS_PER_UNIT: Final = 20
"""The index keeps rewards in buckets that are 0.05 wide."""
_LAST_BUCKET: Final = 200
"""Buckets at both ends hold all that is beyond."""


def query(source: Source, asked: Asked) -> QueryAnswer:
    """Return a page of the matching trajectories."""
    order, limit = asked.text("order") or "newest", asked.number("limit", 50, 1, 500)
    page = source.store.query(order=cast("Order", order), limit=limit, cursor=asked.text("cursor"), **asked.filters())
    return QueryAnswer(
        items=page.items, cursor=page.cursor, command=asked.command(order, limit), python=asked.python(order, limit)
    )


def search(source: Source, asked: Asked) -> SearchAnswer:
    """Return the newest texts in which all words occur, and how much of the store was searched."""
    text = asked.text("text")
    if text is None:
        raise BadInputError("search: expected words in the parameter text, found none; add text=WORDS")
    limit = asked.number("limit", 50, 1, 200)
    page = source.store.search_text(
        text, limit=limit, cursor=asked.text("cursor"), seconds=_SEARCH_SECONDS, **asked.filters()
    )
    return SearchAnswer(
        items=[
            SearchLine(row=one.row, step=one.step, where=one.where, snippet=_pieces(one.snippet, one.marks))
            for one in page.items
        ],
        cursor=page.cursor,
        num_segments=page.coverage.num_segments,
        num_waiting=page.coverage.num_waiting,
        left_out=page.coverage.describe(),
    )


def _pieces(snippet: str, marks: list[tuple[int, int]]) -> list[SnippetPiece]:
    pieces: list[SnippetPiece] = []
    at = 0
    for begin, end in [*marks, (len(snippet), len(snippet))]:
        pieces += [SnippetPiece(text=snippet[at:begin], is_match=False)] if at < begin else []
        pieces += [SnippetPiece(text=snippet[begin:end], is_match=True)] if begin < end else []
        at = end
    return pieces


def count(source: Source, asked: Asked) -> CountAnswer:
    """Count the matching trajectories."""
    return CountAnswer(count=source.store.count(**asked.filters()))


def facets(source: Source, asked: Asked) -> FacetAnswer:
    """Count the matching trajectories by the values of fields."""
    filters, fields = asked.filters(), (asked.text("fields") or ",".join(get_args(By))).split(",")
    return FacetAnswer(
        count=source.store.count(**filters), facets={field: facet(source, filters, field) for field in fields}
    )


def facet(source: Source, filters: Filters, field: str) -> list[FacetLine]:
    """Count by the values of one field, the most frequent first."""
    lines = [
        FacetLine(
            value=one.by[field],
            count=one.count,
            num_rewarded=one.num_rewarded,
            mean_reward=one.mean_reward,
            success_rate=one.success_rate,
        )
        for one in source.store.summarise([cast("By", field)], success=ABOVE_ZERO, **filters)
        if one.count
    ]
    return sorted(lines, key=lambda line: (-line.count, natural_key(line.value)))


def natural_key(value: str | int | None) -> str:
    """Return a key that sorts by the size of numbers inside a text: v2 stands before v10."""
    return _DIGITS.sub(lambda found: found[0].zfill(_MOST_DIGITS), str(value))


def summary(source: Source, asked: Asked) -> SummaryAnswer:
    """Count the matching trajectories and average their rewards, by fields."""
    fields = [field for field in (asked.text("by") or "").split(",") if field]
    lines = source.store.summarise(cast("list[By]", fields), success=ABOVE_ZERO, **asked.filters())
    return SummaryAnswer(
        items=[
            SummaryLine(
                by=one.by,
                count=one.count,
                num_rewarded=one.num_rewarded,
                mean_reward=one.mean_reward,
                success_rate=one.success_rate,
            )
            for one in lines
        ]
    )


def histogram(source: Source, asked: Asked) -> HistogramAnswer:
    """Count the matching trajectories by their reward."""
    filters = asked.filters()
    low, high = filters.get("reward") or (None, None)
    ends = -math.inf if low is None else low, math.inf if high is None else high
    bins = [
        Bin(low=_finite(start), high=_finite(stop), count=num, filters={"reward": _range_text(first, last)})
        for start, stop in _edges(source, asked.number("bins", 20, 1, 100))
        if (first := max(start, ends[0])) <= (last := min(math.nextafter(stop, -math.inf), ends[1]))
        and (num := source.store.count(**{**filters, "reward": (_finite(first), _finite(last))})) >= 0
    ]
    num_rewarded, num_all = sum(one.count for one in bins), source.store.count(**filters)
    return HistogramAnswer(bins=bins, num_rewarded=num_rewarded, num_without=num_all - num_rewarded)


def _edges(source: Source, num_bins: int) -> Iterator[tuple[float, float]]:
    """Yield bins side by side, each as wide as some buckets, from the lowest to the highest reward of the store."""
    if not (buckets := source.index.read_map().buckets):
        return
    lowest, num = buckets[0], buckets[-1] - buckets[0] + 1
    width = math.ceil(num / num_bins)
    for start in range(lowest, lowest + num, width):
        stop = min(start + width, lowest + num)
        first = -math.inf if start <= -_LAST_BUCKET else start / _BUCKETS_PER_UNIT
        last = math.inf if stop > _LAST_BUCKET else stop / _BUCKETS_PER_UNIT
        yield first, last


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _range_text(low: float, high: float) -> str:
    return f"{'' if low == -math.inf else low!r}..{'' if high >= sys.float_info.max else high!r}"
