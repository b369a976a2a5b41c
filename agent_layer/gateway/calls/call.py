"""One model call as one object: parsed → admitted → running → ended, each phase entered once.

parsed      the request is read and compared with earlier calls of its rollout (``ParsedCall``)
admitted    it has an id, under which retries wait for it; no record names it yet
running     its start is recorded: the request may leave for an engine
ended       its end is recorded: the last byte of the answer may leave for the client

A call that never runs leaves no record. A call that runs records exactly one end, whatever stops it.
"""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, cast

import msgspec

from agent_layer.engines import BAD_LOGPROBS, KINDS, NO_LOGPROBS, RAW_LOGPROBS, SMALLEST_LOGPROB, Engine
from agent_layer.gateway.calls.end_parts import Context, Ending, end_part, extend_policy_runs, remember
from agent_layer.gateway.calls.forms import AskedForms, is_set_free
from agent_layer.gateway.calls.requests import is_large
from agent_layer.gateway.calls.sampling import SamplingPolicy, settle_sampling
from agent_layer.gateway.dialects.base import Dialect, Exchange
from agent_layer.gateway.dialects.chat import CHAT, ChatRequest, asks_something
from agent_layer.gateway.engines.models import ExternalModel
from agent_layer.gateway.rollouts.answers import HashedAnswer
from agent_layer.gateway.rollouts.callers import SIDE_CALL, Caller
from agent_layer.gateway.rollouts.log_protocol import Log
from agent_layer.gateway.rollouts.retries import Call, RetryKey
from agent_layer.gateway.rollouts.rollout import EndedCall, LiveRollout, PromptContents
from agent_layer.recorder import PreparedRecords
from agent_layer.schema import (
    MISSED_FORM,
    Action,
    JsonObject,
    PolicyFault,
    PolicyRun,
    Role,
    StepPart,
    Usage,
    parse_trace,
)

NOT_APPLIED: Final = "not_applied"
"""Finding of a field that was asked and that nothing applied: its name follows."""
RESTORED: Final = "restored"
"""Finding of what an agent changed in the model's answers, and the engine was given as it was sampled."""
_LENGTHS: Final = ("max_tokens", "max_completion_tokens")
_WHOLE_ANSWER: Final[JsonObject] = {"stream": None, "stream_options": None}
"""Put in place of what the client asks, where an engine's stream lacks ids."""
_MAX_NAME_LENGTH, _MAX_NAMES = 64, 8
"""Limits for the names of fields that nothing applied."""


class Phase(StrEnum):
    """How far an admitted call has come."""

    ADMITTED = "admitted"
    RUNNING = "running"
    ENDED = "ended"


class ParsedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request, read, and the rollout that sends it."""

    rollout: LiveRollout
    source: ChatRequest
    """The client's request as its dialect read it."""
    request: ChatRequest
    """The same as the model that answers takes it."""
    prompt: PromptContents
    retry_key: RetryKey
    headers: Mapping[str, str]
    dialect: Dialect
    """Dialect of the request and of its answer."""
    size_bytes: int
    """Size of all that the model reads: more than the body where that continues an earlier call."""
    sampling_policy: SamplingPolicy | None = None
    """See ``choose_sampling_policy``."""
    caller: Caller

    @property
    def is_aux(self) -> bool:
        """Whether a judge or helper calls, whose answer is never trained."""
        return self.caller.role == "aux"

    @property
    def is_trained(self) -> bool:
        """Whether the policy's answer is to be learned from."""
        return self.rollout.started.split == "train" and not self.is_aux


def choose_sampling_policy(rollout: LiveRollout, caller: Caller, setting: SamplingPolicy) -> SamplingPolicy | None:
    """Return what happens to sampling that a trainer cannot reproduce, in a call of this caller.

    Returns: None: nothing, because the call is not trained. Outside groups, which alone trainers take, ``keep``.
    """
    if rollout.started.split != "train" or caller.role == "aux":
        return None
    return "keep" if rollout.started.group_id is None else setting


