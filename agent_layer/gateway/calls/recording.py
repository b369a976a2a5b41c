"""This file holds a call in flight: begun with a record, ended with a record, each exactly once.

This file holds how one call becomes two step parts: its start, before it leaves, and its end, before it returns.

This file holds which policy version sampled which part of an answer that several of them sampled.
"""

import time
from collections.abc import Mapping, Sequence

import msgspec

from agent_layer.engines import Engine
from agent_layer.gateway.calls.requests import read_agent, read_role
from agent_layer.gateway.dialects import ChatAnswer, ChatRequest, Completions, Dialect, Exchange
from agent_layer.gateway.engines import Provider
from agent_layer.gateway.rollouts import (
    Call,
    EndedCall,
    Hashed,
    History,
    LiveRollout,
    Log,
    PrefixAnchor,
    PromptContents,
    cause_of_break,
)
from agent_layer.schema import (
    BREAK,
    Action,
    CaptureLevel,
    JsonObject,
    PolicyRun,
    PromptDelta,
    StepPart,
    StepStatus,
    TokenIds,
    Usage,
)
from agent_layer.schema.wire import parse_trace

_TOKEN_BYTES = 4
_NO_IDS = TokenIds()


class Context(msgspec.Struct, frozen=True):
    """Where an answer's prompt stands among the token sequences of its rollout."""

    prompt: PromptDelta | None
    """None where the engine gave no ids."""
    parent: PrefixAnchor | None
    """The answer that the prompt continues."""
    findings: list[str]


