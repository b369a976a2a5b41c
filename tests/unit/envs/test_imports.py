"""Imports of the package by users and by workers."""

import subprocess
import sys


def _run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_decorator_is_found_after_the_parts_that_use_it():
    assert _run("import envs.agents; from envs import resumable; print(type(resumable).__name__)") == "function"


def test_agents_load_no_graph_library():
    code = "import sys, envs.agents; print([name for name in sys.modules if name.startswith(('lang', 'openai'))])"

    assert _run(code) == "[]"
