"""Records of one long trajectory: each call continues the tokens of the one before."""

from agent_layer.schema.codec import LogRecord
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.rollout import AttemptStarted, Outcome
from agent_layer.schema.step import Action, PromptDelta, StepPart

__all__ = ["LONG", "NUM_STEPS", "NUM_TOKENS", "long_records"]

LONG = "long.0-0"
NUM_STEPS, NUM_GIVEN, NUM_SAMPLED = 200, 320, 320
NUM_TOKENS = NUM_STEPS * (NUM_GIVEN + NUM_SAMPLED)
_RUN = {"trajectory_id": LONG, "run": "r"}


def long_records() -> list[LogRecord]:
    """Return the records of the attempt, oldest first."""
    records: list[LogRecord] = [AttemptStarted(**_RUN, rollout_id="long.0", task_id="t", attempt=0, started_at=1.0)]
    given = TokenIds([number % 1000 for number in range(NUM_GIVEN)])
    reply = Action(
        message={"role": "assistant", "content": "word " * NUM_SAMPLED},
        response_token_ids=given,
        logprobs=Logprobs([-0.01 * (number % 300) for number in range(NUM_SAMPLED)]),
        policy_versions=[(3, NUM_SAMPLED)],
        finish_reason="stop",
    )
    for step in range(NUM_STEPS):
        prompt = PromptDelta(delta=given)
        if step:
            prompt = PromptDelta(
                delta=given,
                parent_call=f"{LONG}/{step - 1}",
                prefix_length=step * (NUM_GIVEN + NUM_SAMPLED),
                prefix_hash="not read",
            )
        common = {**_RUN, "call_id": f"{LONG}/{step}", "source": "gateway", "tokenizer_hash": "v"}
        common["capture_level"] = "tokens"
        records.append(StepPart(**common, phase="start", at=2.0 + step, prompt=prompt))
        records.append(StepPart(**common, phase="end", at=2.5 + step, status="ok", actions=[reply]))
    records.append(Outcome(**_RUN, status="completed", ended_at=3.0 + NUM_STEPS, num_calls=NUM_STEPS))
    return records
