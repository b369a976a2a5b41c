# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .client import Dispatcher as Dispatcher, connect as connect
from .inspection import QueueInspector as QueueInspector, RolloutList as RolloutList, list_member_ids as list_member_ids
from .models import GroupState as GroupState, HELD as HELD, Lease as Lease, LeaseAnswer as LeaseAnswer
from .models import LeaseEnding as LeaseEnding, OVER as OVER, QueueStats as QueueStats, Report as Report
from .models import RolloutState as RolloutState, RunState as RunState, WorkerState as WorkerState
from .queue import REFUSED as REFUSED, WorkerQueue as WorkerQueue, retry_delay as retry_delay
from .scripts import INSPECT as INSPECT, LEASE_SCRIPTS as LEASE_SCRIPTS, SUBMIT_SCRIPTS as SUBMIT_SCRIPTS
from .tasks import Known as Known, TaskName as TaskName, TaskWithOrigin as TaskWithOrigin
from .tasks import check_lifetime as check_lifetime, check_task as check_task, new_tasks as new_tasks
from .tasks import num_launched as num_launched, parse_tasks as parse_tasks, read_placed_tasks as read_placed_tasks
from .tasks import read_task as read_task, read_task_name as read_task_name, read_tasks as read_tasks
from .tasks import task_line as task_line
from .verdicts import FILE_SET as FILE_SET, TASKSET_LABEL as TASKSET_LABEL, TasksetVerdict as TasksetVerdict
from .verdicts import VERSION_LABEL as VERSION_LABEL, find_taskset as find_taskset, find_verdict as find_verdict
from .verdicts import identify_file as identify_file, label_tasks as label_tasks, refuse_failed as refuse_failed
from .verdicts import verdict_path as verdict_path
__all__ = [
    "Dispatcher", "GroupState", "QueueStats", "RolloutState", "RunState", "WorkerState", "check_task", "connect",
    "parse_tasks", "read_tasks",
]
