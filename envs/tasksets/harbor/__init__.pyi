# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .acting import leave_artifacts as leave_artifacts
from .agents import Terminal as Terminal, nothing as nothing, oracle as oracle
from .directory import find_task_directories as find_task_directories
from .taskset import HarborTasks as HarborTasks
from .verifier import SeparateVerifier as SeparateVerifier, SharedVerifier as SharedVerifier
__all__ = [
    "HarborTasks", "SeparateVerifier", "SharedVerifier", "Terminal", "nothing", "oracle",
]
