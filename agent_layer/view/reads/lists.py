"""Answers about many trajectories: pages, texts inside them, counts, facets, the histogram of rewards, summaries."""

import math
import re
import sys
from collections.abc import Mapping
from typing import Final, cast, get_args

from agent_layer.errors import BadInputError
from agent_layer.store import By, Order, bucket_ends, count_by_bucket, count_by_fields
from agent_layer.view.answers.details import SearchAnswer, SearchLine, SnippetPiece
from agent_layer.view.answers.lists import (
    Bin,
    CountAnswer,
    FacetAnswer,
    FacetLine,
    HistogramAnswer,
    QueryAnswer,
    SummaryAnswer,
    SummaryLine,
)
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.source import ReadContext

ABOVE_ZERO: Final = sys.float_info.min
"""Least reward of a success, as in ``agent-layer summary``."""
FAILED: Final = ("failed", "dead", "lost", "truncated")
"""Statuses of attempts that did not end as they should."""
_SEARCH_SECONDS: Final = 2.0
"""Seconds to bring the text index up to date; a page asks again until nothing waits."""
_DIGITS: Final = re.compile("[0-9]+")
_MAX_DIGITS: Final = 20


def query(source: ReadContext, params: RequestParams) -> QueryAnswer:
    """Return a page of the matching trajectories."""
    order, limit = params.text("order") or "newest", params.number("limit", 50, 1, 500)
    page = source.store.query(order=cast("Order", order), limit=limit, cursor=params.text("cursor"), **params.filters())
    return QueryAnswer(
        items=page.items, cursor=page.cursor, command=params.command(order, limit), python=params.python(order, limit)
    )


def search(source: ReadContext, params: RequestParams) -> SearchAnswer:
    """Return the newest texts in which all words occur, and how much of the store was searched."""
    text = params.text("text")
    if text is None:
        raise BadInputError("search: expected words in the parameter text, found none; add text=WORDS")
    limit = params.number("limit", 50, 1, 200)
    page = source.store.search_text(
        text, limit=limit, cursor=params.text("cursor"), seconds=_SEARCH_SECONDS, **params.filters()
    )
    return SearchAnswer(
        items=[SearchLine.from_record(one, snippet=_pieces(one.snippet, one.marks)) for one in page.items],
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


def count(source: ReadContext, params: RequestParams) -> CountAnswer:
    """Count the matching trajectories."""
    return CountAnswer(count=source.store.count(**params.filters()))


def facets(source: ReadContext, params: RequestParams) -> FacetAnswer:
    """Count the matching trajectories by the values of fields."""
    fields = (params.text("fields") or ",".join(get_args(By))).split(",")
    num, counts = count_by_fields(source.index, cast("list[By]", fields), params.filters())
    return FacetAnswer(count=num, facets={field: facet_lines(counted) for field, counted in counts.items()})


def facet_lines(counts: Mapping[str | int | None, int]) -> list[FacetLine]:
    """Return lines of one field, the most frequent value first."""
    lines = [FacetLine(value=value, count=num) for value, num in counts.items()]
    return sorted(lines, key=lambda line: (-line.count, natural_key(line.value)))


def natural_key(value: str | int | None) -> str:
    """Return a key that sorts by the size of numbers inside a text: v2 stands before v10."""
    return _DIGITS.sub(lambda found: found[0].zfill(_MAX_DIGITS), str(value))


def summary(source: ReadContext, params: RequestParams) -> SummaryAnswer:
    """Count the matching trajectories and average their rewards, by fields."""
    fields = [field for field in (params.text("by") or "").split(",") if field]
    lines = source.store.summarise(cast("list[By]", fields), success=ABOVE_ZERO, **params.filters())
    return SummaryAnswer(items=[SummaryLine.from_record(one) for one in lines])


def histogram(source: ReadContext, params: RequestParams) -> HistogramAnswer:
    """Count the matching trajectories by their reward."""
    filters, most = params.filters(), params.number("bins", 20, 1, 100)
    low, high = filters.get("reward") or (None, None)
    ends = -math.inf if low is None else low, math.inf if high is None else high
    num_all, counts = count_by_bucket(source.index, filters)
    begin, stop = min(counts, default=0), max(counts, default=-1) + 1
    width = max(1, math.ceil((stop - begin) / most))
    spans = [range(first, min(first + width, stop)) for first in range(begin, stop, width)]
    bins = [
        Bin(
            low=_finite(bucket_ends(span[0])[0]),
            high=_finite(math.nextafter(bucket_ends(span[-1])[1], math.inf)),
            count=sum(counts.get(bucket, 0) for bucket in span),
            filters={"reward": _range_text(first, last)},
        )
        for span in spans
        if (first := max(bucket_ends(span[0])[0], ends[0])) <= (last := min(bucket_ends(span[-1])[1], ends[1]))
    ]
    num_rewarded = sum(one.count for one in bins)
    return HistogramAnswer(bins=bins, num_rewarded=num_rewarded, num_without=num_all - num_rewarded)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _range_text(low: float, high: float) -> str:
    return f"{'' if low == -math.inf else low!r}..{'' if high >= sys.float_info.max else high!r}"
