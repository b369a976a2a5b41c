# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .alarms_file import AlarmFile as AlarmFile, FiringAlarm as FiringAlarm, FiringAlarms as FiringAlarms
from .catalogue import ALARMS as ALARMS, Alarm as Alarm, CATALOGUE as CATALOGUE, HealthEntry as HealthEntry
from .catalogue import LIVE as LIVE, LiveEntry as LiveEntry
from .facts import RunFacts as RunFacts
from .judge import find_unhealthy as find_unhealthy, find_unhealthy_now as find_unhealthy_now
from .limits import HealthLimits as HealthLimits, set_limits as set_limits, set_live_limits as set_live_limits
from .progress import HealthFinding as HealthFinding, RoundProgress as RoundProgress, StepProgress as StepProgress
from .progress import append_progress as append_progress, progress_path as progress_path, read_progress as read_progress
from .restarts import Restart as Restart, append_restart as append_restart, read_restarts as read_restarts
from .restarts import restarts_path as restarts_path
