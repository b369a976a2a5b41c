"""Alarms of runs: what fires now, by the catalogue of ``agent_layer.health``, for the page, Prometheus and people."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "metrics": "alarm_metrics",
        "notifier": "open_notifier open_senders",
        "reader": "AlarmReader RunAlarms",
        "rules": "prometheus_rules",
        "watch": "watch_runs",
    },
)
