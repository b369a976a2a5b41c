"""Alarms for Prometheus: one gauge for each check, with the run as its label, and rules over these gauges.

``agent-layer view`` serves the gauges at /metrics.
"""

import json
from collections.abc import Iterator, Sequence
from math import inf

from agent_layer.health.checks import CHECKS, Check, LiveCheck
from agent_layer.health.run_health import RunHealth

RUNS_METRIC = "agent_layer_alarm_runs"
"""There while alarms are measured at all, so that a rule can tell silence from health."""
_FOR = "2m"
"""How long an alarm of this moment must hold; those of steps have a window of steps."""


def metric_name(check: str) -> str:
    """Return the name of the gauge of a check."""
    return f"agent_layer_alarm_{check}"


def alarm_metrics(runs: Sequence[RunHealth]) -> str:
    """Return all gauges; a number that is not known has no sample."""
    return "".join(f"{line}\n" for line in _gauge_lines([one for one in runs if one.is_active]))


def _gauge_lines(runs: Sequence[RunHealth]) -> Iterator[str]:
    yield f"# HELP {RUNS_METRIC} Runs with work, or with a step in the last day."
    yield f"# TYPE {RUNS_METRIC} gauge"
    yield f"{RUNS_METRIC} {len(runs)}"
    values = {one.run: one.values() for one in runs}
    for check in CHECKS:
        name = metric_name(check.name)
        measured = f"{check.measures} ({check.unit})."
        yield f"# HELP {name} {measured[0].upper()}{measured[1:]}"
        yield f"# TYPE {name} gauge"
        for run, known in values.items():
            if (value := known.get(check.name)) is not None:
                yield f'{name}{{run="{run}"}} {"+Inf" if value == inf else f"{value:g}"}'


def prometheus_rules(checks: Sequence[Check] = CHECKS) -> str:
    """Return a file of rules over some checks with their limits, as YAML."""
    return "".join(f"{line}\n" for line in _rule_lines(checks))


def _rule_lines(checks: Sequence[Check]) -> Iterator[str]:
    yield "# Made by 'agent-layer alerts prometheus'; limits of the catalogue and AGENT_LAYER_ALARM_LIMITS."
    yield "groups:"
    yield "  - name: agent-layer"
    yield "    rules:"
    yield from _rule(
        "AgentLayerAlarmsMissing",
        f"absent({RUNS_METRIC})",
        "warning",
        "no alarm of agent-layer is measured",
        "Prometheus gets no /metrics of 'agent-layer view': is it running, and is it a target?",
        "5m",
    )
    for check in checks:
        for severity, limit in (("warning", check.warn), ("critical", check.stop)):
            if limit is not None:
                yield from _rule(
                    f"AgentLayer{''.join(word.capitalize() for word in check.name.split('_'))}",
                    f"{metric_name(check.name)} {'<' if check.is_low_bad else '>'} {limit:g}",
                    severity,
                    f"run {{{{ $labels.run }}}}: {check.name}: {{{{ $value }}}} ({check.unit}), limit {limit:g}",
                    f"{check.measures[0].upper()}{check.measures[1:]}. {check.advice}",
                    _FOR if isinstance(check, LiveCheck) else None,
                )


def _rule(  # the fields of a rule
    name: str, expression: str, severity: str, summary: str, description: str, lasting: str | None
) -> Iterator[str]:
    """Yield the lines of one rule; texts are quoted as JSON, which YAML reads."""
    yield f"      - alert: {name}"
    yield f"        expr: {expression}"
    if lasting is not None:
        yield f"        for: {lasting}"
    yield "        labels:"
    yield f"          severity: {severity}"
    yield "        annotations:"
    yield f"          summary: {json.dumps(summary, ensure_ascii=False)}"
    yield f"          description: {json.dumps(description, ensure_ascii=False)}"
