"""Records as gateway, tracer and worker write them, for tests that need an attempt but not its making."""

from collections.abc import Sequence

from agent_layer.schema.codec import LogRecord
from agent_layer.schema.ids import content_hash
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Group, Outcome
from agent_layer.schema.step import Action, Content, Observation, PromptDelta, StepPart, StepState, Usage
from agent_layer.schema.trace import TraceContext
from tracer import Rollout
from tracer.testing import Captured

__all__ = [
    "attempt",
    "attempt_with_everything",
    "call",
    "closed_group",
    "content",
    "group_of_one",
    "rollout_with",
    "sampled",
]


def attempt(
    trajectory_id: str,
    *parts: LogRecord,
    at: float = 1.0,
    run: str = "r",
    status: str = "completed",
    score: float | None = None,
    **started: object,
) -> list[LogRecord]:
    """Return the records of one attempt, oldest first, each a second after the one before.

    Args:
        parts: what it did between start and reward; see ``call`` and ``content``.
        at: when it started.
        status: "running": it has no end; only a completed attempt is accepted.
        score: None: it has no reward.
        started: fields of ``AttemptStarted``; ``group_id`` stands in ``Accepted``, too.
    """
    rollout_id, _, number = trajectory_id.rpartition("-")
    own = {"trajectory_id": trajectory_id, "run": run}
    rollout = {"rollout_id": rollout_id, "group_id": started.pop("group_id", None)}
    num_calls = sum(isinstance(part, StepPart) and part.phase == "start" for part in parts)
    ended_at = at + len(parts) + 1
    records = [AttemptStarted(**own, **rollout, **{"task_id": "t"} | started, attempt=int(number), started_at=at)]
    records += parts
    if score is not None:
        records.append(Reward(**own, reward_id=f"{trajectory_id}/r", at=ended_at, score=score))
    if status != "running":
        records.append(Outcome(**own, status=status, ended_at=ended_at + 1, num_calls=num_calls))
    if status == "completed":
        records.append(Accepted(**own, **rollout, accepted_at=ended_at + 2))
    return records


def call(
    trajectory_id: str,
    name: str = "a",
    *actions: Action,
    at: float = 2.0,
    run: str = "r",
    prompt: PromptDelta | None = None,
    state: StepState | None = None,
    **common: object,
) -> list[StepPart]:
    """Return start and end of a model call that the gateway saw, half a second apart.

    Args:
        actions: its choices; none: one without content.
        common: fields of both parts.
    """
    own = {"trajectory_id": trajectory_id, "run": run, "call_id": f"{trajectory_id}/{name}", "source": "gateway"}
    return [
        StepPart(**own, **common, phase="start", at=at, prompt=prompt, state=state),
        StepPart(**own, **common, phase="end", at=at + 0.5, status="ok", actions=list(actions) or [Action()]),
    ]


def sampled(*token_ids: int, version: int = 0, logprob: float = -0.5, **fields: object) -> Action:
    """Return an answer of one policy version, with a log-probability for each token."""
    return Action(
        response_token_ids=TokenIds(token_ids),
        logprobs=Logprobs([logprob] * len(token_ids)),
        policy_versions=[(version, len(token_ids))],
        **fields,
    )


def content(trajectory_id: str, body: bytes) -> Content:
    return Content(trajectory_id=trajectory_id, hash=content_hash(body), body=body)


def closed_group(group_id: str, *trajectory_ids: str, closed_at: float = 9.0, **fields: object) -> Group:
    members: Sequence[str] = list(trajectory_ids)
    return Group(
        **{"run": "r", "task_id": "t"} | fields, group_id=group_id, closed_at=closed_at, trajectory_ids=members
    )


TRACE = "0af7651916cd43dd8448eb211c80319c"
OUTER = "b7ad6b7169203331"
MESSAGES = (b'{"role":"system","content":"be brief"}', b'{"role":"user","content":"what"}')
TOOLS = b'[{"type":"function","function":{"name":"look"}}]'
CALLS = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}]


def group_of_one(task: str) -> list[LogRecord]:
    """Return the records of a closed group of one accepted attempt, which names its task in what it said."""
    name = f"{task}.0-0"
    words = content(name, f"the secret of {task}".encode())
    return [*attempt(name, words, task_id=task, group_id=task), closed_group(task, name, task_id=task)]


def attempt_with_everything(tid, at=100.0, score=1.0):
    """An attempt with two calls of two agents, one of two choices, a tool, rewards of every scope, and an end."""
    own = {"trajectory_id": tid, "run": "r"}
    hashes = [content_hash(body) for body in MESSAGES]
    first = {**own, "call_id": f"{tid}.a", "source": "gateway", "agent": "solver"}
    second = {**own, "call_id": f"{tid}.b", "source": "gateway", "agent": "critic"}
    request = Action(
        message={"role": "assistant", "content": None, "tool_calls": CALLS},
        response_token_ids=TokenIds([3, 4]),
        logprobs=Logprobs([-0.5, -0.25]),
        policy_versions=[(2, 2)],
        finish_reason="tool_calls",
    )
    spoken = [Action(message={"role": "assistant", "content": text}, finish_reason="stop") for text in ("yes", "no")]
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
            actions=[request],
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
        StepPart(**second, phase="end", at=at + 5, actions=spoken, status="ok", capture_level="text"),
        Reward(**own, reward_id=f"{tid}.0", at=at + 6, name="found", score=score, source="rule"),
        Reward(**own, reward_id=f"{tid}.1", at=at + 6, name="format", score=0.25, scope="step", step=0),
        Outcome(**own, status="completed", ended_at=at + 7),
        Accepted(**own, rollout_id=tid[:-2], accepted_at=at + 8),
    ]


def rollout_with(keeper, kept=None):
    """A rollout in memory whose states go to ``keeper``, and which begins with the state ``kept``."""
    own = {"trajectory_id": "t-0", "rollout_id": "t", "attempt": 0, "run": "r"}
    return Rollout(**own, sink=Captured(), keeper=keeper, kept=kept)
