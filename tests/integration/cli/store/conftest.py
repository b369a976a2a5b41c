"""Fixtures of the store's commands: attempts with every kind of record, and the command."""

from itertools import chain

import pytest

from agent_layer.schema.ids import content_hash
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Action, Content, Observation, PromptDelta, StepPart, StepState
from agent_layer.schema.task import Task
from agent_layer.store import open_store

from ....stored import write_segment

MESSAGES = (b'{"role":"system","content":"be brief"}', b'{"role":"user","content":"6 times 7?"}')


def make_stored_attempt(tid, at=100.0, score=1.0, task="t", num_steps=2, run="r"):
    own = {"trajectory_id": tid, "run": run}
    reported = Task(id=task, run=run, task_type="math", input="6 times 7?", grading="42", labels={"level": "1"})
    hashes = [content_hash(body) for body in MESSAGES]
    yield AttemptStarted(
        **own,
        rollout_id=tid[:-2],
        attempt=0,
        task_id=task,
        task_type="math",
        started_at=at,
        task=reported,
        labels=reported.labels,
    )
    yield from (Content(trajectory_id=tid, hash=content_hash(body), body=body) for body in MESSAGES)
    for number in range(num_steps):
        part = {**own, "source": "gateway", "call_id": f"{tid}/{number}", "agent": "solver"}
        answer = Action(
            message={"role": "assistant", "content": "42"},
            response_token_ids=TokenIds([3, 4 + number]),
            logprobs=Logprobs([-0.5, -0.25]),
            policy_versions=[(2, 2)],
            finish_reason="stop",
        )
        start = {"prompt": PromptDelta(delta=TokenIds([1, 2])), "state": StepState(messages=hashes)}
        yield StepPart(**part, phase="start", at=at + number, **start, capture_level="tokens")
        yield StepPart(**part, phase="end", at=at + number + 0.5, actions=[answer], status="ok")
    yield Observation(**own, observation_id=f"{tid}.o", name="look", at=at + 5, call_id=f"{tid}/0", output={"a": 1})
    if score is not None:
        yield Reward(**own, reward_id=f"{tid}.r", at=at + 6, score=score)
    yield Outcome(**own, status="completed", ended_at=at + 7)
    yield Accepted(**own, rollout_id=tid[:-2], accepted_at=at + 8)


@pytest.fixture
def record(settings):
    """``record(*attempts)``: puts records into the store, each argument those of one attempt."""

    def record(*attempts):
        write_segment(open_store(settings), *chain.from_iterable(attempts))

    return record


@pytest.fixture
def make_attempt():
    """``make_attempt("x.0-0", …)`` gives the records of an attempt."""
    return make_stored_attempt
