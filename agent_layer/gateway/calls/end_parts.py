"""What is recorded of an answer: how its prompt continues earlier ones, who sampled it, and how much of it is known."""

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.rollouts.answers import HashedAnswer, join_prefill
from agent_layer.gateway.rollouts.divergence import History, cause_of_break
from agent_layer.gateway.rollouts.prefix import Hashed
from agent_layer.gateway.rollouts.rollout import CallHistory, PrefixAnchor, PromptContents
from agent_layer.schema import (
    BREAK,
    DISAGREES,
    CaptureLevel,
    PolicyRun,
    PromptDelta,
    StepPart,
    StepStatus,
    TokenIds,
    Usage,
)

_TOKEN_BYTES = 4
_NO_IDS = TokenIds()


class Context(msgspec.Struct, frozen=True):
    """Where an answer's prompt stands among the token sequences of its rollout."""

    prompt: PromptDelta | None
    """None where the engine gave no ids."""
    parent: PrefixAnchor | None
    """The answer that the prompt continues."""
    findings: list[str]


class Ending(msgspec.Struct, frozen=True):
    """How a call ended, and what came of its answer."""

    status: StepStatus
    answer: ChatAnswer | None = None
    error: str | None = None
    findings: list[str] = []
    """Findings of its end."""
    is_context_full: bool = False
    """The engine refused a prompt that does not fit into the model's context."""
    spends_turn: bool = True
    """What was asked or sampled led to it; False: the engine or its network failed."""


CUT_OFF: Final = Ending("aborted", error="the call was cut off")


def end_part(start: StepPart, context: Context | None, ending: Ending, findings: list[str]) -> StepPart:
    """Record what was answered, as far as it came, and what was noticed of it."""
    answer = ending.answer
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
        capture_level=_capture_level(answer) if answer else None,
        status=ending.status,
        error=ending.error,
        usage=_count_usage(answer) if answer else None,
        findings=findings,
    )


HashAnswers: TypeAlias = Callable[[], Sequence[HashedAnswer]]
"""Returns the assistant messages of a request's history."""


def remember(
    history: CallHistory,
    call_id: str,
    prompt: PromptContents,
    answer: ChatAnswer,
    hash_answers: HashAnswers,
    *,
    is_whole: bool,
) -> Context:
    """Place an answer among the earlier ones of its rollout. An answer that was cut off is never continued."""
    if answer.prompt_token_ids is None:
        context, sequence = Context(None, prompt.before, ["no_token_ids"]), None
    else:
        context, sequence = _find_context(history, prompt, answer.prompt_token_ids, hash_answers)
    if any(action.response_token_ids == _NO_IDS for action in answer.actions):
        context.findings.append("zero_tokens")
    if is_whole:
        conversation = context.parent.conversation if context.parent else call_id
        num_messages = prompt.num_asked
        history.prompts.add(prompt.messages, PrefixAnchor(call_id, 0, conversation, num_messages))
        for choice, action in enumerate(answer.actions):
            history.answers.add(
                join_prefill(prompt.request, action.message or {}), conversation, num_messages, prompt.place, call_id
            )
            if sequence and action.response_token_ids:
                response = action.response_token_ids.tobytes()
                history.sequences.add(
                    sequence.extended(response), PrefixAnchor(call_id, choice, conversation, num_messages)
                )
    return context


def _find_context(
    history: CallHistory, prompt: PromptContents, ids: TokenIds, hash_answers: HashAnswers
) -> tuple[Context, Hashed]:
    """Express a prompt as what it adds to the longest earlier sequence."""
    packed = ids.tobytes()
    match, sequence = history.sequences.find(packed)
    findings: list[str] = []
    num_continued = match.key.num_messages if match else -1
    is_continued = num_continued == prompt.last_answer and (prompt.before is None or num_continued >= 0)
    if not is_continued:  # else the tokens go on behind the last answer of the history, or there is no history
        seen = History(
            answers=[history.answers.recognise(answer) for answer in hash_answers()],
            num_messages=prompt.num_asked,
            num_equal=prompt.before.num_messages if prompt.before else 0,
            num_continued=num_continued,
            longest=history.answers.longest(prompt.before.conversation) if prompt.before else 0,
        )
        findings = [f"{BREAK}:{cause}"] if (cause := cause_of_break(seen)) else []
    if match is None:
        return Context(PromptDelta(delta=ids), prompt.before, findings), sequence
    continued = PromptDelta(
        delta=TokenIds(packed[match.length :]),
        parent_call=match.key.call_id,
        parent_choice=match.key.choice,
        prefix_length=match.length // _TOKEN_BYTES,
        prefix_hash=match.hash,
    )
    return Context(continued, match.key, findings), sequence


def _capture_level(answer: ChatAnswer) -> CaptureLevel:
    actions = answer.actions
    is_doubtful = any(finding.partition(":")[0] == DISAGREES for finding in answer.findings)
    if (
        is_doubtful
        or not actions
        or any(action.logprobs is None and action.response_token_ids != _NO_IDS for action in actions)
    ):
        return "text"
    has_ids = answer.prompt_token_ids is not None and all(
        action.response_token_ids is not None and len(action.response_token_ids) == len(action.logprobs or ())
        for action in actions
    )
    return "tokens" if has_ids else "logprobs"


def _count_usage(answer: ChatAnswer) -> Usage | None:
    """Count the recorded tokens; without ids, the server's own count, which a stream has only if it was asked for."""
    usage = answer.usage
    details = usage.prompt_tokens_details if usage else None
    cached = details.cached_tokens if details else None
    if answer.prompt_token_ids is None:
        return usage and Usage(
            prompt_tokens=usage.prompt_tokens, response_tokens=usage.completion_tokens, cached_tokens=cached
        )
    sampled = sum(len(action.response_token_ids or ()) for action in answer.actions)
    return Usage(prompt_tokens=len(answer.prompt_token_ids), response_tokens=sampled, cached_tokens=cached)


def extend_policy_runs(before: Sequence[PolicyRun], version: int, num_tokens: int) -> list[PolicyRun]:
    """Assign all tokens so far to the policy versions that sampled them.

    Args:
        before: runs of (version, number of tokens) that are known already.
        version: sampled the rest.
        num_tokens: of all runs together.

    Returns: runs without empty ones; no two neighbours have the same version.
    """
    num_new = num_tokens - sum(number for _, number in before)
    if num_new <= 0:
        return list(before)
    if before and before[-1][0] == version:
        return [*before[:-1], (version, before[-1][1] + num_new)]
    return [*before, (version, num_new)]
