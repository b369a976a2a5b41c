"""This file holds how calls that only others' spans tell of are found to be calls that are known already.

A span of a model call is the same call as the one whose own span it is, as the one that was made directly inside it,
and as the only other such span directly inside it: frameworks and clients each make a span of what is one call.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from agent_layer.schema.step import StepPart

__all__ = ["join_spans"]


def join_spans(parts: Sequence[StepPart]) -> Sequence[StepPart]:
    """Give all parts, those of spans under the call id of the call that they tell of.

    The result depends on the set of parts only.
    """
    told = [part for part in parts if part.source == "otel" and part.span_id]
    if not told:
        return parts
    calls = _Calls(parts)
    by_span = {part.span_id: part.call_id for part in sorted(told, key=_order)}
    num_inside = Counter(parent for parent, _ in {(part.parent_span_id, part.span_id) for part in told})
    for part in sorted(parts, key=_order):
        if part.span_id in by_span:
            calls.unite(by_span[part.span_id], part.call_id)
        if part.parent_span_id in by_span and (part.source != "otel" or num_inside[part.parent_span_id] == 1):
            calls.unite(by_span[part.parent_span_id], part.call_id)
    return [msgspec.structs.replace(part, call_id=calls.name_of(part.call_id)) for part in parts]


def _order(part: StepPart) -> tuple[float, str, str]:
    return part.at, part.call_id, part.phase


class _Calls:
    """Call ids that turn out to name one call; the best known of them is its name."""

    def __init__(self, parts: Iterable[StepPart]) -> None:
        self._leaders = {part.call_id: part.call_id for part in parts}
        self._ranks: dict[str, tuple[bool, float, str]] = {}
        for part in parts:
            rank = (part.source == "otel", part.at, part.call_id)  # False, known from elsewhere, comes first
            self._ranks[part.call_id] = min(rank, self._ranks.get(part.call_id, rank))

    def unite(self, one: str, other: str) -> None:
        """Note that two ids name the same call; two that are known from elsewhere than spans never do."""
        best, rest = sorted((self.name_of(one), self.name_of(other)), key=self._ranks.__getitem__)
        if self._is_only_told(rest):
            self._leaders[rest] = best

    def name_of(self, call_id: str) -> str:
        """Give the name of the call."""
        while (leader := self._leaders[call_id]) != call_id:
            call_id = leader
        return call_id

    def _is_only_told(self, call_id: str) -> bool:
        return self._ranks[call_id][0]
