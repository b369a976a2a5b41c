"""This file holds how one call becomes two step parts: its start, before it leaves, and its end, before it returns."""

import time
from collections.abc import Mapping

import msgspec

from agent_layer.gateway.breaks import History, cause_of_break
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.headers import agent_of, role_of
from agent_layer.gateway.prefix import Hashed
from agent_layer.gateway.rollouts import Asked, LiveRollout, Place
from agent_layer.schema.findings import BREAK
from agent_layer.schema.record import JsonObject, TokenIds
from agent_layer.schema.step import CaptureLevel, PromptDelta, StepPart, StepStatus, Usage
from agent_layer.schema.trace import parse_trace
from agent_layer.store.engines import Engine

__all__ = ["Context", "at_engine", "end_part", "remember", "start_part"]

_TOKEN_BYTES = 4
_NO_IDS = TokenIds()


class Context(msgspec.Struct, frozen=True):
    """Where an answer's prompt stands among the token sequences of its rollout."""

    prompt: PromptDelta | None
    """None where the engine gave no ids."""
    parent: Place | None
    """The answer that the prompt continues."""
    findings: list[str]


def start_part(
    rollout: LiveRollout, call_id: str, request: ChatRequest, asked: Asked, engine: Engine, headers: Mapping[str, str]
) -> StepPart:
    """Record what is about to be asked. Headers may name the agent, its role and the trace."""
    applied = request.sampling | rollout.sampling_for(request.sampling)
    trace = parse_trace(headers)
    return StepPart(
        trajectory_id=rollout.trajectory_id,
        call_id=call_id,
        run=rollout.started.run,
        source="gateway",
        phase="start",
        at=time.time(),
        agent=agent_of(headers),
        role=role_of(headers),
        conversation=asked.before.conversation if asked.before else call_id,
        parent_call=asked.before.call_id if asked.before else None,
        trace_id=trace and trace.trace_id,
        span_id=trace and trace.span_id,
        state=asked.state,
        sampling_asked=request.sampling_asked,
        sampling_applied=applied,
        temperature=_temperature_of(applied),
        logprobs_mode=engine.logprobs_mode,
        model=engine.model,
        engine=engine.url,
        template_hash=engine.template_hash,
        tokenizer_hash=engine.tokenizer_hash,
    )


def at_engine(part: StepPart, engine: Engine) -> StepPart:
    """The same part with another engine."""
    return msgspec.structs.replace(
        part,
        logprobs_mode=engine.logprobs_mode,
        model=engine.model,
        engine=engine.url,
        template_hash=engine.template_hash,
        tokenizer_hash=engine.tokenizer_hash,
    )


def end_part(
    start: StepPart, context: Context | None, answer: ChatAnswer | None, status: StepStatus, error: str | None = None
) -> StepPart:
    """Record what was answered, as far as it came."""
    parent = context.parent if context else None
    return StepPart(
        trajectory_id=start.trajectory_id,
        call_id=start.call_id,
        run=start.run,
        source="gateway",
        phase="end",
        at=time.time(),
        conversation=parent.conversation if parent else None,
        parent_call=parent.call_id if parent else None,
        prompt=context.prompt if context else None,
        actions=(answer.actions or None) if answer else None,
        capture_level=_level_of(answer) if answer else None,
        status=status,
        error=error,
        usage=_usage_of(answer) if answer else None,
        findings=context.findings if context else [],
    )


def remember(rollout: LiveRollout, call_id: str, asked: Asked, answer: ChatAnswer, *, is_whole: bool) -> Context:
    """Place an answer among what its rollout said before; what was cut off is never continued."""
    rollout.num_sampled += sum(len(action.response_token_ids or ()) for action in answer.actions)
    if answer.prompt_token_ids is None:
        context, sequence = Context(None, asked.before, ["no_token_ids"]), None
    else:
        context, sequence = _context_of(rollout, asked, answer.prompt_token_ids)
    if any(action.response_token_ids == _NO_IDS for action in answer.actions):
        context.findings.append("zero_tokens")
    if is_whole:
        conversation = context.parent.conversation if context.parent else call_id
        num_messages = len(asked.state.messages or ())
        rollout.talks.add(asked.messages, Place(call_id, 0, conversation, num_messages))
        for choice, action in enumerate(answer.actions):
            rollout.said.add(action.message or {}, conversation, num_messages)
            if sequence and action.response_token_ids:
                response = action.response_token_ids.tobytes()
                rollout.sequences.add(sequence.extended(response), Place(call_id, choice, conversation, num_messages))
    return context


def _context_of(rollout: LiveRollout, asked: Asked, ids: TokenIds) -> tuple[Context, Hashed]:
    """Express a prompt as what it adds to the longest earlier sequence."""
    packed = ids.tobytes()
    match, sequence = rollout.sequences.find(packed)
    findings = _breaks_of(rollout, asked, match.key.num_messages if match else -1)
    if match is None:
        return Context(PromptDelta(delta=ids), asked.before, findings), sequence
    prompt = PromptDelta(
        delta=TokenIds(packed[match.length :]),
        parent_call=match.key.call_id,
        parent_choice=match.key.choice,
        prefix_length=match.length // _TOKEN_BYTES,
        prefix_hash=match.hash,
    )
    return Context(prompt, match.key, findings), sequence


def _breaks_of(rollout: LiveRollout, asked: Asked, num_continued: int) -> list[str]:
    """Say so where the prompt should have continued other tokens than it does."""
    if num_continued == asked.last_answer and (asked.before is None or num_continued >= 0):
        return []  # the tokens go on behind the last answer of the history, or there is no history
    cause = cause_of_break(
        History(
            answers=[rollout.said.returned(index, message) for index, message in asked.answers()],
            num_messages=len(asked.state.messages or ()),
            num_equal=asked.before.num_messages if asked.before else 0,
            num_continued=num_continued,
            longest=rollout.said.longest(asked.before.conversation) if asked.before else 0,
        )
    )
    return [f"{BREAK}:{cause}"] if cause else []


def _level_of(answer: ChatAnswer) -> CaptureLevel:
    actions = answer.actions
    if not actions or any(action.logprobs is None and action.response_token_ids != _NO_IDS for action in actions):
        return "text"
    has_ids = answer.prompt_token_ids is not None and all(
        action.response_token_ids is not None and len(action.response_token_ids) == len(action.logprobs or ())
        for action in actions
    )
    return "tokens" if has_ids else "logprobs"


def _usage_of(answer: ChatAnswer) -> Usage | None:
    if answer.prompt_token_ids is None:
        return None
    sampled = sum(len(action.response_token_ids or ()) for action in answer.actions)
    return Usage(prompt_tokens=len(answer.prompt_token_ids), response_tokens=sampled)


def _temperature_of(sampling: JsonObject) -> float | None:
    value = sampling.get("temperature")
    return float(value) if isinstance(value, int | float) else None
