"""Tasks out, results in: the queue that workers claim from, and the client that submits to it.

``__all__`` names what people use; the other names serve workers and the command line.
"""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.dispatcher.client import Dispatcher, connect
    from agent_layer.dispatcher.inspection import QueueInspector as QueueInspector
    from agent_layer.dispatcher.inspection import Shelf as Shelf
    from agent_layer.dispatcher.inspection import list_member_ids as list_member_ids
    from agent_layer.dispatcher.models import (
        HELD as HELD,
    )
    from agent_layer.dispatcher.models import (
        OVER as OVER,
    )
    from agent_layer.dispatcher.models import (
        GroupState,
        QueueStats,
        RolloutState,
        RunState,
        WorkerState,
    )
    from agent_layer.dispatcher.models import (
        HeartbeatAnswer as HeartbeatAnswer,
    )
    from agent_layer.dispatcher.models import (
        Lease as Lease,
    )
    from agent_layer.dispatcher.models import (
        LeaseAnswer as LeaseAnswer,
    )
    from agent_layer.dispatcher.models import (
        LeaseEnding as LeaseEnding,
    )
    from agent_layer.dispatcher.models import (
        Report as Report,
    )
    from agent_layer.dispatcher.queue import WorkerQueue as WorkerQueue
    from agent_layer.dispatcher.queue import retry_delay as retry_delay
    from agent_layer.dispatcher.scripts import INSPECT as INSPECT
    from agent_layer.dispatcher.scripts import LEASE_SCRIPTS as LEASE_SCRIPTS
    from agent_layer.dispatcher.scripts import SUBMIT_SCRIPTS as SUBMIT_SCRIPTS
    from agent_layer.dispatcher.tasks import (
        Known as Known,
    )
    from agent_layer.dispatcher.tasks import (
        PlacedTask as PlacedTask,
    )
    from agent_layer.dispatcher.tasks import TaskName as TaskName
    from agent_layer.dispatcher.tasks import (
        check_lifetime as check_lifetime,
    )
    from agent_layer.dispatcher.tasks import (
        check_task,
        parse_tasks,
        read_tasks,
    )
    from agent_layer.dispatcher.tasks import (
        new_tasks as new_tasks,
    )
    from agent_layer.dispatcher.tasks import (
        num_launched as num_launched,
    )
    from agent_layer.dispatcher.tasks import (
        read_placed_tasks as read_placed_tasks,
    )
    from agent_layer.dispatcher.tasks import read_task as read_task
    from agent_layer.dispatcher.tasks import read_task_name as read_task_name
    from agent_layer.dispatcher.tasks import task_line as task_line
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.dispatcher.client": (
                "Dispatcher",
                "connect",
            ),
            "agent_layer.dispatcher.inspection": (
                "Shelf",
                "QueueInspector",
                "list_member_ids",
            ),
            "agent_layer.dispatcher.models": (
                "LeaseAnswer",
                "HeartbeatAnswer",
                "GroupState",
                "HELD",
                "Lease",
                "LeaseEnding",
                "OVER",
                "QueueStats",
                "Report",
                "RolloutState",
                "RunState",
                "WorkerState",
            ),
            "agent_layer.dispatcher.queue": (
                "WorkerQueue",
                "retry_delay",
            ),
            "agent_layer.dispatcher.scripts": (
                "LEASE_SCRIPTS",
                "INSPECT",
                "SUBMIT_SCRIPTS",
            ),
            "agent_layer.dispatcher.tasks": (
                "Known",
                "PlacedTask",
                "TaskName",
                "check_task",
                "check_lifetime",
                "read_placed_tasks",
                "read_task",
                "read_task_name",
                "task_line",
                "new_tasks",
                "num_launched",
                "parse_tasks",
                "read_tasks",
            ),
        },
    )

__all__ = [
    "Dispatcher",
    "GroupState",
    "QueueStats",
    "RolloutState",
    "RunState",
    "WorkerState",
    "check_task",
    "connect",
    "parse_tasks",
    "read_tasks",
]
