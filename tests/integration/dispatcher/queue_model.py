"""Model of the queue in plain Python: the effect of each move, without tokens, keys and clocks."""

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

from agent_layer.dispatcher.models import HELD, OVER, Lease, LeaseEnding
from agent_layer.schema.ids import make_group_id, make_rollout_id, make_trajectory_id
from agent_layer.schema.rollout import RolloutStatus
from agent_layer.schema.task import Task

from .moves import MOVES

MAX_ATTEMPTS = 2
MAX_REFILLS = 3


@dataclass
class ModelRollout:
    rollout_id: str
    group: "ModelGroup"
    seq: Fraction
    status: RolloutStatus = "queued"
    delayed: bool = False
    attempts: int = 0
    failures: int = 0
    token: str | None = None
    accepted: int | None = None
    checkpoint: str | None = None
    report: tuple[str, str] | None = None
    """(token, ending) of the report that ended the newest lease."""

    @property
    def task(self) -> Task:
        return self.group.task

    @property
    def is_over(self) -> bool:
        return self.status in OVER

    def move(self, to: RolloutStatus) -> None:
        assert to in MOVES[self.status], (self.status, to)
        self.status = to


@dataclass
class ModelGroup:
    task: Task
    rollouts: list[ModelRollout] = field(default_factory=list)
    usable: int = 0
    refills: int = 0
    is_cancelled: bool = False
    closed_with: list[str] | None = None
    """Members, in their order; None: it is open."""


