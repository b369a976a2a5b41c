"""Task sets: tasks by seed and level, with what must score 1 and what must score 0."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {"envs.script": "Script", "registry": "list_taskset_names open_taskset", "taskset": "TaskSet"},
    {
        "gate.gate": "Examination GateOptions",
        "gate.report": "Finding Report make_finding",
        "gate.screen": "print_report show_progress",
        "gate.trainable": "check_judges check_trainable save_report write_task_line",
        "envs.tasksets.harbor": "HarborTasks find_task_directories",
        "folder_lines": "read_lines",
        "generated": "TaskKey choose_split list_keys read_key write_replies",
        "guess_number.game": "HIGHEST REWARDS Game chance_without_hints chance_without_repeats compare",
        "registry": "read_holdout",
    },
)
