"""Drift between two checks of one harness: what an agent, or we, do otherwise than before. Pure."""

from collections.abc import Iterator

import msgspec

from envs.harnesses import PartFigures, Qualification, RenderedFigures
from trainer_adapter.qualification.account import CUT

_COMPARED = ("num_calls", "num_steps", "sampled", "trained", "lost", "num_rows", "forks", "findings", "fault")
_VERSIONS = ("version", "agent_layer", "interpreter", "box")


def find_drift(before: Qualification, after: Qualification) -> Iterator[str]:
    """Yield what differs, in words; lengths of prompts, which hold dates and paths, count beyond a tenth."""
    for name in _VERSIONS:
        if (old := getattr(before, name)) != (new := getattr(after, name)):
            yield f"{name} was {old}, is {new}"
    if _differs(before.first_request, after.first_request):
        yield f"first request was {before.first_request} words, is {after.first_request}"
    known = {part.name: part for part in before.parts}
    for part in after.parts:
        if part.name not in known:
            yield f"part {part.name!r} is new"
            continue
        yield from _compare(known.pop(part.name), part)
    yield from (f"part {name!r} is gone" for name in known)
    templates = {one.template: one for one in before.rendered}
    for one in after.rendered:
        if (earlier := templates.get(one.template)) is not None:
            yield from _compare_lengths(one.template, earlier, one)


def _compare(before: PartFigures, after: PartFigures) -> Iterator[str]:
    old_part, new_part = _leave_out_cut(before), _leave_out_cut(after)
    for name in _COMPARED:
        old, new = getattr(old_part, name), getattr(new_part, name)
        if old != new:
            yield f"{after.name}: {name} was {old}, is {new}"
    if _differs(before.longest_row, after.longest_row):
        yield f"{after.name}: longest row was {before.longest_row}, is {after.longest_row}"


def _leave_out_cut(part: PartFigures) -> PartFigures:  # kept: names why
    """Return the figures without tokens of cut streams: how many were sampled by then is chance."""
    lost = {cause: number for cause, number in part.lost.items() if cause != CUT}
    return msgspec.structs.replace(part, sampled=part.sampled - part.lost.get(CUT, 0), lost=lost)


def _compare_lengths(template: str, before: RenderedFigures, after: RenderedFigures) -> Iterator[str]:
    for name in ("first_request", "longest_row", "num_rows"):
        old, new = getattr(before, name), getattr(after, name)
        if _differs(old, new):
            yield f"{template}: {name} was {old}, is {new}"


def _differs(old: int, new: int) -> bool:
    return abs(old - new) > max(old, new) / 10
