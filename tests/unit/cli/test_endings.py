"""How a command ends when its output goes nowhere, or when Ctrl-C arrives before it has begun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "agent_layer.cli"]
LONG_HELP = ["query", "--help"]


def run(arguments, **streams):
    return subprocess.run([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, check=False, **streams)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_output_is_named(tmp_path, unbuffered):
    with Path("/dev/full").open("w") as full:
        ended = run(LONG_HELP, stdout=full, cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": unbuffered})

    assert ended.returncode == 1
    assert ended.stderr.startswith("agent-layer: output: ")
    assert "No space left on device" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_closed_output_is_named(tmp_path):
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "--version"]
    ended = subprocess.run(closed, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path)

    assert ended.returncode == 1
    assert ended.stderr.startswith("agent-layer: output: ")
    assert ended.stderr.count("\n") == 1


def test_a_reader_that_has_gone_needs_no_word(tmp_path):
    program = f"""
import os, subprocess, sys
reader, writer = os.pipe()
os.close(reader)
ended = subprocess.run({[*COMMAND, *LONG_HELP]!r}, stdout=writer, stderr=subprocess.PIPE, check=False)
print(ended.returncode, ended.stderr)
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)

    assert output.stdout == "1 b''\n"


@pytest.mark.parametrize("number", [1, 150, 450])
def test_ctrl_c_while_modules_load_ends_without_a_word(tmp_path, number):
    program = f"""
import os, signal, sys
from agent_layer.cli.__main__ import main

class Interrupter:
    left = {number}

    def find_spec(self, *_):
        Interrupter.left -= 1
        if not Interrupter.left:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter())
sys.argv = ["agent-layer", "query", "--help"]
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
