# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .metrics import alarm_metrics as alarm_metrics
from .notifier import open_notifier as open_notifier, open_senders as open_senders
from .reader import AlarmReader as AlarmReader, RunAlarms as RunAlarms
from .rules import prometheus_rules as prometheus_rules
from .watch import watch_runs as watch_runs
