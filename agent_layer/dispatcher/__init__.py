"""Tasks out, results in: the queue that workers claim from, and the client that submits to it."""

from agent_layer.dispatcher.client import Dispatcher, connect
from agent_layer.dispatcher.queue import Queue
from agent_layer.dispatcher.records import GroupState, Lease, QueueStats, Report, RolloutState, WorkerState
from agent_layer.dispatcher.tasks import check_task, parse_tasks, read_tasks

__all__ = [
    "Dispatcher",
    "GroupState",
    "Lease",
    "Queue",
    "QueueStats",
    "Report",
    "RolloutState",
    "WorkerState",
    "check_task",
    "connect",
    "parse_tasks",
    "read_tasks",
]
