# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .agents import Terminal as Terminal, nothing as nothing, oracle as oracle
from .needs import Allowed as Allowed, Need as Need
from .taskset import HarborOptions as HarborOptions, HarborTasks as HarborTasks
from .verifier import SeparateVerifier as SeparateVerifier, SharedVerifier as SharedVerifier
