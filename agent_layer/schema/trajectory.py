"""This file holds trajectories: all that one attempt left behind, put together from its records."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from agent_layer.errors import CorruptRecordError
from agent_layer.schema.assembly import assemble_steps
from agent_layer.schema.observation import Observation
from agent_layer.schema.record import Record, TokenIds, current_version
from agent_layer.schema.reward import Reward, rollout_reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Content, Step, StepPart
from agent_layer.schema.task import Task

__all__ = ["Trajectory", "TrajectoryRecord", "assemble_trajectory", "restore_prompts"]

TrajectoryRecord: TypeAlias = AttemptStarted | StepPart | Content | Observation | Reward | Outcome | Accepted


R = TypeVar("R", bound=Record)


class Trajectory(Record, frozen=True, kw_only=True, tag="trajectory"):
    """One attempt as a graph: ``prompt.parent_call`` of each step points at the step whose tokens it continues."""

    trajectory_id: str
    schema_version: int = msgspec.field(default_factory=current_version)
    started: AttemptStarted | None = None
    """None when whoever should have recorded the beginning died first."""
    steps: list[Step] = []
    observations: list[Observation] = []
    rewards: list[Reward] = []
    """All judgements, superseded ones included, in order of time."""
    outcome: Outcome | None = None
    accepted: Accepted | None = None
    contents: dict[str, bytes] = {}
    """JSON text by content hash."""

    @property
    def task(self) -> Task | None:
        """The task, where its opener recorded it."""
        return self.started.task if self.started else None

    @property
    def reward(self) -> float | None:
        """Reward of the rollout; None is "no judgement", not zero."""
        return rollout_reward(self.started.rewards if self.started else {}, self.rewards, self.outcome)


def assemble_trajectory(trajectory_id: str, records: Iterable[TrajectoryRecord]) -> Trajectory:
    """Put a trajectory together. The result depends on the set of records only, not on order or repetition."""
    found = list(records)
    parts = {(part.call_id, part.source, part.phase, part.at): part for part in _only(StepPart, found)}
    observations = {record.observation_id: record for record in _only(Observation, found)}
    rewards = {record.reward_id: record for record in _only(Reward, found)}
    return Trajectory(
        trajectory_id=trajectory_id,
        started=min(_only(AttemptStarted, found), key=lambda one: (one.task is None, one.started_at), default=None),
        steps=restore_prompts(assemble_steps(parts.values())),
        observations=sorted(observations.values(), key=lambda record: (record.at, record.observation_id)),
        rewards=sorted(rewards.values(), key=lambda record: (record.at, record.reward_id)),
        outcome=min(_only(Outcome, found), key=lambda record: record.ended_at, default=None),
        accepted=min(_only(Accepted, found), key=lambda record: record.accepted_at, default=None),
        contents={record.hash: record.body for record in _only(Content, found)},
    )


def _only(kind: type[R], records: Iterable[object]) -> list[R]:
    return [record for record in records if isinstance(record, kind)]


def restore_prompts(steps: Sequence[Step]) -> list[Step]:
    """Fill ``prompt_token_ids`` of each step by walking the deltas from its root.

    Raises: CorruptRecordError: a prefix parent is missing, or has another length than was recorded.
    """
    by_key = {(step.call_id, step.choice): step for step in steps}
    prompts: dict[tuple[str, int], TokenIds] = {}
    restored: list[Step] = []
    for step in steps:
        prompt = _prompt_of(step, by_key, prompts)
        restored.append(step if prompt is None else msgspec.structs.replace(step, prompt_token_ids=prompt))
    return restored


def _prompt_of(
    step: Step, by_key: dict[tuple[str, int], Step], prompts: dict[tuple[str, int], TokenIds]
) -> TokenIds | None:
    """Prompt ids of one step; parents that are not known yet are worked out first, without recursion."""
    path: list[Step] = []
    node: Step | None = step
    while node is not None and (node.call_id, node.choice) not in prompts:
        path.append(node)
        node = _parent_of(node, by_key)
    for link in reversed(path):
        if link.prompt is None:
            continue
        prefix = TokenIds()
        if (parent := _parent_of(link, by_key)) is not None:
            prefix = TokenIds(prompts[parent.call_id, parent.choice])
            prefix.extend(parent.action.response_token_ids or ())
        if len(prefix) != link.prompt.prefix_length:
            raise CorruptRecordError(
                f"step {link.call_id} of trajectory {link.trajectory_id}: its prefix should have"
                f" {link.prompt.prefix_length} tokens, but its parent gives {len(prefix)};"
                " run 'agent-layer store check'"
            )
        prefix.extend(link.prompt.delta)
        prompts[link.call_id, link.choice] = prefix
    return prompts.get((step.call_id, step.choice))


def _parent_of(step: Step, by_key: dict[tuple[str, int], Step]) -> Step | None:
    if step.prompt is None or step.prompt.parent_call is None:
        return None
    key = (step.prompt.parent_call, step.prompt.parent_choice)
    if key not in by_key:
        raise CorruptRecordError(
            f"step {step.call_id} of trajectory {step.trajectory_id}: the step {key[0]}, whose tokens it continues,"
            " is not stored; run 'agent-layer store check'"
        )
    return by_key[key]
