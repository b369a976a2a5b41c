"""Drift between two checks of one harness: what an agent, or we, do otherwise than before. Pure."""

from collections.abc import Iterator

from envs.harnesses import PartFigures, Qualification

_COMPARED = ("num_calls", "sampled", "trained", "lost", "num_rows", "forks", "findings", "fault")
_VERSIONS = ("version", "agent_layer", "interpreter")


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


def _compare(before: PartFigures, after: PartFigures) -> Iterator[str]:
    cut = {"cut_stream"}
    for name in _COMPARED:
        old, new = getattr(before, name), getattr(after, name)
        if name in ("sampled", "lost") and cut & {*before.lost, *after.lost}:
            continue  # how much of a stream was sampled when it was cut is chance
        if old != new:
            yield f"{after.name}: {name} was {old}, is {new}"
    if _differs(before.longest_row, after.longest_row):
        yield f"{after.name}: longest row was {before.longest_row}, is {after.longest_row}"


def _differs(old: int, new: int) -> bool:
    return abs(old - new) > max(old, new) / 10
