"""This file holds trajectories: all that one attempt left behind, put together from its records."""

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from agent_layer.errors import CorruptRecordError
from agent_layer.schema.assembly import assemble_steps
from agent_layer.schema.observation import Observation
from agent_layer.schema.record import Record, TokenIds, current_version
from agent_layer.schema.reward import Reward, rollout_reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome, Resumed
from agent_layer.schema.step import Content, ContentRef, Step, StepPart
from agent_layer.schema.task import Task

__all__ = ["Trajectory", "TrajectoryRecord", "assemble_trajectory", "restore_prompts"]

TrajectoryRecord: TypeAlias = (
    AttemptStarted | StepPart | Content | ContentRef | Observation | Reward | Outcome | Accepted | Resumed
)
StepKey: TypeAlias = tuple[str, int]
"""Call and choice."""

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
    resumes: list[Resumed] = []
    """How often another holder went on with it, in order of time; steps that were abandoned then are ``aborted``."""
    contents: dict[str, bytes] = {}
    """JSON text by content hash, as far as it lies beside the steps or was fetched."""
    blobs: dict[str, str] = {}
    """Names of the blobs that hold the other contents, by content hash."""

    @property
    def task(self) -> Task | None:
        """The task, where its opener recorded it."""
        return self.started.task if self.started else None

    @property
    def reward(self) -> float | None:
        """Reward of the rollout; None is "no judgement", not zero."""
        return rollout_reward(self.started.rewards if self.started else {}, self.rewards, self.outcome)


def assemble_trajectory(trajectory_id: str, records: Iterable[TrajectoryRecord]) -> Trajectory:
    """Put a trajectory together. The result depends on the set of records only, not on order or repetition.

    While it has no outcome, records may be on their way: steps whose prefix parent has not arrived are left out.

    Raises: CorruptRecordError: a prefix parent has another length than was recorded, or is missing though all ended.
    """
    found = list(records)
    parts = {(part.call_id, part.source, part.phase, part.at): part for part in _only(StepPart, found)}
    observations = {record.observation_id: record for record in _only(Observation, found)}
    rewards = {record.reward_id: record for record in _only(Reward, found)}
    resumes = {(record.at, record.worker or "", *record.abandoned): record for record in _only(Resumed, found)}
    abandoned = {call_id for record in resumes.values() for call_id in record.abandoned}
    outcome = min(_only(Outcome, found), key=lambda record: record.ended_at, default=None)
    return Trajectory(
        trajectory_id=trajectory_id,
        started=min(_only(AttemptStarted, found), key=lambda one: (one.task is None, one.started_at), default=None),
        steps=restore_prompts(assemble_steps(parts.values(), abandoned), has_ended=outcome is not None),
        observations=sorted(observations.values(), key=lambda record: (record.at, record.observation_id)),
        rewards=sorted(rewards.values(), key=lambda record: (record.at, record.reward_id)),
        outcome=outcome,
        accepted=min(_only(Accepted, found), key=lambda record: record.accepted_at, default=None),
        resumes=[resumes[place] for place in sorted(resumes)],
        contents={record.hash: record.body for record in _only(Content, found)},
        blobs={record.hash: record.blob for record in sorted(_only(ContentRef, found), key=lambda one: one.blob)},
    )


def _only(kind: type[R], records: Iterable[object]) -> list[R]:
    return [record for record in records if isinstance(record, kind)]


def restore_prompts(steps: Sequence[Step], *, has_ended: bool = True) -> list[Step]:
    """Fill ``prompt_token_ids`` of each step by walking the deltas from its root.

    Args:
        steps: of one attempt.
        has_ended: all of it is there; else steps whose prefix parent has not arrived are left out for now.

    Raises: CorruptRecordError: a prefix parent is missing, or has another length than was recorded.
    """
    following: defaultdict[StepKey | None, list[Step]] = defaultdict(list)
    for step in steps:
        following[_parent_of(step)].append(step)
    restored: dict[StepKey | None, Step] = {}
    reached = list(following[None])
    for step in reached:  # grows as it goes: whoever continues a step comes after it
        restored[_key_of(step)] = _restore(step, restored.get(_parent_of(step)))
        if step.prompt is not None:
            reached += following[_key_of(step)]
    if has_ended:
        _refuse_orphans(steps, restored)
    kept = [restored[_key_of(step)] for step in steps if _key_of(step) in restored]
    return [msgspec.structs.replace(step, index=index) for index, step in enumerate(kept)]


def _restore(step: Step, parent: Step | None) -> Step:
    if step.prompt is None:
        return step
    prompt = TokenIds()
    if parent is not None:
        prompt.extend(parent.prompt_token_ids or ())
        prompt.extend(parent.action.response_token_ids or ())
    if len(prompt) != step.prompt.prefix_length:
        raise CorruptRecordError(
            f"step {step.call_id} of trajectory {step.trajectory_id}: its prefix should have"
            f" {step.prompt.prefix_length} tokens, but its parent gives {len(prompt)};"
            " run 'agent-layer store check'"
        )
    prompt.extend(step.prompt.delta)
    return msgspec.structs.replace(step, prompt_token_ids=prompt)


def _refuse_orphans(steps: Iterable[Step], restored: Container[StepKey | None]) -> None:
    for step in steps:
        if _key_of(step) not in restored and step.prompt is not None:
            raise CorruptRecordError(
                f"step {step.call_id} of trajectory {step.trajectory_id}: the step {step.prompt.parent_call}, whose"
                " tokens it continues, is not stored; run 'agent-layer store check'"
            )


def _key_of(step: Step) -> StepKey:
    return step.call_id, step.choice


def _parent_of(step: Step) -> StepKey | None:
    if step.prompt is None or step.prompt.parent_call is None:
        return None
    return step.prompt.parent_call, step.prompt.parent_choice