@dataclass
class Model:
    groups: dict[str, ModelGroup] = field(default_factory=dict)
    rollouts: dict[str, ModelRollout] = field(default_factory=dict)
    paused_runs: set[str] = field(default_factory=set)
    pausing: set[str] = field(default_factory=set)
    """Those of them whose leased rollouts are to pause, too."""
    newest_policy: dict[str, int] = field(default_factory=dict)
    weights: Counter = field(default_factory=Counter)
    quotas: dict[str, int] = field(default_factory=dict)
    turns: dict[str, Fraction] = field(default_factory=dict)
    now_served: Fraction = Fraction(0)
    seq: int = 0

    def add(self, task: Task, round_index: int) -> None:
        group_id = make_group_id(task.run, task.id, round_index)
        if group_id not in self.groups:
            num = task.launch or task.group_size
            self.groups[group_id] = ModelGroup(task)
            self.launch(group_id, [Fraction(self.seq + place) for place in range(1, num + 1)])
            self.seq += num

    def launch(self, group_id: str, places: list[Fraction]) -> None:
        group = self.groups[group_id]
        for place in places:
            rollout = ModelRollout(make_rollout_id(group_id, len(group.rollouts)), group, place)
            self.rollouts[rollout.rollout_id] = rollout
            group.rollouts.append(rollout)

    def claim(self, num: int, capabilities: set[str], run: str) -> list[ModelRollout]:
        taken: list[ModelRollout] = []
        while len(taken) < num and (waiting := [one for one in self.waiting(capabilities, run) if one not in taken]):
            by_run = {one.task.run: one for one in sorted(waiting, key=_order_in_run, reverse=True)}
            chosen = min(by_run.values(), key=self._order)
            self._take_turn(chosen.task.run)
            taken.append(chosen)
            chosen.move("leased")
            chosen.attempts += chosen.checkpoint is None
            chosen.token = "?"
        return taken

    def waiting(self, capabilities: set[str], run: str) -> list[ModelRollout]:
        return [
            one
            for one in self.rollouts.values()
            if one.status in ("queued", "paused")
            and not one.delayed
            and one.task.run not in self.paused_runs
            and run in ("", one.task.run)
            and set(one.task.needs) <= capabilities
            and (one.task.from_policy is None or self.newest_policy.get(one.task.run, -1) >= one.task.from_policy)
            and self.num_leased(one.task.run) < self.quotas.get(one.task.run, 10**9)
        ]

    def num_leased(self, run: str) -> int:
        return sum(one.token is not None and one.task.run == run for one in self.rollouts.values())

    def _order(self, rollout: ModelRollout) -> tuple[int, Fraction, Fraction]:
        return (-rollout.task.priority, self._turn(rollout.task.run), rollout.seq)

    def _turn(self, run: str) -> Fraction:
        return max(self.turns.get(run, Fraction(0)), self.now_served)

    def _take_turn(self, run: str) -> None:
        self.now_served = self._turn(run)
        self.turns[run] = self.now_served + Fraction(1, self.weights[run] or 1)

    def settle(self, lease: Lease, ending: LeaseEnding, *, usable: bool = True) -> bool:
        rollout = self.rollouts[lease.rollout_id]
        if rollout.token != lease.token:
            return rollout.report == (lease.token, ending)
        rollout.report = (lease.token, ending)
        rollout.token = None
        if ending in ("completed", "truncated"):
            self._accept(rollout, ending, lease.attempt, usable=usable)
        elif ending == "pause" and rollout.checkpoint and "paused" in MOVES[rollout.status]:
            rollout.move("paused")
        else:
            self._fail(rollout, ending)
        return True

    def _accept(self, rollout: ModelRollout, ending: RolloutStatus, attempt: int, *, usable: bool) -> None:
        group = rollout.group
        rollout.accepted = attempt
        group.usable += usable
        self.finish(rollout, ending)
        if usable and group.usable >= group.task.group_size:
            for other in group.rollouts:
                self.cancel(other)

    def _fail(self, rollout: ModelRollout, ending: LeaseEnding) -> None:
        counts = ending in ("retry", "dead")
        if counts:
            rollout.checkpoint = None
        self.hand_on(rollout, counts=counts, limit=1 if ending == "dead" else MAX_ATTEMPTS)
        rollout.delayed = ending == "retry" and rollout.status == "queued"

    def hand_on(self, rollout: ModelRollout, *, counts: bool, limit: int = MAX_ATTEMPTS) -> None:
        rollout.token = None
        rollout.failures += counts
        if rollout.failures >= limit:
            rollout.checkpoint = None
            self.finish(rollout, "dead")
        else:
            rollout.move("queued")

    def cancel_group(self, group_id: str) -> int:
        group = self.groups[group_id]
        if group.closed_with is None:
            group.is_cancelled = True
        return sum(self.cancel(rollout) for rollout in group.rollouts)

    def cancel(self, rollout: ModelRollout) -> int:
        if rollout.is_over:
            return 0
        rollout.token = None
        rollout.delayed = False
        self.finish(rollout, "cancelled")
        return 1

    def finish(self, rollout: ModelRollout, status: RolloutStatus) -> None:
        rollout.move(status)
        group = rollout.group
        num_open = sum(not one.is_over for one in group.rollouts)
        missing = group.task.group_size - group.usable - num_open
        if group.task.partial == "refill" and not group.is_cancelled and missing > 0 and group.refills < MAX_REFILLS:
            group.refills += 1
            members = range(len(group.rollouts), len(group.rollouts) + missing)
            places = [group.rollouts[0].seq + Fraction(member, 8192) for member in members]
            self.launch(rollout.rollout_id.rpartition(".")[0], places)
        if all(one.is_over for one in group.rollouts):
            is_dropped = group.task.partial == "drop" and group.usable < group.task.group_size
            members = [one for one in group.rollouts if one.accepted is not None]
            group.closed_with = [] if is_dropped else [make_trajectory_id(m.rollout_id, m.accepted) for m in members]

    def retry_dead(self, rollout: ModelRollout) -> str:
        if rollout.status != "dead":
            return "unknown"
        if rollout.group.closed_with is not None or rollout.group.is_cancelled:
            return "closed"
        rollout.move("queued")
        rollout.failures = 0
        return ""


def holds(rollout: ModelRollout, lease: Lease) -> bool:
    assert (rollout.token is not None) == (rollout.status in HELD)
    return rollout.token == lease.token


def _order_in_run(rollout: ModelRollout) -> tuple[int, int, int]:
    return (-rollout.task.priority, rollout.task.from_policy or 0, rollout.seq)
