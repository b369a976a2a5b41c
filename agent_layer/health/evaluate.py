"""Judgement of a run by the catalogue: what is wrong with its last step, and what is wrong with it now."""

from collections.abc import Sequence
from math import isfinite
from typing import Literal

import msgspec

from agent_layer.health.catalogue import CATALOGUE, LIVE, Alarm, HealthEntry, LiveEntry
from agent_layer.health.facts import RunFacts
from agent_layer.health.measures import Reports
from agent_layer.health.progress import HealthFinding, StepProgress
from agent_layer.times import format_span, format_time

_SECONDS = "seconds"
"""Unit of durations."""


def find_unhealthy(
    reports: Reports, entries: Sequence[HealthEntry] = CATALOGUE, started_at: int = 0
) -> list[HealthFinding]:
    """Return what is wrong with the last of these reports, the worst first.

    Args:
        reports: of one run, oldest first.
        entries: with their limits.
        started_at: steps that were done when the trainer started; earlier ones are only compared with.
    """
    num_own = sum(report.step > started_at for report in reports)
    found = [one for entry in entries if num_own >= entry.steps and (one := _judge(reports, entry))]
    return sorted(found, key=lambda finding: finding.level != "stop")


def find_unhealthy_now(facts: RunFacts, entries: Sequence[LiveEntry] = LIVE) -> list[HealthFinding]:
    """Return what is wrong with a run at this moment."""
    return [one for entry in entries if (one := _judge_now(facts, entry)) is not None]


def _judge(reports: Reports, entry: HealthEntry) -> HealthFinding | None:
    if (level := _exceeded(entry, value := entry.measure(reports, entry.steps))) is None or value is None:
        return None
    first = _find_begin(reports, entry)
    ends = {one.step: one.ended_at for one in reports}
    found = _finding(entry, level, value, entry.subject(reports, entry.steps), ends.get(first))
    began = ends.get(first - 1)  # its rollouts started when the step before had ended
    since = {} if began is None or not entry.filters else {"since": format_time(began)}
    return msgspec.structs.replace(found, since_step=first, filters={**found.filters, **since})


def _judge_now(facts: RunFacts, entry: LiveEntry) -> HealthFinding | None:
    if (level := _exceeded(entry, value := entry.measure(facts))) is None or value is None:
        return None
    since = facts.now - value if entry.unit == _SECONDS else entry.since(facts)
    return _finding(entry, level, value, entry.subject(facts), since)


def _exceeded(entry: Alarm, value: float | None) -> Literal["stop", "warn"] | None:
    """Return the threshold that a value is beyond."""
    if value is None:
        return None
    thresholds: tuple[tuple[Literal["stop", "warn"], float | None], ...] = (("stop", entry.stop), ("warn", entry.warn))
    for level, limit in thresholds:
        if limit is not None and (value < limit if entry.is_low_bad else value > limit):
            return level
    return None


def _finding(
    entry: Alarm, level: Literal["stop", "warn"], value: float, subject: str | None, since: float | None
) -> HealthFinding:
    limit = entry.stop if level == "stop" else entry.warn
    assert limit is not None
    of_subject = {entry.subject_filter: subject} if entry.subject_filter and subject is not None else {}
    return HealthFinding(
        name=entry.name,
        title=entry.title,
        level=level,
        value=value if isfinite(value) else None,
        limit=limit,
        sentence=f"{entry.measures}: {_describe_finding(value, limit, entry.unit)}",
        advice=entry.advice,
        subject=subject,
        since=since,
        view=entry.view,
        filters={**entry.filters, **of_subject},
    )


def _describe_finding(value: float, limit: float, unit: str) -> str:
    """Return a number and its limit as people read them."""
    if unit == _SECONDS:
        return f"{format_span(value)}, limit {format_span(limit)}"
    return f"{value:.3g} ({unit}), limit {limit:g}"


def _find_begin(reports: Reports, entry: HealthEntry) -> int:
    """Return the step since which it is found: that of the report before if that has it, else that of the window."""
    before: StepProgress | None = reports[-2] if len(reports) > 1 else None
    known = [one.since_step for one in before.health if one.name == entry.name] if before else []
    return known[0] if known and known[0] is not None else reports[-entry.steps].step
