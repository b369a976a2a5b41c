"""Constant answers: how many tasks of a set the best single answer solves."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from agent_layer.schema import Task
from envs.script import Script
from envs.tasksets.gate.probes import answer
from envs.tasksets.gate.report import Finding, make_finding
from envs.tasksets.gate.script_judge import ScriptJudge

_COMMON: Final = ("0", "1", "2", "yes", "no", "true", "false", "A", "B", "none", "[]")
_MAX_REFERENCES: Final = 12
_MIN_TASKS: Final = 4
_NUM_HOPELESS: Final = 8
"""Unsolved tasks before an answer is given up."""
_MAX_SHARE: Final = 0.6
"""Share that fails a set if it certainly lies above it: a coin solves half where each task has two answers, and one of
the two may be right somewhat more often.
"""
_Z: Final = 1.96


async def find_constants(
    judge: ScriptJudge, solved: Sequence[tuple[Task, Script]], level: int
) -> tuple[Finding | None, float | None]:
    """Return what the best single answer solves, and its share of the tasks.

    Args:
        judge: scores answers.
        solved: tasks with their references.
        level: of the tasks.

    Returns: (finding, share); None where the share is harmless, and where there are too few tasks.
    """
    if len(solved) < _MIN_TASKS:
        return None, None
    works = [msgspec.json.encode(msgspec.structs.replace(one, name=""), enc_hook=repr) for _, one in solved]
    common = [works.index(work) for work, _ in Counter(works).most_common(_MAX_REFERENCES)]
    candidates = [(solved[at][1], at) for at in common]
    if not any(one.files for _, one in solved):
        candidates += [(answer(text, text), -1) for text in _COMMON]
    best, best_lower, best_share = candidates[0][0], -1.0, 0.0
    for script, owner in candidates:
        tasks = [task for at, (task, _) in enumerate(solved) if at != owner]
        num_right = num_tried = 0
        for task in tasks:
            found = await judge.judge(task, script)
            num_right += found.reward is not None and found.reward >= 1
            num_tried += 1
            if num_tried >= _NUM_HOPELESS and not num_right:
                break
        if (lower := _wilson(num_tried, num_right)) > best_lower:
            best, best_lower, best_share = script, lower, num_right / num_tried
    share = round(best_share, 3)
    if best_lower <= _MAX_SHARE:
        return None, share
    text = best.result if isinstance(best.result, str) else best.name
    evidence = f"level {level}: {text[:60]!r} solves {best_share:.0%} of {len(solved)} tasks"
    return make_finding("constant-answer", evidence), share


def _wilson(number: int, num_right: int) -> float:
    """Return the lower end of the 95 % interval of a share (Wilson 1927)."""
    share, square = num_right / number, _Z**2 / number
    spread = _Z * math.sqrt(share * (1 - share) / number + square / (4 * number))
    return (share + square / 2 - spread) / (1 + square)
