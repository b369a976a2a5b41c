# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .agents import Terminal as Terminal, nothing as nothing, oracle as oracle
from .lines import read_lines as read_lines
from .taskset import HarborTasks as HarborTasks
from .verifier import SeparateVerifier as SeparateVerifier, SharedVerifier as SharedVerifier