class Room(msgspec.Struct, frozen=True):
    """What a context has left for an answer behind its prompt."""

    tokens: int | None
    """None: as many as the engine itself finds."""


class RecordedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What a step part names of the server that answers. None: not known."""

    engine: str
    model: str
    logprobs_mode: Literal["raw", "processed"] | None = None
    template_hash: str | None = None
    tokenizer_hash: str | None = None


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call goes, what is sent there, and what its record names."""

    url: str
    """Without a path."""
    model: str
    version: int
    """Policy version of the answer; 0 for an external model, whose answers no policy samples."""
    engine: Engine | None
    """Holds a place for the call; None: an external model answers."""
    role: Role | None
    """None: what the agent's name implies."""
    headers: Mapping[str, str]
    """Headers that an external model's server asks for; those of engines are the pool's."""
    express: Callable[[], bytes]
    """Builds the body, which is not kept for as long as its answer takes."""
    sampling: JsonObject
    """Everything that shapes the answer, overrides included."""
    changes: JsonObject
    """Put in place of what the client asks."""
    recorded: RecordedTarget
    findings: list[str] = []
    """Findings about sampling that a trainer cannot reproduce, kept or neutralised."""
    needs_whole_answer: bool = False
    """Its engine is asked for the answer in one piece, whatever the client asks."""


def _fit_length(sampling: JsonObject, room: Room | None) -> JsonObject:
    """Return what takes the place of the length that is asked, where that does not fit."""
    if room is None:
        return {}
    named = {name: value for name in _LENGTHS if isinstance(value := sampling.get(name), int | float)}
    return {name: room.tokens if room.tokens is None else min(room.tokens, value) for name, value in named.items()}


def _find_in_logprobs(actions: Sequence[Action]) -> list[str]:
    """Return what keeps the log-probabilities of an answer from being trained on."""
    sizes = [(len(one.logprobs or ()), len(one.response_token_ids or ())) for one in actions]
    found = [NO_LOGPROBS] if any(given < needed for given, needed in sizes) else []
    is_bad = any(min(one.logprobs or (0.0,)) <= SMALLEST_LOGPROB for one in actions)
    return [*found, BAD_LOGPROBS] if is_bad else found


def _find_unread(unread: Set[str], request: ChatRequest, changes: Mapping[str, object]) -> list[str]:
    """Return the fields that an engine is asked for and would ignore, sorted."""
    if unread.isdisjoint(request.pieces) and unread.isdisjoint(changes):
        return []
    named = {name for name, value in changes.items() if value} & unread
    others = unread & request.pieces.keys() - changes.keys()
    return sorted(named | {name for name in others if asks_something(request.pieces[name])})


@dataclass(slots=True)
class EngineTries:
    """A call's tries at engines. None is asked again after it failed."""

    failed: set[str] = field(default_factory=set[str])
    """Addresses of the engines at which it failed."""
    num_readers: int = 0
    """Engines that failed after they read the request."""
    is_moved: bool = False
    """The engine of its start failed."""
    room: Room | None = None
    """Where an engine refused the length that was asked."""
    left_out: frozenset[str] = frozenset()
    """Fields that an engine refused, and that an answer can do without."""
    policy_runs: Sequence[PolicyRun] = ()
    """Versions that sampled the part of the answer before the last preemption."""


