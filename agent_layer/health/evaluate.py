"""Judgement of a run by the catalogue: what is wrong with its last step, and what is wrong with it now."""

from collections.abc import Sequence
from math import isfinite
from typing import Literal

import msgspec

from agent_layer.health.checks import LIVE_CHECKS, STEP_CHECKS, Check, LiveCheck, StepCheck
from agent_layer.health.findings import HealthFinding
from agent_layer.health.measures import Reports, RunSnapshot
from agent_layer.health.progress import StepProgress
from agent_layer.times import format_span, format_time

_SECONDS = "seconds"
"""Unit of durations."""


def find_unhealthy(
    reports: Reports, checks: Sequence[StepCheck] = STEP_CHECKS, started_at: int = 0
) -> list[HealthFinding]:
    """Return what is wrong with the last of these reports, the worst first.

    Args:
        reports: of one run, oldest first.
        checks: with their limits.
        started_at: steps that were done when the trainer started; earlier ones are only compared with.
    """
    num_own = sum(report.step > started_at for report in reports)
    found = [one for check in checks if num_own >= check.steps and (one := _judge(reports, check))]
    return sorted(found, key=lambda finding: finding.level != "stop")


def find_unhealthy_now(facts: RunSnapshot, checks: Sequence[LiveCheck] = LIVE_CHECKS) -> list[HealthFinding]:
    """Return what is wrong with a run at this moment."""
    return [one for check in checks if (one := _judge_now(facts, check)) is not None]


def _judge(reports: Reports, check: StepCheck) -> HealthFinding | None:
    if (level := _exceeded(check, value := check.measure(reports, check.steps))) is None or value is None:
        return None
    before: StepProgress | None = reports[-2] if len(reports) > 1 else None
    known = [one.since_step for one in before.health if one.name == check.name] if before else []
    first = known[0] if known and known[0] is not None else reports[-check.steps].step
    ends = {one.step: one.ended_at for one in reports}
    found = _finding(check, level, value, check.subject(reports, check.steps), ends.get(first))
    began = ends.get(first - 1)  # its rollouts started when the step before had ended
    since = {} if began is None or not check.filters else {"since": format_time(began)}
    return msgspec.structs.replace(found, since_step=first, filters={**found.filters, **since})


def _judge_now(facts: RunSnapshot, check: LiveCheck) -> HealthFinding | None:
    if (level := _exceeded(check, value := check.measure(facts))) is None or value is None:
        return None
    since = facts.now - value if check.unit == _SECONDS else check.since(facts)
    return _finding(check, level, value, check.subject(facts), since)


def _exceeded(check: Check, value: float | None) -> Literal["stop", "warn"] | None:
    """Return the threshold that a value is beyond."""
    if value is None:
        return None
    thresholds: tuple[tuple[Literal["stop", "warn"], float | None], ...] = (("stop", check.stop), ("warn", check.warn))
    for level, limit in thresholds:
        if limit is not None and (value < limit if check.is_low_bad else value > limit):
            return level
    return None


def _finding(
    check: Check, level: Literal["stop", "warn"], value: float, subject: str | None, since: float | None
) -> HealthFinding:
    limit = check.stop if level == "stop" else check.warn
    assert limit is not None
    of_subject = {check.subject_filter: subject} if check.subject_filter and subject is not None else {}
    return HealthFinding(
        name=check.name,
        title=check.title,
        level=level,
        value=value if isfinite(value) else None,
        limit=limit,
        sentence=f"{check.measures}: {_describe_value(value, limit, check.unit)}",
        advice=check.advice,
        subject=subject,
        since=since,
        view=check.view,
        filters={**check.filters, **of_subject},
    )


def _describe_value(value: float, limit: float, unit: str) -> str:
    """Return a number and its limit as people read them."""
    if unit == _SECONDS:
        return f"{format_span(value)}, limit {format_span(limit)}"
    return f"{value:.3g} ({unit}), limit {limit:g}"
