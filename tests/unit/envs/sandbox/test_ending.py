"""Whose fault the end of a box or of an attempt's time is: a table of what can be known, doubtful cases included."""

import errno
import pickle

import pytest

from agent_layer.errors import BoxExhaustedError
from envs.failures import TimeSpent, blame_for_time, classify_failure, end_with_box
from envs.sandbox.host_side.cgroups import CgroupUsage
from envs.sandbox.host_side.connection import BoxReply
from envs.sandbox.host_side.ending import BoxWatch, judge_end
from envs.sandbox.host_side.outcome import Outcome, make_result

MEMORY_MB = 64
NONE = CgroupUsage()
V1 = CgroupUsage(oom_kills=2, cpu_seconds=1.0, num_processes=7, peak_memory_mb=30.0)
MANY = CgroupUsage(cpu_seconds=1.0, num_processes=8)
FULL = CgroupUsage(cpu_seconds=1.0, num_processes=20)
V2 = CgroupUsage(oom_kills=2, memory_hits=5, cpu_seconds=1.0, peak_memory_mb=64.0)


def usage(before, **fields):
    return CgroupUsage(**{name: getattr(before, name) for name in before.__struct_fields__} | fields)


ENDS = {
    # name: (before, after, how, commands that ran): (cause, reason)
    "killed at its own limit (v2)": ((V2, usage(V2, oom_kills=3, memory_hits=6), "gone", 1), ("policy", "memory")),
    "killed at its limit (v1)": (
        (V1, usage(V1, oom_kills=3, peak_memory_mb=64.0), "gone", 1),
        ("policy", "memory"),
    ),
    "killed, memory left from before": ((V2, usage(V2, oom_kills=3, memory_hits=6), "gone", 0), ("policy", "memory")),
    "the machine was out of memory (v2)": ((V2, usage(V2, oom_kills=3), "gone", 1), ("infra", "gone")),
    "the machine was out of memory (v1)": ((V1, usage(V1, oom_kills=3), "gone", 1), ("infra", "gone")),
    "both were at their limits": (
        (V2, usage(V2, oom_kills=3, memory_hits=6), "gone", 1),
        ("policy", "memory"),
    ),
    "an earlier command was killed": ((V2, V2, "gone", 1), ("infra", "gone")),
    "server killed while a command ran": ((V1, V1, "gone", 1), ("infra", "gone")),
    "server killed while none ran": ((V1, V1, "gone", 0), ("infra", "gone")),
    "limit hit, nothing killed": ((V2, usage(V2, memory_hits=9), "gone", 1), ("infra", "gone")),
    "no cgroup": ((NONE, NONE, "gone", 1), ("infra", "gone")),
    "cgroup removed by its keeper": ((V2, NONE, "gone", 1), ("infra", "gone")),
    "stuck, its own processes busy": ((V1, usage(V1, cpu_seconds=5.0), "stuck", 1), ("policy", "stuck")),
    "stuck, the machine busy": ((V1, usage(V1, cpu_seconds=1.5), "stuck", 1), ("infra", "stuck")),
    "stuck, the machine busy, and it may have no more processes": (
        (FULL, usage(FULL, cpu_seconds=1.1), "stuck", 1),
        ("policy", "stuck"),
    ),
    "stuck, the machine busy, its many processes took what it got": (
        (MANY, usage(MANY, cpu_seconds=1.05), "stuck", 1),
        ("policy", "stuck"),
    ),
    "stuck, the machine gave its many processes nothing": (
        (MANY, usage(MANY, cpu_seconds=1.01), "stuck", 1),
        ("infra", "stuck"),
    ),
    "gone, and it may have no more processes": ((FULL, FULL, "gone", 1), ("infra", "gone")),
    "stuck, no cgroup": ((NONE, NONE, "stuck", 1), ("infra", "stuck")),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_end_of_a_box_is_its_commands_doing_where_a_counter_says_so(name):
    (before, after, how, num_running), wanted = ENDS[name]
    watch = BoxWatch(box="b", before=before, memory_mb=MEMORY_MB, max_processes=20, num_running=num_running)

    end = judge_end(watch, after, how, at_kill=before, cpu_limit=5.0)

    assert (end.cause, end.reason) == wanted
    assert end_with_box(end).status == {"policy": "truncated", "infra": "lost"}[end.cause]


@pytest.mark.parametrize(
    ("after", "status"),
    [
        (usage(V2, oom_kills=3, memory_hits=6), "oom"),
        (usage(V2, oom_kills=3), "gone"),
        (V2, "signalled"),
    ],
)
def test_a_command_that_the_kernel_killed_for_the_machines_memory_is_no_failure_of_it(after, status):
    outcome = Outcome(reply=BoxReply(id=1, status=9), seconds=1.0)

    assert make_result(outcome, 30, MEMORY_MB, V2, after).status == status


SPENT = {
    "a command at the end": (TimeSpent(seconds=100, command_seconds=1, is_commanding=True), "policy"),
    "commands for more than half": (TimeSpent(seconds=100, command_seconds=51, waited_seconds=40), "policy"),
    "waits for more than a fifth": (TimeSpent(seconds=100, command_seconds=50, waited_seconds=21), "infra"),
    "neither": (TimeSpent(seconds=100, command_seconds=50, waited_seconds=20), "user"),
    "nothing known": (TimeSpent(seconds=100), "user"),
}


@pytest.mark.parametrize("name", SPENT)
def test_time_is_the_fault_of_what_took_it_unless_the_task_says_whose(name):
    spent, cause = SPENT[name]

    assert blame_for_time("over", spent, "auto").cause == cause
    assert blame_for_time("over", spent, "user").cause == "user"
    assert blame_for_time("over", spent, "policy").cause == "policy"


def test_an_agent_that_a_full_box_fails_is_failed_by_its_policy():
    error = pickle.loads(pickle.dumps(BoxExhaustedError(errno.ENOSPC, "No space left", "x")))
    wrapped = RuntimeError("tool failed")
    wrapped.__cause__ = error

    assert (error.errno, error.filename) == (errno.ENOSPC, "x")
    assert [classify_failure(one).cause for one in (error, wrapped)] == ["policy", "policy"]
