"""Whole trajectories as gateway, worker and dispatcher record them: the workload of the store's benchmark.

A prompt is a delta against the turn before, and each message is stored once. The same facts give the same records.
"""

from collections.abc import Iterator, Sequence

import msgspec
from store_facts import ROLLOUTS_PER_TASK, Facts
from store_turns import TOOLS, Turn, make_turns, task_text

from agent_layer.schema.codec import LogRecord
from agent_layer.schema.ids import content_hash
from agent_layer.schema.record import JsonObject, Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome, PhaseTimes
from agent_layer.schema.step import Action, Content, Observation, PromptDelta, StepPart, StepState, Usage
from agent_layer.schema.task import RewardSpec, Task

__all__ = ["make_appends", "make_call_id", "make_ending", "make_opening"]

_SAMPLING: JsonObject = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 1024}
_TEMPLATE, _TOKENIZER = content_hash(b"template"), content_hash(b"tokenizer")


def make_appends(facts: Facts) -> list[list[LogRecord]]:
    """Return the records of a trajectory, one list for each append."""
    calls = [make_call_id(facts, step) for step in range(facts.num_steps)]
    steps = [append for step, turn in enumerate(make_turns(facts)) for append in _step(facts, calls, step, turn)]
    task = Task(
        id=facts.task_id,
        run=facts.run,
        split=facts.split,
        task_type=facts.task_type,
        input=task_text(facts).words,
        grading={"answer": facts.number},
        scorer="scorers:grade",
        rewards=_declared(facts),
        group_size=ROLLOUTS_PER_TASK,
        labels=facts.labels,
    )
    return [[msgspec.structs.replace(make_opening(facts), task=task)], *steps, make_ending(facts)]


def make_opening(facts: Facts) -> AttemptStarted:
    """The first record, without the task."""
    return AttemptStarted(
        trajectory_id=facts.trajectory_id,
        rollout_id=facts.rollout_id,
        attempt=0,
        run=facts.run,
        task_id=facts.task_id,
        started_at=facts.started_at,
        task_type=facts.task_type,
        split=facts.split,
        group_id=facts.group_id,
        worker=f"worker-{facts.number % 16}",
        rewards=_declared(facts),
        labels=facts.labels,
    )


def make_ending(facts: Facts) -> list[LogRecord]:
    """Rewards, outcome and acceptance."""
    whose = {"trajectory_id": facts.trajectory_id, "run": facts.run}
    rewards = [
        Reward(
            **whose,
            reward_id=f"{facts.trajectory_id}-{name}",
            at=facts.ended_at,
            name=name,
            score=score,
            source="verifier",
        )
        for name, score in facts.rewards.items()
    ]
    outcome = Outcome(
        **whose,
        status=facts.status,
        cause=facts.cause,
        ended_at=facts.ended_at,
        num_calls=facts.num_steps,
        times=PhaseTimes(queued_seconds=0.2, prepare_seconds=0.1, run_seconds=40.0, score_seconds=0.3),
    )
    accepted = Accepted(**whose, rollout_id=facts.rollout_id, accepted_at=facts.ended_at + 0.1, group_id=facts.group_id)
    return [*rewards, outcome, *([accepted] if facts.is_accepted else [])]


def make_call_id(facts: Facts, step: int) -> str:
    """26 characters, as ids have."""
    return f"{content_hash(facts.trajectory_id.encode())[:22]}{step:04d}"


def _step(facts: Facts, calls: Sequence[str], step: int, turn: Turn) -> Iterator[list[LogRecord]]:
    about = {
        "trajectory_id": facts.trajectory_id,
        "run": facts.run,
        "call_id": calls[step],
    }
    part = {**about, "source": "gateway", "conversation": calls[0], "parent_call": calls[step - 1] if step else None}
    at = facts.started_at + 5.0 * step
    yield [*_new_contents(facts, turn), StepPart(**part, phase="start", at=at, **_requested(facts, turn))]
    yield [StepPart(**part, phase="end", at=at + 3.0, **_answered(facts, calls, step, turn))]
    yield [
        Observation(
            **about,
            observation_id=f"{calls[step]}-0",
            name=turn.tool,
            at=at + 4.0,
            arguments={"input": turn.message.words[:60]},
            output=turn.seen.words,
            status="ok",
            duration_seconds=0.8,
        )
    ]


def _new_contents(facts: Facts, turn: Turn) -> list[Content]:
    values = [*turn.messages[-turn.num_new :], *([] if turn.ids_before else [TOOLS])]
    bodies = [msgspec.json.encode(value) for value in values]
    return [Content(trajectory_id=facts.trajectory_id, hash=content_hash(body), body=body) for body in bodies]


def _requested(facts: Facts, turn: Turn) -> dict[str, object]:
    return {
        "state": StepState(messages=[_hash_value(one) for one in turn.messages], tools=_hash_value(TOOLS)),
        "agent": facts.agents[turn.num_new % len(facts.agents)],
        "role": "policy",
        "sampling_asked": _SAMPLING,
        "sampling_applied": _SAMPLING,
        "temperature": 1.0,
        "logprobs_mode": "processed",
        "model": "policy",
        "engine": "http://10.0.0.7:8000",
        "template_hash": _TEMPLATE,
        "tokenizer_hash": _TOKENIZER,
    }


def _answered(facts: Facts, calls: Sequence[str], step: int, turn: Turn) -> dict[str, object]:
    ids, num_before = turn.message.ids, len(turn.ids_before)
    action = Action(
        message=turn.answer,
        response_token_ids=TokenIds(ids),
        logprobs=Logprobs(turn.message.logprobs),
        finish_reason="tool_calls",
        policy_versions=[(facts.newest_version if step else facts.oldest_version, len(ids))],
    )
    prompt = PromptDelta(
        delta=TokenIds(turn.new_ids),
        parent_call=calls[step - 1] if step else None,
        prefix_length=num_before,
        prefix_hash=content_hash(TokenIds(turn.ids_before).tobytes()) if step else None,
    )
    return {
        "prompt": prompt,
        "actions": [action],
        "capture_level": "tokens",
        "status": "ok",
        "usage": Usage(prompt_tokens=num_before + len(turn.new_ids), response_tokens=len(ids)),
    }


def _declared(facts: Facts) -> dict[str, RewardSpec]:
    return {name: RewardSpec(weight=0.1 if name == "form" else 1.0) for name in facts.rewards}


def _hash_value(value: object) -> str:
    return content_hash(msgspec.json.encode(value))
