"""Harbor tasks: directories with an instruction, an image, tests and a reference, as tasks of ours."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "agents": "Terminal nothing oracle",
        "taskset": "HarborTasks",
        "verifier": "SeparateVerifier SharedVerifier",
    },
    {"acting": "leave_artifacts", "directory": "find_task_directories"},
)
