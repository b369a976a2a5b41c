"""How a training run is doing: reports of its steps, and the catalogue of what can be wrong."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.health.alarms_file import AlarmFile as AlarmFile
    from agent_layer.health.alarms_file import FiringAlarm as FiringAlarm
    from agent_layer.health.alarms_file import FiringAlarms as FiringAlarms
    from agent_layer.health.catalogue import ALARMS as ALARMS
    from agent_layer.health.catalogue import CATALOGUE as CATALOGUE
    from agent_layer.health.catalogue import LIVE as LIVE
    from agent_layer.health.catalogue import Alarm as Alarm
    from agent_layer.health.catalogue import HealthEntry as HealthEntry
    from agent_layer.health.catalogue import LiveEntry as LiveEntry
    from agent_layer.health.evaluate import find_unhealthy as find_unhealthy
    from agent_layer.health.evaluate import find_unhealthy_now as find_unhealthy_now
    from agent_layer.health.facts import RunFacts as RunFacts
    from agent_layer.health.limits import HealthLimits as HealthLimits
    from agent_layer.health.limits import set_limits as set_limits
    from agent_layer.health.limits import set_live_limits as set_live_limits
    from agent_layer.health.progress import FindingView as FindingView
    from agent_layer.health.progress import (
        HealthFinding as HealthFinding,
    )
    from agent_layer.health.progress import (
        RoundProgress as RoundProgress,
    )
    from agent_layer.health.progress import (
        StepProgress as StepProgress,
    )
    from agent_layer.health.progress import (
        append_progress as append_progress,
    )
    from agent_layer.health.progress import (
        progress_path as progress_path,
    )
    from agent_layer.health.progress import (
        read_progress as read_progress,
    )
    from agent_layer.health.restarts import (
        Restart as Restart,
    )
    from agent_layer.health.restarts import (
        append_restart as append_restart,
    )
    from agent_layer.health.restarts import (
        read_restarts as read_restarts,
    )
    from agent_layer.health.restarts import (
        restarts_path as restarts_path,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.health.alarms_file": ("AlarmFile", "FiringAlarm", "FiringAlarms"),
            "agent_layer.health.catalogue": (
                "ALARMS",
                "Alarm",
                "CATALOGUE",
                "HealthEntry",
                "LIVE",
                "LiveEntry",
            ),
            "agent_layer.health.facts": ("RunFacts",),
            "agent_layer.health.evaluate": ("find_unhealthy", "find_unhealthy_now"),
            "agent_layer.health.limits": ("HealthLimits", "set_limits", "set_live_limits"),
            "agent_layer.health.progress": (
                "FindingView",
                "HealthFinding",
                "RoundProgress",
                "StepProgress",
                "append_progress",
                "progress_path",
                "read_progress",
            ),
            "agent_layer.health.restarts": (
                "Restart",
                "append_restart",
                "read_restarts",
                "restarts_path",
            ),
        },
    )
