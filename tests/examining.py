"""One check or audit of a task set, whole."""

import asyncio

from envs.tasksets.gate.gate import Examination, GateOptions
from envs.tasksets.gate.report import Report

__all__ = ["examine"]


def examine(name: str, **options: object) -> Report:
    """Return the report of an examination whose progress is not shown."""
    return asyncio.run(examine_here(name, **options))


async def examine_here(name: str, **options: object) -> Report:
    """Like ``examine``, in this loop."""
    examination = Examination(name, GateOptions(**options), lambda _: None)
    await examination.run()
    return examination.report()
