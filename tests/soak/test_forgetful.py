"""A Redis that loses its last second, its role, its data or its clock, and refused system calls: nothing is doubled."""

import os
import sys
from pathlib import Path

import pytest

from ..waiting import run
from .forgetful.shim import find_compiler

FORGETFUL = Path(__file__).parent / "forgetful"
ROUNDS = int(os.environ.get("AGENT_LAYER_TEST_FORGETFUL_ROUNDS", "5"))
"""Faults in each run; 100 for a report."""


@pytest.mark.long
@pytest.mark.timeout(ROUNDS * 240 + 1200)
@pytest.mark.skipif(find_compiler() is None, reason="no C compiler for the faults")
@pytest.mark.parametrize(
    ("server", "kind"), [("redis7", "own"), ("redis7", "replicated"), ("valkey", "remote"), ("carried", "embedded")]
)
def test_a_redis_that_forgets_doubles_nothing_and_loses_nothing(tmp_path, redis_programs, server, kind):
    if server not in redis_programs:
        pytest.skip(f"no {server} server; 'make test' puts it there where it can be had")
    command = [sys.executable, str(FORGETFUL), str(tmp_path), f"--server={redis_programs[server]}", f"--kind={kind}"]
    soak = run([*command, f"--rounds={ROUNDS}"], ROUNDS * 150 + 600)

    print(soak.stdout)  # noqa: T201  # the figures, for who looks
    assert soak.returncode == 0, soak.stdout[-6000:] + soak.stderr[-4000:]
