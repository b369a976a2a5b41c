"""Results of execs: from what the server of a box, its cgroup and the worker itself have seen."""

import os
import signal
from typing import Final, Literal

import msgspec

from agent_layer.schema.sandbox import EndOfBox, ExecResult, ExecStatus
from envs.sandbox.host_side.cgroups import CgroupUsage
from envs.sandbox.host_side.connection import BoxReply
from envs.sandbox.host_side.ending import blame_for_kill

_CANNOT_EXECUTE = 126
_KILLED_BY: Final[dict[str, ExecStatus]] = {"policy": "oom", "infra": "gone"}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker has seen of a job."""

    reply: BoxReply | None
    """None: the box was lost."""
    cut: Literal["timeout", "output_limit"] | None = None
    """Why the worker had it killed."""
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float


def make_result(
    outcome: Outcome,
    cpu_limit_seconds: int,
    memory_mb: int,
    before: CgroupUsage | None = None,
    after: CgroupUsage | None = None,
    *,
    ended: EndOfBox | None = None,
) -> ExecResult:
    """Return the result of an exec.

    Args:
        outcome: of its job.
        cpu_limit_seconds: CPU time after which the kernel killed it.
        memory_mb: limit of its box.
        before: what the box had used when it started; None: not known.
        after: what the box had used when it had ended.
        ended: why the box has ended; None: it has not.
    """
    before, after = before or CgroupUsage(), after or CgroupUsage()
    reply, stderr = outcome.reply, outcome.stderr
    status = _find_status(outcome, cpu_limit_seconds)
    if reply is None and not outcome.cut:
        status = "oom" if ended is not None and ended.cause == "policy" else "gone"
    elif reply is not None and reply.status and not outcome.cut and not reply.oom:
        status = _KILLED_BY[blame] if (blame := blame_for_kill(before, after, memory_mb)) else status
    cpu_seconds, peak = after.cpu_seconds, after.peak_memory_mb
    exit_code: int | None = None
    if reply is not None:
        cpu_seconds = reply.cpu_seconds if cpu_seconds is None else cpu_seconds - (before.cpu_seconds or 0.0)
        peak = reply.peak_memory_kb / 1024 if peak is None else peak
        exit_code = os.waitstatus_to_exitcode(reply.status) if status == "exited" else None
        if isinstance(reply.error, int):
            stderr, exit_code = f"sandbox: {os.strerror(reply.error)}\n".encode(), _CANNOT_EXECUTE
    return ExecResult(
        status=status,
        exit_code=exit_code,
        signal=os.WTERMSIG(reply.status) if reply and status == "signalled" else None,
        stdout=outcome.stdout,
        stderr=stderr,
        truncated=outcome.cut is not None or status == "gone",
        seconds=outcome.seconds,
        cpu_seconds=cpu_seconds,
        peak_memory_mb=peak,
    )


def _find_status(outcome: Outcome, cpu_limit_seconds: int) -> ExecStatus:
    """Return how a command ended by what its server and the worker saw."""
    reply = outcome.reply
    if outcome.cut:
        return outcome.cut
    if reply is None:
        return "gone"
    if reply.oom:
        return "oom"
    if not os.WIFSIGNALED(reply.status):
        return "exited"
    number = os.WTERMSIG(reply.status)
    is_late = number == signal.SIGXCPU or (number == signal.SIGKILL and reply.cpu_seconds >= cpu_limit_seconds)
    return "timeout" if is_late else "signalled"
