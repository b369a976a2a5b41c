"""This file holds the tasks of the demo: one for each number that can be hidden."""

from agent_layer.schema.task import RewardSpec, Task
from examples.guess_number.game import HIGHEST, REWARDS

__all__ = ["make_tasks"]


def make_tasks(run: str, group_size: int) -> list[Task]:
    """Make one task per hidden number, judged by the agent's own report."""
    return [
        Task(
            id=f"guess-{hidden}",
            run=run,
            task_type="guess_number",
            input={"hidden": hidden},
            scorer="agent",
            rewards={name: RewardSpec(weight=weight) for name, weight in REWARDS.items()},
            group_size=group_size,
        )
        for hidden in range(1, HIGHEST + 1)
    ]
