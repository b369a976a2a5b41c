"""A planted history: a scorer that was wrong while 20 policy versions learned, and all that could hide it."""

import random

from agent_layer.schema.codec import LogRecord
from agent_layer.schema.record import Advantages, Logprobs
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.task import Task
from agent_layer.schema.training import CheckpointRef, PolicyVersion, TrainedBatch, TrainedRollout, TrainedTokens
from agent_layer.store import Store

from .builders import call, closed_group, sampled
from .stored import write_segment

__all__ = ["BAD", "GOOD", "SCORER", "WRONG_STEPS", "branch", "plant_history"]

SCORER, GOOD, BAD = "judges:score", "0c0ffee0", "badc0de0"
WRONG_STEPS = range(11, 31)
"""Updates whose rollouts the bad version judged."""
GROUP_SIZE = 4


def plant_history(
    store: Store, run: str = "r", *, num_steps: int = 40, groups: int = 3, seed: int = 0, scorer: str = SCORER
) -> None:
    """Write a run whose rollouts of some steps were judged by a bad version of its scorer.

    Some wrong judgements were superseded before the update, others after it; people and other scorers judged, too; a
    killed trainer did some steps twice; some updates were recorded by a trainer that kept tokens with the trajectories
    alone; some rollouts were never trained.
    """
    rng = random.Random(seed)
    write_segment(store, PolicyVersion(run=run, number=0, location="base", created_at=0.0))
    for step in range(1, num_steps + 1):
        records: list[LogRecord] = []
        rollouts: list[TrainedRollout] = []
        is_old = rng.random() < 0.3
        columns: list[TrainedTokens] = []
        for group in range(groups):
            group_id = f"{run}s{step}g{group}"
            members = [f"{group_id}.{member}-0" for member in range(GROUP_SIZE)]
            records.append(closed_group(group_id, *members, run=run, task_id=f"t{group}"))
            for member in members:
                version = BAD if step in WRONG_STEPS and rng.random() < 0.7 else GOOD
                made, reward_ids = _judge(rng, {"trajectory_id": member, "run": run}, group_id, step, scorer, version)
                records += made
                size = rng.choice([0, 3, 5, 8])
                if rng.random() < 0.1:
                    continue  # never trained
                rollouts.append(
                    TrainedRollout(
                        trajectory_id=member,
                        group_id=group_id,
                        reward=1.0,
                        reward_ids=reward_ids,
                        samples_hash="s",
                        num_tokens=None if is_old else size,
                    )
                )
                if size:
                    columns.append(
                        TrainedTokens(
                            trajectory_id=member,
                            run=run,
                            batch_id=f"{run}/{step}",
                            step=step,
                            policy_version=step - 1,
                            at=100.0 * step + 60,
                            calls=[(f"{member}/a", 0, size)],
                            logprobs=Logprobs([0.0] * size),
                            advantages=Advantages([0.0] * size),
                            mask=b"\1" * size,
                        )
                    )
        total = None if is_old else sum(one.num_tokens or 0 for one in rollouts)
        batch = TrainedBatch(
            run=run,
            batch_id=f"{run}/{step}",
            step=step,
            policy_version=step - 1,
            trained_at=100.0 * step + 50,
            rollouts=rollouts,
            num_samples=len(rollouts),
            num_tokens=total,
            batch_hash="h",
        )
        if rng.random() < 0.2:  # an earlier life of the trainer had trained fewer of them
            lost = {"batch_id": f"{run}/{step}/lost", "trained_at": 100.0 * step + 40, "rollouts": rollouts[:1]}
            records.append(TrainedBatch(**{**{name: getattr(batch, name) for name in batch.__struct_fields__}, **lost}))
        version = PolicyVersion(run=run, number=step, location="w", created_at=100.0 * step, training_step=step)
        write_segment(store, *records, *columns, batch, version)


def branch(store: Store, run: str, parent: str, step: int) -> None:
    """Write a run that began with a checkpoint of another and trained nothing yet."""
    origin = CheckpointRef(run=parent, step=step)
    write_segment(store, PolicyVersion(run=run, number=0, location="base", created_at=0.0, parent=origin))


def _judge(
    rng: random.Random, own: dict[str, str], group_id: str, step: int, scorer: str, version: str
) -> tuple[list[LogRecord], list[str]]:
    """Return the records of an attempt, and its judgements at the time of its update."""
    member, run, at = own["trajectory_id"], own["run"], 100.0 * step
    task = f"t{group_id[-1]}"
    first = Reward(**own, reward_id=f"{member}/1", at=at + 10, score=1.0, scorer=scorer, verifier_hash=version)
    rewards, current = [first], [first.reward_id]
    chance = rng.random()
    if chance < 0.2:  # judged again, before the update or after it
        is_before = chance < 0.1
        later = {"reward_id": f"{member}/2", "at": at + (20 if is_before else 70), "supersedes": first.reward_id}
        rewards.append(Reward(**own, **later, score=0.0, scorer=scorer, verifier_hash=GOOD))
        current = [f"{member}/2"] if is_before else current
    if rng.random() < 0.2:
        other = {"reward_id": f"{member}/3", "name": "style", "scorer": "other:score", "verifier_hash": BAD}
        rewards.append(Reward(**own, **other, at=at + 11, score=0.5))
        current = [*current, f"{member}/3"]
    rollout = {"rollout_id": member[:-2], "group_id": group_id}
    started = {"task_id": task, "started_at": at, "attempt": 0, "task": Task(id=task, run=run, input=task)}
    records = [
        AttemptStarted(**own, **rollout, **started),
        *call(member, "a", sampled(1, 2, 3), at=at + 1, run=run, engine="http://e1:1" if step % 2 else "http://e2:1"),
        *rewards,
        Outcome(**own, status="completed", ended_at=at + 12, num_calls=1),
        Accepted(**own, **rollout, accepted_at=at + 13),
    ]
    return records, current