def start_part(
    rollout: LiveRollout,
    call_id: str,
    request: ChatRequest,
    asked: PromptContents,
    engine: Engine,
    headers: Mapping[str, str],
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
        agent=read_agent(headers),
        role=read_role(headers),
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


def remember(
    rollout: LiveRollout, call_id: str, asked: PromptContents, answer: ChatAnswer, *, is_whole: bool
) -> Context:
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
        rollout.prompts.add(asked.messages, PrefixAnchor(call_id, 0, conversation, num_messages))
        for choice, action in enumerate(answer.actions):
            rollout.said.add(action.message or {}, conversation, num_messages)
            if sequence and action.response_token_ids:
                response = action.response_token_ids.tobytes()
                rollout.sequences.add(
                    sequence.extended(response), PrefixAnchor(call_id, choice, conversation, num_messages)
                )
    return context


def _context_of(rollout: LiveRollout, asked: PromptContents, ids: TokenIds) -> tuple[Context, Hashed]:
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


def _breaks_of(rollout: LiveRollout, asked: PromptContents, num_continued: int) -> list[str]:
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


def extend_policy_runs(before: Sequence[PolicyRun], version: int, num_tokens: int) -> list[PolicyRun]:
    """Say of all tokens so far who sampled them.

    Args:
        before: runs of (version, number of tokens) of those that are known already.
        version: sampled the rest.
        num_tokens: of all.

    Returns: runs without empty ones, of which no two that follow each other have the same version.
    """
    num_new = num_tokens - sum(number for _, number in before)
    if num_new <= 0:
        return list(before)
    if before and before[-1][0] == version:
        return [*before[:-1], (version, before[-1][1] + num_new)]
    return [*before, (version, num_new)]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A request and the rollout that asks it."""

    rollout: LiveRollout
    request: ChatRequest
    asked: PromptContents
    call: Call
    headers: Mapping[str, str]
    dialect: Dialect = Completions()
    """In which the client asks and is answered."""


class Flight(msgspec.Struct, kw_only=True):
    """A question on its way to an engine."""

    question: Question
    engine: Engine
    log: Log
    start: StepPart
    is_ended: bool = False
    is_moved: bool = False
    """The engine that it left for first failed."""
    has_place: bool = True
    """It has one at the engine; False while it waits for another."""
    runs: list[PolicyRun] = []
    """Of what was sampled before it was cut off and went on."""

    @classmethod
    def begin(cls, question: Question, engine: Engine, log: Log) -> "Flight":
        """Record that the call begins. The request may leave once this returned.

        Raises: RefusedError: the rollout was closed, or its budget is used up. BackPressureError: the log is full.
        """
        rollout, asked, call = question.rollout, question.asked, question.call
        rollout.check_may_call()
        start = start_part(rollout, call.call_id, question.request, asked, engine, question.headers)
        if isinstance(engine, Provider):
            start = engine.mark(start, question.request)
        rollout.logs.add(log.append(*asked.contents, start))
        for content in asked.contents:
            rollout.stored.add(content.hash)
        rollout.num_started += 1
        rollout.record_activity()
        call.is_started = True
        return cls(question=question, engine=engine, log=log, start=start)

    def move_to(self, engine: Engine) -> None:
        """Go on to another engine, as the same call."""
        self.start = at_engine(self.start, engine)
        self.arrive(engine)
        self.is_moved, self.runs = True, []

    def leave(self, num_tokens: int) -> None:
        """Give up the place in the middle of an answer, of which so many tokens are sampled."""
        self.runs = extend_policy_runs(self.runs, self.engine.version, num_tokens)
        self.has_place = False

    def arrive(self, engine: Engine) -> None:
        """Have a place again."""
        self.engine, self.has_place = engine, True

    def body(self) -> bytes:
        """What the engine is asked."""
        request = self.question.request
        if isinstance(self.engine, Provider):
            return request.for_provider(self.engine.model)
        return request.for_engine(self.engine.model, self.question.rollout.sampling_for(request.sampling))

    @property
    def headers(self) -> Mapping[str, str] | None:
        """What the request must carry besides."""
        return self.engine.headers if isinstance(self.engine, Provider) else None

    def exchange(self) -> Exchange:
        """What the dialect must know to write the answer."""
        question = self.question
        return Exchange(
            request=question.request,
            trajectory_id=self.start.trajectory_id,
            call_id=self.start.call_id,
            model=self.engine.model,
            at=int(self.start.at),
            num_choices=self.num_choices,
        )

    @property
    def num_choices(self) -> int:
        """How many answers the engine was asked for."""
        asked = (self.start.sampling_applied or {}).get("n")
        return asked if isinstance(asked, int) else 1

    def end(self, answer: ChatAnswer | None, status: StepStatus, error: str | None = None) -> None:
        """Record how the call ended. The last byte of the answer may leave once this returned.

        Raises: BackPressureError: the log is full; the answer must not be given, because it would not be stored.
        """
        rollout, call = self.question.rollout, self.question.call
        is_whole = status == "ok"
        context = remember(rollout, call.call_id, self.question.asked, answer, is_whole=is_whole) if answer else None
        self.is_ended = True
        part = end_part(self.start, context, answer, status, error)
        if isinstance(self.engine, Provider):
            part = msgspec.structs.replace(part, capture_level="text", findings=[])
        if self.runs:
            part = self._continued(part)
        rollout.logs.add(self.log.append(self._moved(part) if self.is_moved else part))
        rollout.num_ended += 1
        rollout.ended.append(
            EndedCall(call.call_id, sum(len(one.response_token_ids or ()) for one in part.actions or ()))
        )
        rollout.record_activity()
        call.is_good = is_whole
        if is_whole and self.start.role != "aux" and part.capture_level != "tokens":
            rollout.untokened.append(call.call_id)

    def _continued(self, part: StepPart) -> StepPart:
        """Say which weights sampled what."""
        actions = [self._versioned(action) for action in part.actions or ()] or None
        return msgspec.structs.replace(part, actions=actions, findings=[*part.findings, "continued"])

    def _versioned(self, action: Action) -> Action:
        num_tokens = len(action.response_token_ids or ())
        return msgspec.structs.replace(
            action, policy_versions=extend_policy_runs(self.runs, self.engine.version, num_tokens)
        )

    def _moved(self, part: StepPart) -> StepPart:
        """The start names an engine that failed; the end names the one that answered."""
        return msgspec.structs.replace(at_engine(part, self.engine), findings=[*part.findings, "engine_changed"])
