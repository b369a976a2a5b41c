"""The catalogue of alarms as rules of Prometheus, over the gauges that ``agent-layer view`` serves at /metrics."""

import json
from collections.abc import Iterator, Sequence

from agent_layer.alarms.metrics import RUNS_METRIC, metric_name
from agent_layer.health import ALARMS, Alarm, LiveEntry

_FOR = "2m"
"""How long an alarm of this moment must hold; those of steps have a window of steps."""


def prometheus_rules(alarms: Sequence[Alarm] = ALARMS) -> str:
    """Return a file of rules over some alarms with their limits, as YAML."""
    return "".join(f"{line}\n" for line in _lines(alarms))


def _lines(alarms: Sequence[Alarm]) -> Iterator[str]:
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
    for alarm in alarms:
        for severity, limit in (("warning", alarm.warn), ("critical", alarm.stop)):
            if limit is not None:
                yield from _rule(
                    _rule_name(alarm),
                    f"{metric_name(alarm.name)} {'<' if alarm.is_low_bad else '>'} {limit:g}",
                    severity,
                    f"run {{{{ $labels.run }}}}: {alarm.name}: {{{{ $value }}}} ({alarm.unit}), limit {limit:g}",
                    f"{alarm.measures[0].upper()}{alarm.measures[1:]}. {alarm.advice}",
                    _FOR if isinstance(alarm, LiveEntry) else None,
                )


def _rule_name(alarm: Alarm) -> str:
    return "AgentLayer" + "".join(word.capitalize() for word in alarm.name.split("_"))


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
