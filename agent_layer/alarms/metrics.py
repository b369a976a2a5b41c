"""What alarms measure, as text for Prometheus: one gauge for each alarm, with the run as its label."""

from collections.abc import Iterator, Sequence
from math import inf

from agent_layer.alarms.reader import RunAlarms
from agent_layer.health import ALARMS

RUNS_METRIC = "agent_layer_alarm_runs"
"""There while alarms are measured at all, so that a rule can tell silence from health."""


def metric_name(alarm: str) -> str:
    """Return the name of the gauge of an alarm."""
    return f"agent_layer_alarm_{alarm}"


def alarm_metrics(runs: Sequence[RunAlarms]) -> str:
    """Return all gauges; a number that is not known has no sample."""
    return "".join(f"{line}\n" for line in _lines([one for one in runs if one.is_active]))


def _lines(runs: Sequence[RunAlarms]) -> Iterator[str]:
    yield f"# HELP {RUNS_METRIC} Runs with work, or with a step in the last day."
    yield f"# TYPE {RUNS_METRIC} gauge"
    yield f"{RUNS_METRIC} {len(runs)}"
    values = {one.run: one.values() for one in runs}
    for alarm in ALARMS:
        name = metric_name(alarm.name)
        measured = f"{alarm.measures} ({alarm.unit})."
        yield f"# HELP {name} {measured[0].upper()}{measured[1:]}"
        yield f"# TYPE {name} gauge"
        for run, known in values.items():
            if (value := known.get(alarm.name)) is not None:
                yield f'{name}{{run="{run}"}} {"+Inf" if value == inf else f"{value:g}"}'
