"""Answers about one trajectory: its steps without their tokens, one step with its whole state."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import cast

import msgspec

from agent_layer.schema import (
    JsonObject,
    Observation,
    Step,
    Trajectory,
    current_rewards,
    find_alarms,
    newest_labels,
    readable_message,
    refer_to,
    resolve,
)
from agent_layer.store import pick_step, step_rewards
from agent_layer.view.answers.details import (
    LabelLine,
    ObservationLine,
    OutcomeLine,
    RewardLine,
    Siblings,
    StepAnswer,
    StepLine,
    TrajectoryAnswer,
    TrajectoryUpdate,
)
from agent_layer.view.answers.lists import ExclusionLine
from agent_layer.view.reads.images import show_value
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.source import ReadContext
from agent_layer.view.reads.tokens.tokens import Places, break_cause
from agent_layer.view.reads.updates import mean_advantage, read_group


def show_trajectory(source: ReadContext, params: RequestParams) -> TrajectoryAnswer:
    """Return one trajectory. Raises: NotFoundError: there is none of this id."""
    row = source.store.row(params.path["trajectory"])
    whole = source.trajectory(row.trajectory_id)
    contents = source.store.contents(whole)
    calls = {step.call_id for step in whole.steps}
    group = read_group(source, row.group_id) if row.group_id else None
    members = group.trajectory_ids if group else []
    standing = {reward.reward_id for reward in current_rewards(whole.rewards)}
    newest = newest_labels(whole.given_labels).values()
    return TrajectoryAnswer(
        row=row,
        is_cooled=source.is_cooled,
        task=_task(whole, is_operator=params.is_operator),
        reward=whole.reward,
        steps=step_lines(whole, contents, whole.steps),
        observations=[_observation(one, contents) for one in whole.observations if one.call_id not in calls],
        rewards=[RewardLine.from_record(one, is_current=one.reward_id in standing) for one in whole.rewards],
        given_labels=[LabelLine.from_record(one, is_current=one in newest) for one in whole.given_labels],
        outcome=whole.outcome and OutcomeLine.from_record(whole.outcome),
        resumes=whole.resumes,
        alarms=find_alarms(whole),
        exclusions=[ExclusionLine.from_record(one) for one in whole.exclusions],
        updates=[
            TrajectoryUpdate.from_record(
                one,
                num_tokens=len(one.mask),
                num_trained=sum(one.mask),
                advantage_mean=mean_advantage(one),
            )
            for one in whole.trained
        ],
        siblings=Siblings(
            group_id=row.group_id,
            position=members.index(row.trajectory_id) if row.trajectory_id in members else None,
            trajectory_ids=members,
        ),
        num_given=sum(len(step.prompt.delta) for step in whole.steps if step.prompt),
        num_sampled=sum(len(step.action.response_token_ids or ()) for step in whole.steps),
    )


def show_step(source: ReadContext, params: RequestParams) -> StepAnswer:
    """Return one step with its whole state. Raises: NotFoundError: there is no such step."""
    whole = source.trajectory(params.path["trajectory"])
    contents = source.store.contents(whole)
    step = pick_step(whole, params.path_number("step"))
    state = step.state
    return StepAnswer(
        step=step_lines(whole, contents, [step])[0],
        messages=None if state.messages is None else [_expand(contents, name) for name in state.messages],
        tools=_expand(contents, state.tools),
        framework=_expand(contents, state.framework),
        environment=_expand(contents, state.environment),
        sampling_asked=step.sampling_asked,
    )


def _task(whole: Trajectory, *, is_operator: bool) -> JsonObject | None:
    if whole.task is None:
        return None
    fields = cast("JsonObject", msgspec.to_builtins(whole.task))
    return fields if is_operator else {name: value for name, value in fields.items() if name != "grading"}


def step_lines(whole: Trajectory, contents: Mapping[str, bytes], steps: Sequence[Step]) -> list[StepLine]:
    """Return some steps of a trajectory, in time that grows with their number and that of their messages."""
    places, rewards = Places(whole), step_rewards(whole.rewards)
    observed: defaultdict[str | None, list[Observation]] = defaultdict(list)
    for one in whole.observations:
        observed[one.call_id].append(one)
    return [
        _step_line(
            step,
            None if before is None else whole.steps[before],
            contents,
            rewards.get(step.index),
            observed[step.call_id] if step.choice == 0 else [],
        )
        for step in steps
        for before in [places.before(step)]
    ]


def _step_line(
    step: Step,
    before: Step | None,
    contents: Mapping[str, bytes],
    reward: float | None,
    observations: Sequence[Observation],
) -> StepLine:
    action, messages = step.action, step.state.messages
    return StepLine.from_record(
        step,
        agent_path=step.agent_path or ([step.agent] if step.agent else []),
        parent=before and before.index,
        break_cause=break_cause(step),
        finish_reason=action.finish_reason,
        sampling=step.sampling_asked if step.sampling_applied is None else step.sampling_applied,
        message=None if action.message is None else _message({}, action.message),
        new_messages=_new_messages(before, step, contents),
        num_messages=None if messages is None else len(messages),
        num_prompt_tokens=None if step.prompt_token_ids is None else len(step.prompt_token_ids),
        prefix_length=step.prompt.prefix_length if step.prompt else None,
        num_response_tokens=None if action.response_token_ids is None else len(action.response_token_ids),
        policy_versions=action.policy_versions,
        logprob_mean=fmean(action.logprobs) if action.logprobs else None,
        reward=reward,
        observations=[_observation(one, contents) for one in observations],
    )


def _new_messages(before: Step | None, step: Step, contents: Mapping[str, bytes]) -> Sequence[JsonObject]:
    """Return the messages of a prompt behind those that it shares with the step before, whose answer is left out."""
    messages = step.state.messages or []
    known = (before.state.messages or []) if before else []
    num_shared = next(
        (at for at, (one, other) in enumerate(zip(messages, known, strict=False)) if one != other),
        min(len(messages), len(known)),
    )
    new = [_message(contents, refer_to(name)) for name in messages[num_shared:]]
    answered = bool(known) and num_shared == len(known)
    if answered and new and new[0].get("role") == "assistant":
        return new[1:]
    return new


def _observation(one: Observation, contents: Mapping[str, bytes]) -> ObservationLine:
    return ObservationLine.from_record(one, output=show_value(contents, one.output))


def _expand(contents: Mapping[str, bytes], name: str | None) -> object:
    """Fill in what a hash refers to; one whose content is not stored stays a reference."""
    return None if name is None else resolve(contents, name)


def _message(contents: Mapping[str, bytes], value: object) -> JsonObject:
    return readable_message(show_value(contents, value))
