"""Counts of suspicious calls per run, taken from segments: forks, empty answers, missing tokens."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeAlias

from agent_layer.schema import LogRecord, StepPart, is_empty_answer, prefix_break_cause

CallStats: TypeAlias = Counter[tuple[str, str]]
"""Counts by run and label; CALLS is the number of calls that ended at a gateway."""

CALLS: Final = "calls"


def count_call_stats(records: Iterable[LogRecord]) -> CallStats:
    """Count the calls of gateways, and their labels."""
    call_stats: CallStats = Counter()
    for record in records:
        if isinstance(record, StepPart) and record.source == "gateway" and record.phase == "end":
            call_stats.update((record.run, label) for label in _labels(record))
    return call_stats


def describe_call_stats(call_stats: CallStats) -> list[str]:
    """Return one line for each run, its most frequent trouble first."""
    lines: list[str] = []
    for run in sorted({run for run, _ in call_stats}):
        num_calls = call_stats[run, CALLS]
        troubles = sorted(
            (-count, label) for (one, label), count in call_stats.items() if one == run and label != CALLS
        )
        shown = [f"{-count} ({-count / num_calls:.1%}) {label}" for count, label in troubles]
        lines.append(f"run {run}: {num_calls} calls, {', '.join(shown) or 'nothing to be noticed'}")
    return lines


def _labels(part: StepPart) -> list[str]:
    breaks = [cause for finding in part.findings if (cause := prefix_break_cause(finding))]
    labels = {
        CALLS: True,
        "answered nothing": is_empty_answer(part),
        "without token ids": part.status == "ok" and part.capture_level != "tokens",
        "cut off": part.status == "aborted",
        "failed": part.status == "error",
    }
    return [label for label, is_so in labels.items() if is_so] + [f"broke their prefix: {cause}" for cause in breaks]
