"""Cost of heavy-tailed rollouts for a trainer that waits for each whole step, and for one that asks ahead.

Both consume the same rollouts, in steps of whole groups, through the real dispatcher, gateway, workers and store. They
differ only in the number of groups asked for ahead, and in whether the dispatcher knows the expected durations. The
agents wait as long as their task says. Last, more rollouts are launched than kept: how much shorter are those kept?
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import mean

import msgspec
from bench_table import Figure
from long_tail_bounds import least_seconds, list_seconds

from agent_layer.dispatcher import Dispatcher, connect
from agent_layer.schema.task import Task
from agent_layer.store import Store, open_store
from agent_layer.store.consumers.follower import GroupDelivery

sys.path.append(str(Path(__file__).parents[1] / "soak" / "crowd"))

from durations import draw_durations
from place import open_place

__all__ = ["measure_long_tail"]

SLOTS, NUM_WORKERS = 64, 2
GROUP_SIZE, GROUPS_PER_STEP, NUM_STEPS = 8, 24, 6
MAX_STALENESS = 3
NUM_LAUNCHED, NUM_STEPS_LAUNCHED = 12, 3
UNIT_SECONDS, MAX_UNITS = 0.2, 60.0
"""40 % take less than one unit, 10 % more than 20; 7.0 on average, so that 46 rollouts end in a second."""
_PATIENCE_SECONDS = 120.0

_Groups = Sequence[Sequence[float]]
"""[num_groups][num_rollouts] seconds that each rollout takes."""


@dataclass(frozen=True)
class _Trainer:
    """Consumes groups step by step."""

    dispatcher: Dispatcher
    store: Store

    def consume(self, tasks: Sequence[Task], max_staleness: int) -> tuple[float, list[GroupDelivery]]:
        """Consume all groups, asking ``max_staleness`` steps ahead like ``GroupFeed``; return seconds and groups."""
        began, num_asked, run = time.monotonic(), 0, tasks[0].run
        deliveries = self.store.follow("bench", run, wait_seconds=_PATIENCE_SECONDS, max_unacked=None)
        consumed: list[GroupDelivery] = []
        while len(consumed) < len(tasks):
            most = len(consumed) + GROUPS_PER_STEP * (1 + max_staleness)
            self.dispatcher.submit(tasks[num_asked:most])
            num_asked = min(most, len(tasks))
            step = list(islice(deliveries, GROUPS_PER_STEP))
            if [len(one.group.trajectory_ids) for one in step] != [GROUP_SIZE] * GROUPS_PER_STEP:
                raise RuntimeError(f"run {run}: expected {GROUPS_PER_STEP} whole groups, found {step}")
            for delivery in step:
                delivery.ack()
            consumed += step
        return time.monotonic() - began, consumed


def measure_long_tail(directory: Path, unit_seconds: float = UNIT_SECONDS) -> list[Figure]:
    """Consume the same rollouts in turns, and compare with each other and with what no cost at all would give."""
    groups = _draw(NUM_STEPS * GROUPS_PER_STEP, GROUP_SIZE, unit_seconds)
    with open_place(directory, NUM_WORKERS, SLOTS // NUM_WORKERS) as place:
        trainer = _Trainer(connect(place.settings), open_store(place.settings))
        trainer.consume(_tasks([[0.1] * GROUP_SIZE] * GROUPS_PER_STEP, "warm"), 0)
        sync, _ = trainer.consume(_tasks(groups, "sync"), 0)
        ahead, _ = trainer.consume(_tasks(groups, "async"), MAX_STALENESS)
        answer, _ = trainer.consume(_tasks(groups, "told", unit_seconds), MAX_STALENESS)
        bias = _measure_bias(trainer, unit_seconds)
    bound, best = (
        list_seconds(groups, SLOTS, GROUPS_PER_STEP, MAX_STALENESS, longest_first=one) for one in (False, True)
    )
    least = least_seconds(groups, SLOTS)
    what = f"long tail, s for {len(groups) * GROUP_SIZE} rollouts on {SLOTS} slots, {MAX_STALENESS} steps asked ahead"
    return [
        Figure(f"{what} (peer: each step waited for)", *_pair(sync, ahead), "≥ 2"),
        Figure(f"{what} (floor: the same order at no cost)", *_pair(bound, ahead), "≥ 0.9"),
        Figure(f"{what}, longest expected first (peer: each step waited for)", *_pair(sync, answer), "≥ 2"),
        Figure(f"{what}, longest expected first (floor: longest first at no cost)", *_pair(best, answer), "≥ 0.9"),
        Figure(f"{what}, longest expected first (floor: work / slots)", *_pair(least, answer), ""),
        *bias,
    ]


def _measure_bias(trainer: _Trainer, unit_seconds: float) -> list[Figure]:
    """Launch more rollouts than are kept; compare the durations of the others, and the run's own report."""
    groups = _draw(NUM_STEPS_LAUNCHED * GROUPS_PER_STEP, NUM_LAUNCHED, unit_seconds)
    tasks = [msgspec.structs.replace(task, group_size=GROUP_SIZE) for task in _tasks(groups, "launched")]
    _, deliveries = trainer.consume(tasks, MAX_STALENESS)
    members = {delivery.group.task_id: _list_members(delivery) for delivery in deliveries}
    kept: list[float] = []
    dropped: list[float] = []
    for task, group in zip(tasks, groups, strict=True):
        for member, seconds in enumerate(group):
            (kept if member in members[task.id] else dropped).append(seconds)
    (run,) = trainer.dispatcher.runs(["launched"])
    what = f"finishing first: s of the {GROUP_SIZE} kept of {NUM_LAUNCHED} launched (peer: of those not kept)"
    return [
        Figure(f"{what}, had all ended", *_pair(mean(dropped), mean(kept)), ""),
        Figure(f"{what}, as the run tells it", *_pair(run.surplus_seconds or 0.0, run.kept_seconds or 0.0), ""),
    ]


def _list_members(delivery: GroupDelivery) -> set[int]:
    return {int(name.rpartition("-")[0].rpartition(".")[2]) for name in delivery.group.trajectory_ids}


def _draw(num_groups: int, num_rollouts: int, unit_seconds: float) -> _Groups:
    drawn = draw_durations(num_groups * num_rollouts, seed=1, longest=MAX_UNITS)
    seconds = [unit_seconds * one for one in drawn]
    return [seconds[at : at + num_rollouts] for at in range(0, len(seconds), num_rollouts)]


def _tasks(groups: _Groups, run: str, declared_unit_seconds: float | None = None) -> list[Task]:
    """One task for each group; with a unit, each says how long its longest takes, as if a unit were a second."""
    return [
        Task(
            id=f"t{number}",
            run=run,
            scorer="agent",
            group_size=len(seconds),
            launch=len(seconds),
            input={"seconds": list(seconds)},
            expected_seconds=max(seconds) / declared_unit_seconds if declared_unit_seconds else None,
        )
        for number, seconds in enumerate(groups)
    ]


def _pair(theirs: float, ours: float) -> tuple[str, str, str]:
    return f"{ours:.3g}", f"{theirs:.3g}", f"{theirs / ours:.2f}"
