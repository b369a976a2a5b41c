# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .checks import Check as Check, STEP_CHECKS as STEP_CHECKS, StepCheck as StepCheck
from .evaluate import find_unhealthy as find_unhealthy
from .findings import HealthFinding as HealthFinding
from .limits import HealthLimits as HealthLimits, set_limits as set_limits, set_live_limits as set_live_limits
from .notify import open_notifier as open_notifier, open_senders as open_senders, watch_runs as watch_runs
from .progress import ProgressReader as ProgressReader, RoundProgress as RoundProgress, StepProgress as StepProgress
from .progress import append_progress as append_progress, progress_path as progress_path, read_progress as read_progress
from .prometheus import alarm_metrics as alarm_metrics, prometheus_rules as prometheus_rules
from .restarts import Restart as Restart, append_restart as append_restart, read_restarts as read_restarts
from .restarts import restarts_path as restarts_path
from .run_health import HealthReader as HealthReader, RunHealth as RunHealth