@dataclass(kw_only=True, slots=True, eq=False)
class ModelCall:
    """An admitted call.

    Args:
        parsed: what the client asks.
        entry: the call as its retries find it.
        log: where its start and end are recorded.
    """

    parsed: ParsedCall
    entry: Call
    log: Log
    phase: Phase = Phase.ADMITTED
    route: Route = field(init=False)
    """The last target."""
    tries: EngineTries = field(default_factory=EngineTries)
    num_prompt: int | None = None
    """Tokens of the prompt, where the context limits the answer; None: not counted."""
    held: Engine | None = None
    """The engine at which the call has a place; None: it waits for one, or an external model answers."""
    start: StepPart = field(init=False)
    """Recorded when it began to run."""
    history: Sequence[HashedAnswer] | None = None
    """The answers in a long history; None: it is short, and hashed when that is needed."""
    usage: Usage | None = None
    """Tokens of its answer; None: not known."""
    is_billed: bool = False
    """It ended, and something of an answer was sampled."""
    has_sent: bool = False
    """Part of an answer is on its way to the client: neither an error nor another engine's answer can follow."""

    @property
    def rollout(self) -> LiveRollout:
        """The rollout that calls."""
        return self.parsed.rollout

    def hold_place(self, target: Engine | ExternalModel) -> None:
        """Count among the calls of a target's engine, until the place is released."""
        self.held = target if isinstance(target, Engine) else None

    def assign(self, target: Engine | ExternalModel) -> None:
        """Hold a place at a target, and express the request for it."""
        self.hold_place(target)
        self.route = self._route_to(target)

    def prepare(self, target: Engine | ExternalModel) -> PreparedRecords:
        """Do everything before ``begin`` that takes the longer the more was asked; in any thread.

        Raises: RedactionError: the function that the setting ``redact`` names failed.
        """
        self.route = self._route_to(target)
        self.start = self._start_part()
        if is_large(self.parsed.size_bytes):
            self.history = self.parsed.prompt.hash_answers()
        return self.log.prepare(*self.parsed.prompt.contents, self.start)

    def begin(self, prepared: PreparedRecords) -> None:
        """Record the start. The request may leave once this returned.

        Raises: RefusedError: the rollout was closed, or its budget is used up. BackPressureError: the log is full.
        """
        rollout, contents, is_aux = self.rollout, self.parsed.prompt.contents, self.parsed.is_aux
        rollout.check_may_call(self.entry.question_id, is_aux=is_aux)
        rollout.logs.add(self.log.append_prepared(prepared))
        rollout.record_start(self.entry.question_id, [content.hash for content in contents], is_aux=is_aux)
        contents.clear()  # large ones would stay in memory for as long as the answer takes
        self.phase = Phase.RUNNING
        self.entry.is_started = True

    def move(self, target: Engine | ExternalModel) -> None:
        """Go on at another target, because the one before failed."""
        self.assign(target)
        self.tries.is_moved, self.tries.policy_runs = True, ()

    @property
    def asks_length(self) -> bool:
        """Whether the answer's length is named, so that it is not the prompt alone which may be too long."""
        return any(isinstance(self.route.sampling.get(name), int | float) for name in _LENGTHS)

    def leave_out(self, target: Engine | ExternalModel, refused: frozenset[str]) -> bool:
        """Ask the same target without fields that it refused; False: it was not asked for any of them."""
        names = {name for name in refused if self.route.sampling.get(name) is not None}
        if names:
            self.tries.left_out |= names
            self.assign(target)
        return bool(names)

    def fit(self, target: Engine | ExternalModel, room: Room) -> None:
        """Ask the same target for an answer that fits."""
        self.tries.room = room
        self.assign(target)

    def preempt(self, num_tokens: int) -> Engine | None:
        """Leave the engine in the middle of an answer.

        Args:
            num_tokens: all that are sampled by now, before and after earlier preemptions.

        Returns: the engine that the call leaves, whose place is to be released.
        """
        tries = self.tries
        tries.policy_runs = extend_policy_runs(tries.policy_runs, self.route.version, num_tokens)
        left, self.held = self.held, None
        return left

    def end(self, ending: Ending) -> None:
        """Record how the call ended. The last byte of the answer may leave once this returned.

        Raises: BackPressureError: the log is full; the answer must not be sent, because it would not be stored.
        """
        rollout, entry = self.rollout, self.entry
        is_whole, is_policy = ending.status == "ok", not self.parsed.is_aux
        context: Context | None = None
        if ending.answer and self.parsed.request.endpoint == CHAT:
            context = remember(
                rollout.history, entry.call_id, self.parsed.prompt, ending.answer, self._hash_answers, is_whole=is_whole
            )
        self.phase = Phase.ENDED
        part = self._complete(end_part(self.start, context, ending, self._find_at_end(context, ending)))
        rollout.logs.add(self.log.append(part))
        self.usage, self.is_billed = part.usage, ending.status != "error"
        num_sampled = sum(len(action.response_token_ids or ()) for action in part.actions or ())
        is_decided = is_policy and (is_whole or ending.is_context_full)
        ended = EndedCall(
            entry.call_id,
            num_sampled if is_policy else 0,
            is_of_policy=is_policy and (ending.status != "error" or num_sampled > 0),
            question_id=entry.question_id,
            spends_turn=ending.spends_turn,
            is_side_call=not is_policy,
            lacks_tokens=is_whole and is_policy and part.capture_level != "tokens",
            is_decided=is_decided,
            policy_fault=self._find_fault(ending, part.actions or ()) if is_decided else None,
        )
        rollout.record_end(ended)
        entry.is_good = is_whole

    def _find_fault(self, ending: Ending, actions: Sequence[Action]) -> PolicyFault | None:
        """Return why the agent may fail because of the policy now; None: there is no such reason."""
        if ending.is_context_full:
            return "context_full"
        request, is_free = self.parsed.request, is_set_free(self.route.findings)
        messages = [action.message or {} for action in actions]
        if not is_free and not [one for one in messages if one.get("tool_calls")]:
            return None
        sampling = request.sampling | self.rollout.fixed_sampling(request) if is_free else {}
        forms = AskedForms(sampling, request)
        return None if any(forms.fit(message) for message in messages) else MISSED_FORM

    def exchange(self) -> Exchange:
        """Return what the dialect must know to write the answer."""
        num_choices = self.route.sampling.get("n")
        return Exchange(
            request=self.parsed.source,
            memory=self.rollout.history.answers.memory,
            call_id=self.start.call_id,
            model=self.route.model,
            at=int(self.start.at),
            num_choices=num_choices if isinstance(num_choices, int) else 1,
        )

    def _route_to(self, target: Engine | ExternalModel) -> Route:
        """Express the request for a target: the policy's engine, or a model that another party serves."""
        parsed, request, room = self.parsed, self.parsed.request, self.tries.room
        left_out: JsonObject = dict.fromkeys(self.tries.left_out, cast("object", None))
        match target:
            case ExternalModel():
                own = parsed.rollout.sampling_for(request, self.entry, is_aux=parsed.is_aux)
                overrides = own if target.is_policy else {}
                overrides |= _fit_length(request.sampling | overrides, room) | left_out
                return Route(
                    url=target.url,
                    model=target.model,
                    version=0,
                    engine=None,
                    role=parsed.caller.role,
                    headers=target.headers,
                    express=lambda: request.for_provider(target.model, overrides),
                    sampling=request.sampling | overrides,
                    changes=overrides,
                    recorded=RecordedTarget(engine=target.url if target.is_policy else "litellm", model=target.model),
                )
            case Engine():
                overrides = parsed.rollout.sampling_for(request, self.entry, self.num_prompt, is_aux=parsed.is_aux)
                settled = settle_sampling(
                    request.sampling | overrides | left_out,
                    request.tools if request.tool_facts and request.tool_facts.are_strict else None,
                    parsed.sampling_policy,
                    f"rollout {parsed.rollout.trajectory_id}",
                )
                overrides |= settled.changes
                overrides |= _fit_length(request.sampling | overrides, room) | left_out
                kind = KINDS[target.kind]
                unread = _find_unread(kind.unread_fields, request, overrides)
                overrides |= dict.fromkeys(unread)
                changes = overrides if settled.tools is None else overrides | {"tools": settled.tools}
                needs_whole_answer = request.endpoint == CHAT and not kind.streams_ids
                sent = changes | _WHOLE_ANSWER if needs_whole_answer else changes
                return Route(
                    url=target.url,
                    model=target.model,
                    version=target.version,
                    engine=target,
                    role=parsed.caller.role,
                    headers={},
                    express=lambda: request.for_engine(target.model, sent),
                    sampling=request.sampling | overrides,
                    changes=changes,
                    recorded=RecordedTarget(
                        engine=target.url,
                        model=target.model,
                        logprobs_mode=target.logprobs_mode,
                        template_hash=target.template_hash,
                        tokenizer_hash=target.tokenizer_hash,
                    ),
                    findings=[*settled.findings, *(f"{NOT_APPLIED}:{name}" for name in unread)],
                    needs_whole_answer=needs_whole_answer,
                )

    def _hash_answers(self) -> Sequence[HashedAnswer]:
        return self.parsed.prompt.hash_answers() if self.history is None else self.history

    def _start_part(self) -> StepPart:
        parsed, route = self.parsed, self.route
        request, prompt, trace = parsed.request, parsed.prompt, parse_trace(parsed.headers)
        temperature = route.sampling.get("temperature")
        return StepPart(
            trajectory_id=self.rollout.trajectory_id,
            call_id=self.entry.call_id,
            run=self.rollout.started.run,
            source="gateway",
            phase="start",
            at=time.time(),
            agent=self.entry.agent,
            role=route.role,
            conversation=prompt.before.conversation if prompt.before else self.entry.call_id,
            parent_call=prompt.before.call_id if prompt.before else None,
            trace_id=trace and trace.trace_id,
            span_id=trace and trace.span_id,
            state=prompt.state,
            sampling_asked=request.sampling_asked,
            sampling_applied=route.sampling,
            temperature=float(temperature) if isinstance(temperature, int | float) else None,
            findings=self._find_at_start(),
            **msgspec.structs.asdict(route.recorded),
        )

    def _find_at_start(self) -> list[str]:
        """What keeps the call from being what was asked, or from being trained on."""
        parsed, route = self.parsed, self.route
        names = [*parsed.request.findings]
        names += [f"{SIDE_CALL}:{reason}"] if (reason := parsed.caller.reason) else []
        names += [f"{NOT_APPLIED}:{name[:_MAX_NAME_LENGTH]}" for name in parsed.request.not_applied[:_MAX_NAMES]]
        names += [f"{RESTORED}:{name}" for name in parsed.request.restored]
        is_scaled = route.sampling.get("temperature") not in (None, 1)
        if route.engine is None or parsed.is_aux:
            return names
        if is_scaled and route.recorded.logprobs_mode == "raw":
            names.append(RAW_LOGPROBS)
        shown = {kind for facts in parsed.request.facts for kind in facts.media} if parsed.is_trained else ()
        return [*names, *sorted(shown)]

    def _complete(self, part: StepPart) -> StepPart:
        """Add what became of the call on its way: an external model, preemptions, another engine."""
        tries = self.tries
        if self.route.engine is None:
            part = msgspec.structs.replace(part, capture_level="text")
        if tries.policy_runs:
            actions = [self._versioned(action) for action in part.actions or ()] or None
            part = msgspec.structs.replace(part, actions=actions)
        if tries.room is not None or tries.left_out:
            part = msgspec.structs.replace(part, sampling_applied=self.route.sampling)
        return msgspec.structs.replace(part, **msgspec.structs.asdict(self.route.recorded)) if tries.is_moved else part

    def _find_at_end(self, context: Context | None, ending: Ending) -> list[str]:
        """What was noticed of the answer, and of the call's way."""
        answer, route, tries = ending.answer, self.route, self.tries
        found: list[str] = []
        if route.engine is not None:
            found += context.findings if context else ()
            found += answer.findings if answer else ()
            found += _find_in_logprobs(answer.actions) if answer and self.parsed.is_trained else ()
            found += route.findings
        found += ["continued"] if tries.policy_runs else ()
        found += [f"{NOT_APPLIED}:{name}" for name in sorted(tries.left_out)] if tries.left_out else ()
        found += ["engine_changed"] if tries.is_moved else ()
        return [*found, *ending.findings]

    def _versioned(self, action: Action) -> Action:
        runs = extend_policy_runs(self.tries.policy_runs, self.route.version, len(action.response_token_ids or ()))
        return msgspec.structs.replace(action, policy_versions=runs)
