"""How a training run is doing: reports of its steps, checks of what can be wrong, and alarms when one finds it."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "checks": "STEP_CHECKS Check StepCheck",
        "evaluate": "find_unhealthy",
        "findings": "HealthFinding",
        "limits": "HealthLimits set_limits set_live_limits",
        "notify": "open_notifier open_senders watch_runs",
        "progress": "ProgressReader RoundProgress StepProgress append_progress progress_path read_progress",
        "prometheus": "alarm_metrics prometheus_rules",
        "restarts": "Restart append_restart read_restarts restarts_path",
        "run_health": "HealthReader RunHealth",
    },
)
