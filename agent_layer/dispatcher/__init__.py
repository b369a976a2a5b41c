"""Tasks out, results in: the queue that workers claim from, and the client that submits to it.

``__all__`` names what people use; the other names serve workers and the command line.
"""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "client": "Dispatcher connect",
        "models": "GroupState QueueStats RolloutState RunState WorkerState",
        "tasks": "check_task parse_tasks read_tasks",
    },
    {
        "inspection": "QueueInspector RolloutList list_member_ids",
        "models": "HELD OVER Lease LeaseAnswer LeaseEnding Report",
        "queue": "REFUSED WorkerQueue retry_delay",
        "scripts": "INSPECT LEASE_SCRIPTS SUBMIT_SCRIPTS",
        "tasks": (
            "Known TaskWithOrigin TaskName check_lifetime new_tasks num_launched read_placed_tasks read_task"
            " read_task_name task_line"
        ),
        "verdicts": (
            "FILE_SET TASKSET_LABEL VERSION_LABEL TasksetVerdict find_taskset find_verdict identify_file"
            " label_tasks refuse_failed verdict_path"
        ),
    },
)
