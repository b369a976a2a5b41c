"""How a training run is doing: reports of its steps, checks of what can be wrong, and alarms when one finds it."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.health.alarms import Alarm as Alarm
    from agent_layer.health.alarms import AlarmFile as AlarmFile
    from agent_layer.health.alarms import RunAlarms as RunAlarms
    from agent_layer.health.checks import CHECKS as CHECKS
    from agent_layer.health.checks import LIVE_CHECKS as LIVE_CHECKS
    from agent_layer.health.checks import STEP_CHECKS as STEP_CHECKS
    from agent_layer.health.checks import Check as Check
    from agent_layer.health.checks import LiveCheck as LiveCheck
    from agent_layer.health.checks import StepCheck as StepCheck
    from agent_layer.health.findings import HealthFinding as HealthFinding
    from agent_layer.health.judge import find_unhealthy as find_unhealthy
    from agent_layer.health.judge import find_unhealthy_now as find_unhealthy_now
    from agent_layer.health.limits import HealthLimits as HealthLimits
    from agent_layer.health.limits import set_limits as set_limits
    from agent_layer.health.limits import set_live_limits as set_live_limits
    from agent_layer.health.measures import RunFacts as RunFacts
    from agent_layer.health.notify import AlarmNotifier as AlarmNotifier
    from agent_layer.health.notify import check_addresses as check_addresses
    from agent_layer.health.notify import open_notifier as open_notifier
    from agent_layer.health.notify import open_senders as open_senders
    from agent_layer.health.notify import watch_runs as watch_runs
    from agent_layer.health.progress import ProgressReader as ProgressReader
    from agent_layer.health.progress import RoundProgress as RoundProgress
    from agent_layer.health.progress import StepProgress as StepProgress
    from agent_layer.health.progress import append_progress as append_progress
    from agent_layer.health.progress import progress_path as progress_path
    from agent_layer.health.progress import read_progress as read_progress
    from agent_layer.health.prometheus import alarm_metrics as alarm_metrics
    from agent_layer.health.prometheus import metric_name as metric_name
    from agent_layer.health.prometheus import prometheus_rules as prometheus_rules
    from agent_layer.health.restarts import Restart as Restart
    from agent_layer.health.restarts import append_restart as append_restart
    from agent_layer.health.restarts import read_restarts as read_restarts
    from agent_layer.health.restarts import restarts_path as restarts_path
    from agent_layer.health.run_health import HealthReader as HealthReader
    from agent_layer.health.run_health import RunHealth as RunHealth
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.health.alarms": (
                "Alarm",
                "AlarmFile",
                "RunAlarms",
            ),
            "agent_layer.health.checks": (
                "CHECKS",
                "Check",
                "LIVE_CHECKS",
                "LiveCheck",
                "STEP_CHECKS",
                "StepCheck",
            ),
            "agent_layer.health.findings": ("HealthFinding",),
            "agent_layer.health.judge": (
                "find_unhealthy",
                "find_unhealthy_now",
            ),
            "agent_layer.health.limits": (
                "HealthLimits",
                "set_limits",
                "set_live_limits",
            ),
            "agent_layer.health.measures": ("RunFacts",),
            "agent_layer.health.notify": (
                "AlarmNotifier",
                "check_addresses",
                "open_notifier",
                "open_senders",
                "watch_runs",
            ),
            "agent_layer.health.progress": (
                "RoundProgress",
                "StepProgress",
                "ProgressReader",
                "append_progress",
                "progress_path",
                "read_progress",
            ),
            "agent_layer.health.prometheus": (
                "alarm_metrics",
                "metric_name",
                "prometheus_rules",
            ),
            "agent_layer.health.restarts": (
                "Restart",
                "append_restart",
                "read_restarts",
                "restarts_path",
            ),
            "agent_layer.health.run_health": (
                "HealthReader",
                "RunHealth",
            ),
        },
    )
