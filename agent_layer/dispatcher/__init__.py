"""Tasks out, results in: the queue that workers claim from, and the client that submits to it."""

from agent_layer.dispatcher.client import Dispatcher, connect
from agent_layer.dispatcher.queue import Queue
from agent_layer.dispatcher.records import Beats, Lease, Report
from agent_layer.dispatcher.states import GroupState, QueueStats, RolloutState, RunState, WorkerState
from agent_layer.dispatcher.tasks import check_task, parse_tasks, read_tasks

__all__ = [
    "Beats",
    "Dispatcher",
    "GroupState",
    "Lease",
    "Queue",
    "QueueStats",
    "Report",
    "RolloutState",
    "RunState",
    "WorkerState",
    "check_task",
    "connect",
    "parse_tasks",
    "read_tasks",
]
