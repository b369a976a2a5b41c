"""Imports of the package by users and by workers."""

import subprocess
import sys


def test_agents_load_no_graph_library_and_the_decorator_is_found_after_the_parts_that_use_it():
    code = (
        "import sys, envs.agents; print(*[name for name in sys.modules if name.startswith(('lang', 'openai'))]);"
        " from envs import resumable; print(type(resumable).__name__)"
    )

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.splitlines() == ["", "function"]
