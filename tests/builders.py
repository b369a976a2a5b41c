"""Records as the gateway, tracer and worker write them, for tests that need an attempt but not its making."""

from agent_layer.schema.ids import content_hash
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Action, Content, Observation, PromptDelta, StepPart, StepState, Usage
from agent_layer.schema.wire.trace import TraceContext
from tracer import Rollout
from tracer.testing import Captured

TRACE = "0af7651916cd43dd8448eb211c80319c"
OUTER = "b7ad6b7169203331"
MESSAGES = (b'{"role":"system","content":"be brief"}', b'{"role":"user","content":"what"}')
TOOLS = b'[{"type":"function","function":{"name":"look"}}]'
CALLS = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}]


def attempt_with_everything(tid, at=100.0, score=1.0):
    """An attempt with two calls of two agents, one of two choices, a tool, rewards of every scope, and an end."""
    own = {"trajectory_id": tid, "run": "r"}
    hashes = [content_hash(body) for body in MESSAGES]
    first = {**own, "call_id": f"{tid}.a", "source": "gateway", "agent": "solver"}
    second = {**own, "call_id": f"{tid}.b", "source": "gateway", "agent": "critic"}
    asked = Action(
        message={"role": "assistant", "content": None, "tool_calls": CALLS},
        response_token_ids=TokenIds([3, 4]),
        logprobs=Logprobs([-0.5, -0.25]),
        policy_versions=[(2, 2)],
        finish_reason="tool_calls",
    )
    said = [Action(message={"role": "assistant", "content": text}, finish_reason="stop") for text in ("yes", "no")]
    return [
        AttemptStarted(
            **own,
            rollout_id=tid[:-2],
            attempt=0,
            task_id="t",
            started_at=at,
            agent="solver",
            trace=TraceContext(trace_id=TRACE, span_id=OUTER, state="vendor=1"),
        ),
        *(Content(trajectory_id=tid, hash=content_hash(body), body=body) for body in (*MESSAGES, TOOLS)),
        StepPart(
            **first,
            phase="start",
            at=at + 1,
            span_id="00f067aa0ba902b7",
            state=StepState(messages=hashes, tools=content_hash(TOOLS)),
            sampling_applied={"temperature": 0.7, "stop": "END", "seed": 5, "response_format": {"type": "text"}},
            model="policy",
            engine="http://127.0.0.1:8000",
        ),
        StepPart(
            **first,
            phase="end",
            at=at + 2,
            actions=[asked],
            prompt=PromptDelta(delta=TokenIds([1, 2])),
            usage=Usage(prompt_tokens=2, response_tokens=2),
            capture_level="tokens",
            status="ok",
        ),
        Observation(
            **own,
            observation_id=f"{tid}.o",
            name="look",
            at=at + 3,
            call_id=f"{tid}.a",
            agent="solver",
            arguments={"a": 1},
            output="found it",
            status="ok",
            duration_seconds=0.5,
        ),
        StepPart(**second, phase="start", at=at + 4, model="policy", role="aux", state=StepState(messages=hashes)),
        StepPart(**second, phase="end", at=at + 5, actions=said, status="ok", capture_level="text"),
        Reward(**own, reward_id=f"{tid}.0", at=at + 6, name="found", score=score, source="rule"),
        Reward(**own, reward_id=f"{tid}.1", at=at + 6, name="format", score=0.25, scope="step", step=0),
        Outcome(**own, status="completed", ended_at=at + 7),
        Accepted(**own, rollout_id=tid[:-2], accepted_at=at + 8),
    ]


def rollout_with(keeper, kept=None):
    """A rollout in memory whose states go to ``keeper``, and which begins with the state ``kept``."""
    own = {"trajectory_id": "t-0", "rollout_id": "t", "attempt": 0, "run": "r"}
    return Rollout(**own, sink=Captured(), keeper=keeper, kept=kept)
