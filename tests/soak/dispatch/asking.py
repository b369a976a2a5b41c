"""Tasks of the chaos run: groups of eight of several kinds, and the expected endings of their attempts."""

from zlib import crc32

from agent_layer.schema.task import Task

__all__ = ["GROUP_SIZE", "RUN", "is_doomed", "is_null", "make_tasks"]

RUN = "chaos"
GROUP_SIZE = 8
_KINDS: dict[int, dict[str, object]] = {
    3: {"launch": GROUP_SIZE + 2},
    6: {"partial": "refill", "labels": {"null": "yes"}},
    9: {"partial": "drop", "launch": GROUP_SIZE + 1, "labels": {"null": "yes"}},
}
"""By the last digit of the task's number: launched in surplus, filled up again, dropped when too few are usable."""
_DOOMED_EVERY = 100
_NULL_EVERY = 12


def make_tasks(num: int) -> list[Task]:
    return [
        Task(id=f"t{number}", run=RUN, group_size=GROUP_SIZE, **_KINDS.get(number % 10, {}))  # pyright: ignore[reportArgumentType]  # each kind fits
        for number in range(num)
    ]


def is_doomed(rollout_id: str) -> bool:
    """The first rollout of every hundredth task fails for good."""
    task_id, _, member = rollout_id.split(".")
    return int(task_id[1:]) % _DOOMED_EVERY == 0 and member == "0"


def is_null(rollout_id: str, attempt: int) -> bool:
    """Some attempts at some kinds of tasks end without a reward."""
    may_be = "labels" in _KINDS.get(int(rollout_id.partition(".")[0][1:]) % 10, {})
    return may_be and crc32(f"{rollout_id}-{attempt}".encode()) % _NULL_EVERY == 0
