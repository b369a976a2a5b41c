"""A command that torchrun started ends without its interpreter, and loses neither words nor status."""

import os
import sys
from pathlib import Path

import pytest

from ...waiting import run

PROGRAM = """
import atexit
atexit.register(print, "was ended")
from agent_layer.cli.main import main
main()
"""


@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("no-such-command", 2)])
def test_a_rank_says_what_a_command_says(argument, status):
    found = [
        run([sys.executable, "-c", PROGRAM, argument], 60, env=os.environ | {"PYTHONUNBUFFERED": ""} | variables)
        for variables in ({}, {"TORCHELASTIC_RUN_ID": "none"})
    ]

    assert [one.returncode for one in found] == [status, status]
    assert "was ended" in found[0].stdout
    assert (found[1].stdout, found[1].stderr) == (found[0].stdout, found[0].stderr)


def test_a_rank_whose_output_is_refused_ends_as_a_command():
    found = []
    for variables in ({}, {"TORCHELASTIC_RUN_ID": "none"}):
        with Path("/dev/full").open("w") as full:
            found.append(run([sys.executable, "-c", PROGRAM, "--help"], 60, env=os.environ | variables, stdout=full))

    assert found[1].returncode == found[0].returncode != 0
    assert "No space left" in found[1].stderr
