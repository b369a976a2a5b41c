"""Alarms of runs: what fires now, by the catalogue of ``agent_layer.health``, for the page, Prometheus and people."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.alarms.metrics import alarm_metrics as alarm_metrics
    from agent_layer.alarms.metrics import metric_name as metric_name
    from agent_layer.alarms.notifier import AlarmNotifier as AlarmNotifier
    from agent_layer.alarms.notifier import check_addresses as check_addresses
    from agent_layer.alarms.notifier import open_notifier as open_notifier
    from agent_layer.alarms.notifier import open_senders as open_senders
    from agent_layer.alarms.reader import AlarmReader as AlarmReader
    from agent_layer.alarms.reader import RunAlarms as RunAlarms
    from agent_layer.alarms.rules import prometheus_rules as prometheus_rules
    from agent_layer.alarms.watch import watch_runs as watch_runs
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.alarms.metrics": ("alarm_metrics", "metric_name"),
            "agent_layer.alarms.notifier": ("AlarmNotifier", "check_addresses", "open_notifier", "open_senders"),
            "agent_layer.alarms.reader": ("AlarmReader", "RunAlarms"),
            "agent_layer.alarms.rules": ("prometheus_rules",),
            "agent_layer.alarms.watch": ("watch_runs",),
        },
    )
