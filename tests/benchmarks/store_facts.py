"""The simulated world of the store's benchmark: the facts of each trajectory, by its number.

The same number always gives the same facts, and they do not depend on how many others there are. Eight runs train on
ten task types; each task is tried eight times, a trajectory starts every 2.6 s, and a policy version lasts for 200 of
them: a million are 30 days, 125,000 tasks and 5,000 versions.
"""

from random import Random

import msgspec

from agent_layer.schema.ids import content_hash
from agent_layer.schema.rollout import Cause, RolloutStatus
from agent_layer.schema.task import Split

__all__ = [
    "BEGAN_AT",
    "GRADED_TYPES",
    "NUM_CUSTOMERS",
    "NUM_RUNS",
    "PER_VERSION",
    "ROLLOUTS_PER_TASK",
    "SECONDS_BETWEEN",
    "TYPES",
    "Facts",
    "make_facts",
    "make_task_id",
]

BEGAN_AT = 1_790_000_000.0
SECONDS_BETWEEN = 2.6
NUM_RUNS = 8
ROLLOUTS_PER_TASK = 8
PER_VERSION = 200
NUM_CUSTOMERS = 200
TYPES = {
    "math": 35, "code": 25, "search": 12, "sql": 8, "web": 6, "writing": 5, "chat": 4, "games": 3, "forms": 1.5,
    "audio": 0.5,
}  # fmt: skip
"""Task type → percent of the tasks."""
GRADED_TYPES = frozenset({"search", "writing", "chat", "games"})
"""Their reward is any number from 0 to 1; of the others it is 0 or 1."""

_TYPE_NAMES, _TYPE_WEIGHTS = list(TYPES), list(TYPES.values())
_ENDINGS: list[tuple[RolloutStatus, Cause | None]] = [
    ("completed", None), ("truncated", "policy"), ("failed", "infra"), ("failed", "policy"), ("cancelled", "user"),
]  # fmt: skip
_ENDING_WEIGHTS = [84, 8, 5, 2, 1]
_TIERS = ["bronze", "silver", "gold"]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is true of one trajectory."""

    number: int
    run: str
    task_id: str
    task_type: str
    split: Split
    group_id: str
    rollout_id: str
    started_at: float
    num_steps: int
    status: RolloutStatus
    cause: Cause | None
    rewards: dict[str, float]
    """By name."""
    oldest_version: int
    newest_version: int
    agents: list[str]
    tools: list[str]
    labels: dict[str, str]

    @property
    def trajectory_id(self) -> str:
        """All are first attempts."""
        return f"{self.rollout_id}-0"

    @property
    def ended_at(self) -> float:
        """Five seconds a step."""
        return self.started_at + 5.0 * self.num_steps

    @property
    def is_accepted(self) -> bool:
        """Whatever came to an end counts."""
        return self.status in ("completed", "truncated")


def make_task_id(number: int) -> str:
    """The task that the trajectory of this number tries."""
    return f"task-{number // ROLLOUTS_PER_TASK:06d}"


def make_facts(number: int, num_steps: int | None = None) -> Facts:
    """Return the facts of one trajectory; None: 2 to 14 steps, 8 in the mean."""
    task, random = number // ROLLOUTS_PER_TASK, Random(number)
    of_task = Random(-1 - task)
    task_type = of_task.choices(_TYPE_NAMES, _TYPE_WEIGHTS)[0]
    version = number // PER_VERSION
    run, task_id = f"run-{task % NUM_RUNS}", make_task_id(number)
    group_id = f"{task_id}.{content_hash(task_id.encode())[:12]}"
    status, cause = random.choices(_ENDINGS, _ENDING_WEIGHTS)[0]
    return Facts(
        number=number,
        run=run,
        task_id=task_id,
        task_type=task_type,
        split="eval" if of_task.random() < 0.05 else "train",
        group_id=group_id,
        rollout_id=f"{group_id}.{number % ROLLOUTS_PER_TASK}",
        started_at=BEGAN_AT + SECONDS_BETWEEN * number + random.uniform(-60, 60),
        num_steps=num_steps or random.randint(2, 14),
        status=status,
        cause=cause,
        rewards=_count_rewards(task_type, of_task.random(), random) if cause in (None, "policy") else {},
        oldest_version=max(0, version - random.choice((0, 0, 1, 2))),
        newest_version=version,
        agents=["solver"] + ["critic"] * (random.random() < 0.2) + ["planner"] * (random.random() < 0.01),
        tools=["python"] + ["search"] * (random.random() < 0.3) + ["calculator"] * (random.random() < 0.001),
        labels={"customer": f"c{of_task.randrange(NUM_CUSTOMERS)}", "tier": of_task.choice(_TIERS)},
    )


def _count_rewards(task_type: str, ease: float, random: Random) -> dict[str, float]:
    if task_type in GRADED_TYPES:
        return {"quality": random.betavariate(1 + 3 * ease, 2), "form": float(random.random() < 0.9)}
    return {"correct": float(random.random() < ease)}
