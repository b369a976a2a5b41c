"""This file holds what a worker tells whoever started it: that it is up, and in the end what became of what it ran."""

import sys
from collections import Counter
from typing import TextIO

from envs.worker import Worker

__all__ = ["tell_begun", "tell_ended"]


def tell_begun(worker: Worker, agent: str, slots: int, run: str, told: TextIO | None = None) -> None:
    """Say who works, and how it is ended; to standard error, where nothing else is named."""
    of_run = f" for run {run}" if run else ""
    _tell(f"worker {worker.name} runs {agent}{of_run}, {slots} at a time; Ctrl-C drains it", told)


def tell_ended(worker: Worker, told: TextIO | None = None) -> None:
    """Say how often it reported what."""
    _tell(f"worker {worker.name} has ended: {_describe_endings(worker.endings)}", told)


def _describe_endings(endings: Counter[str]) -> str:
    """Say it in the words of whoever looks at rollouts; attempts that failed are tried again, or were given up."""
    named = {
        "completed": endings["completed"] + endings["truncated"],
        "failed": endings["retry"] + endings["dead"],
        "given back": endings["release"] + endings["pause"],
    }
    return ", ".join(f"{num:,} {name}" for name, num in named.items() if num) or "it ran nothing"


def _tell(sentence: str, told: TextIO | None) -> None:
    print(f"agent-layer: {sentence}", file=told or sys.stderr, flush=True)
