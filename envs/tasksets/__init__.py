"""Task sets: tasks by seed and level, with what must score 1 and what must score 0."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.script import Script as Script
    from envs.tasksets.registry import list_taskset_names as list_taskset_names
    from envs.tasksets.registry import open_taskset as open_taskset
    from envs.tasksets.taskset import TaskSet as TaskSet
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.script": ("Script",),
            "envs.tasksets.registry": ("list_taskset_names", "open_taskset"),
            "envs.tasksets.taskset": ("TaskSet",),
        },
    )

__all__ = ["Script", "TaskSet", "list_taskset_names", "open_taskset"]
