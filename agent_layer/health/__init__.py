"""How a training run is doing: reports of its steps, and the catalogue of what can be wrong."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "alarms_file": "AlarmFile FiringAlarm FiringAlarms",
        "catalogue": "ALARMS CATALOGUE LIVE Alarm HealthEntry LiveEntry",
        "facts": "RunFacts",
        "judge": "find_unhealthy find_unhealthy_now",
        "limits": "HealthLimits set_limits set_live_limits",
        "progress": "HealthFinding RoundProgress StepProgress append_progress progress_path read_progress",
        "restarts": "Restart append_restart read_restarts restarts_path",
    },
)
