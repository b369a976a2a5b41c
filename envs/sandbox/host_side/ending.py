"""Why a box ended, and whose fault it was: decided here, once, for attempts, graders and evaluations.

What the commands of a box did is theirs. What took a box that no command and no counter explains was the machine:

    memory   the kernel killed for memory while the box was at a limit of its own         policy
    stuck    a command was to be killed, and its processes kept the server off the CPU    policy
    gone     anything else: the kernel killed for the machine's memory, a server, keeper
             or daemon was killed, nothing ran, or nothing counts here                    infra
"""

import time
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.schema.sandbox import EndOfBox
from envs.sandbox.host_side.cgroups import CgroupUsage

How: TypeAlias = Literal["gone", "stuck"]
"""The connection of its server broke; or the server did not kill a command in time."""
_PEAK_SLACK_MB: Final = 1.0
"""The kernel accounts in batches."""
_BUSY: Final = 0.5
"""Share of its CPU that a box used while it was stuck, from which on its own processes kept its server waiting."""
_MANY_PROCESSES: Final = 8
_KILL_CPU_SECONDS: Final = 0.02
"""More than a server needs to kill. Where a starved box got as much, many processes took it from their server."""


class BoxWatch(msgspec.Struct, kw_only=True):
    """What is known of a box when it ends."""

    box: str
    before: CgroupUsage
    """What it had used when the first of the commands that run began, or when the last one had ended."""
    latest: CgroupUsage = CgroupUsage()
    """What it had used when its last command had ended."""
    memory_mb: int
    max_processes: int
    num_running: int = 0
    """Commands of its user; the server's work on files is none."""


def blame_for_kill(before: CgroupUsage, after: CgroupUsage, memory_mb: int) -> Literal["policy", "infra"] | None:
    """Return whose fault it was that the kernel killed for memory in a box; None: it did not, or does not count it.

    It kills in a box that is at its own limit, and anywhere when the machine, or a group above, is at its.
    """
    if before.oom_kills is None or after.oom_kills is None or after.oom_kills <= before.oom_kills:
        return None
    if before.memory_hits is None or after.memory_hits is None:  # version 1, where the peak shows it
        is_own = after.peak_memory_mb is None or after.peak_memory_mb >= memory_mb - _PEAK_SLACK_MB
    else:
        is_own = after.memory_hits > before.memory_hits
    return "policy" if is_own else "infra"


def judge_end(watch: BoxWatch, after: CgroupUsage, how: How, *, at_kill: CgroupUsage, cpu_limit: float) -> EndOfBox:
    """Return why a box ended.

    Args:
        watch: what was known before.
        after: what it has used.
        how: what was seen.
        at_kill: what it had used when a command was to be killed; nothing known: none was.
        cpu_limit: CPU seconds that it could use from then on.
    """
    cpu_before = at_kill.cpu_seconds
    busy_seconds = None if after.cpu_seconds is None or cpu_before is None else after.cpu_seconds - cpu_before
    blame = blame_for_kill(watch.before, after, watch.memory_mb)
    if blame == "policy":
        cause, reason, why = "policy", "memory", "its commands used up its memory, so that the kernel ended it"
    elif how == "stuck" and busy_seconds is not None and busy_seconds >= _BUSY * cpu_limit:
        cause, reason = "policy", "stuck"
        why = f"its commands kept it busy for {busy_seconds:.1f} s of CPU, so that none of them could be killed"
    elif how == "stuck" and _is_crowded(at_kill.num_processes or 0, busy_seconds or 0.0, watch.max_processes):
        cause, reason = "policy", "stuck"
        why = f"its commands were {at_kill.num_processes} processes, so many that none of them could be killed"
    else:
        cause, reason, why = "infra", how, _describe_loss(watch, blame, how)
    return EndOfBox(box=watch.box, cause=cause, reason=reason, why=f"sandbox {watch.box}: {why}", ended_at=time.time())


def _is_crowded(num_processes: int, busy_seconds: float, max_processes: int) -> bool:
    """Return whether commands started so many processes that their server had no turn, however busy the machine was."""
    is_starved = busy_seconds < _KILL_CPU_SECONDS
    return num_processes >= max_processes or (num_processes >= _MANY_PROCESSES and not is_starved)


def _describe_loss(watch: BoxWatch, blame: Literal["infra"] | None, how: How) -> str:
    doing = "while a command ran" if watch.num_running else "while no command ran"
    if blame is not None:
        return f"the box was lost {doing}: the machine ran out of memory, the box had not"
    return f"the box was lost {doing}" if how == "gone" else "the box was lost: its server did not answer"
