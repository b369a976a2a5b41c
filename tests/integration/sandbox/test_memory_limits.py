"""Whose memory ran out, with cgroups of each version: the box's own, or that of the machine or a group above."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from ...boxes import end_without, require_kind
from ...waiting import run

PROGRAM = Path(__file__).parent / "cgroup_run.py"
VERSION_2_ALONE = (
    "umount -l /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup"
    ' && grep -qw memory /sys/fs/cgroup/cgroup.controllers || exit 77; exec "$@"'
)
"""In a mount namespace of its own: what a machine shows that has version 2 only."""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["namespace", "session", "oci"])
def test_the_end_of_a_box_that_the_machine_starves_is_its_own_doing_if_its_processes_took_what_it_got(kind):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    require_kind(kind)

    ran = run([sys.executable, str(PROGRAM), kind, "starved"], 120, cwd=PROGRAM.parents[3])

    assert ran.returncode == 0, ran.stderr
    if not (found := json.loads(ran.stdout)):
        end_without("this machine has no cgroup for boxes", "cgroup")
    assert (found["sleeps"], found["spins"]) == (None, None)
    assert {found["spins in many"], found["forks"]} <= {"policy", None}


@pytest.mark.parametrize(
    "kind", ["namespace", *(pytest.param(one, marks=pytest.mark.long) for one in ("session", "oci"))]
)
@pytest.mark.parametrize("view", ["as it is", "version 2 alone"])
def test_the_end_of_a_box_is_its_own_doing_only_at_its_own_limit(kind, view):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    require_kind(kind)
    command = [sys.executable, str(PROGRAM), kind]
    if view != "as it is":
        command = ["unshare", "-m", "--propagation", "private", "sh", "-c", VERSION_2_ALONE, "sh", *command]
    ran = run(command, 120, cwd=PROGRAM.parents[3])
    if ran.returncode == 77:
        end_without("this machine has bound its memory controller to version 1", "cgroup2")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    if found.pop("version") is None:
        end_without("this machine has no cgroup for boxes", "cgroup")

    assert found == {
        "forks": 19,
        "little": "exited",
        "own limit": "oom",
        "limit above, after its own was hit": "gone",
        "own limit again": "oom",
        "killed server": ["gone", "infra"],
    }
