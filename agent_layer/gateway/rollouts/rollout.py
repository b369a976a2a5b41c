"""One attempt at a rollout, as its gateway holds it: key, budget, retries, and what it asked so far."""

import asyncio
import hmac
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.chat import ChatRequest, MessageFacts, ToolFacts
from agent_layer.gateway.dialects.refusals import CONTEXT_FULL, RefusedError
from agent_layer.gateway.rollouts.answers import ANSWERER, AnsweredMessages, HashedAnswer, find_place
from agent_layer.gateway.rollouts.body_quota import BodyQuota
from agent_layer.gateway.rollouts.budget import Budget
from agent_layer.gateway.rollouts.callers import NO_SIDE_CALLS, SideCalls
from agent_layer.gateway.rollouts.media import Part, name_stored, stored_part
from agent_layer.gateway.rollouts.prefix import Hashed, PrefixTable
from agent_layer.gateway.rollouts.retries import Call, CallTable
from agent_layer.infra import BusyClock
from agent_layer.schema import (
    KEY_PREFIX,
    NOT_SAMPLING,
    REFUSED,
    AttemptStarted,
    Content,
    JsonObject,
    Limits,
    OpenRequest,
    Outcome,
    PolicyFault,
    Reward,
    StepState,
    check_name,
    derive_seed,
    make_attempt_started,
    new_id,
)
from agent_layer.translation import check_counts

_HASH_LENGTH = 32
_OF_TOOLS: Final = frozenset({"tool_choice", "parallel_tool_calls"})


class PrefixAnchor(msgspec.Struct, frozen=True):
    """Where an answer stands among the conversations of its rollout."""

    call_id: str
    choice: int
    conversation: str
    num_messages: int
    """Messages of its prompt."""


class EndedCall(msgspec.Struct, frozen=True):
    """A call that has ended, and what it cost."""

    call_id: str
    num_sampled: int
    """Tokens that count for the limit of the task: none of a side call."""
    is_of_policy: bool
    """The policy answered it, or was cut off; False where the call failed."""
    question_id: str = ""
    """See ``Call``."""
    spends_turn: bool = True
    """False where the engine or its network failed."""
    is_side_call: bool = False
    """It had the role ``aux``, so it spends a side call instead of a turn."""
    lacks_tokens: bool = False
    """The policy answered it without token ids or log-probabilities."""
    is_decided: bool = False
    """An engine answered the policy's call, or refused it because it does not fit."""
    policy_fault: PolicyFault | None = None


class CallTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls of an attempt come to.

    Abandoned calls use up nothing of the budget: it must not pay for a holder's death.
    """

    num_started: int = 0
    num_ended: int = 0
    num_sampled: int = 0
    """Tokens, without those of abandoned calls and of side calls."""
    num_side_calls: int = 0
    """Side calls that were not failed by their engine, without abandoned ones."""
    num_policy_calls: int = 0
    """Ended calls that the policy answered or in which it was cut off, without abandoned ones."""
    untokened: tuple[str, ...] = ()
    """Calls of the policy that were answered without token ids or log-probabilities."""
    abandoned: frozenset[str] = frozenset()
    """Ids of ended calls that a resume left behind."""
    policy_fault: PolicyFault | None = None
    """Fault of the last call of the policy that an engine decided; None also where an engine failed at a later call,
    as its agent may have failed of that."""

    def plus_end(self, ended: EndedCall) -> "CallTotals":
        """Return the totals with a call that ended."""
        is_settled = ended.is_decided or not ended.spends_turn
        return msgspec.structs.replace(
            self,
            num_ended=self.num_ended + 1,
            num_sampled=self.num_sampled + ended.num_sampled,
            num_side_calls=self.num_side_calls - (ended.is_side_call and not ended.spends_turn),
            num_policy_calls=self.num_policy_calls + ended.is_of_policy,
            untokened=(*self.untokened, ended.call_id) if ended.lacks_tokens else self.untokened,
            policy_fault=ended.policy_fault if is_settled else self.policy_fault,
        )

    def without(self, abandoned: Collection[EndedCall]) -> "CallTotals":
        """Return the totals after a resume that left these calls behind, the last ones."""
        return msgspec.structs.replace(
            self,
            num_sampled=self.num_sampled - sum(one.num_sampled for one in abandoned),
            num_side_calls=self.num_side_calls - sum(one.is_side_call and one.spends_turn for one in abandoned),
            num_policy_calls=self.num_policy_calls - sum(one.is_of_policy for one in abandoned),
            abandoned=self.abandoned | {one.call_id for one in abandoned},
            policy_fault=None if any(one.is_decided for one in abandoned) else self.policy_fault,
        )


class PromptContents(msgspec.Struct, frozen=True, kw_only=True):
    """A request, compared with what its rollout asked before."""

    state: StepState
    contents: list[Content]
    """Messages and tools that are not stored for this trajectory yet."""
    before: PrefixAnchor | None
    """The answered call whose messages these begin with."""
    num_asked: int
    """Number of its messages, without the beginning of an answer."""
    last_answer: int
    """Where among these the last assistant message stands; -1: there is none."""
    messages: Hashed
    """Hash of these."""
    digest: int
    """Digest of the whole prompt."""
    request: ChatRequest
    """The request, with the model's answers as they were sampled."""
    known_answers: AnsweredMessages
    """Answers that were hashed before."""

    @property
    def place(self) -> str:
        """Where its answer stands, see ``find_place``."""
        return find_place(self.request, self.messages.hash)

    def hash_answers(self) -> list[HashedAnswer]:
        """Hash the assistant messages of the history."""
        indices = [index for index in range(self.last_answer + 1) if self.request.roles[index] == ANSWERER]
        return [self.known_answers.hash_answer(self.request, index) for index in indices]


@dataclass(kw_only=True, slots=True)
class CallHistory:
    """A rollout's calls so far, as its next calls need them: most of an open rollout, and nothing of a closed one."""

    calls: CallTable = field(default_factory=CallTable)
    turns: Counter[str] = field(default_factory=Counter[str])
    """Calls that spend the turn of each question, without abandoned ones; a question that is asked again spends one.
    Side calls spend none."""
    ended: list[EndedCall] = field(default_factory=list[EndedCall])
    """Calls in order of their end."""
    sequences: PrefixTable[PrefixAnchor] = field(default_factory=PrefixTable[PrefixAnchor])
    """Token sequences, prompt and answer."""
    prompts: PrefixTable[PrefixAnchor] = field(default_factory=PrefixTable[PrefixAnchor])
    """Message lists of prompts."""
    answers: AnsweredMessages = field(default_factory=AnsweredMessages)
    """Answers of the model."""
    stored: set[str] = field(default_factory=set[str])
    """Hashes of contents that are stored."""
    engine: str | None = None
    """Address of the engine that answered last: its cache holds the conversation."""

    def take_back_turns(self, question_ids: Iterable[str]) -> None:
        """Count calls no more, one of each of these questions."""
        for question_id in question_ids:
            self.turns[question_id] -= 1
            if self.turns[question_id] <= 0:
                del self.turns[question_id]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What the opener of an attempt decides for all of its holders."""

    sampling: JsonObject = {}
    """Takes the place of what the policy's agents ask."""
    sampling_seed: int | None = None
    """Decides the seed of each call; None: calls have none."""
    side_calls: SideCalls = NO_SIDE_CALLS
    scorer: str | None = None
    """Alone rewards it; None: its agent may."""
    records_lifecycle: bool = True
    """The gateway writes its beginning and end; False: a worker does."""
    calls_optional: bool = False


@dataclass(kw_only=True, slots=True)
class Lease:
    """One holder's hold on an attempt: its key, and what it does now. Times are by the clock of ``RolloutRegistry``."""

    api_key: str
    end_of_key: float | None = None
    """None: the key holds until the rollout is closed."""
    paused_at: float | None = None
    """When the attempt was paused (same clock); its key is refused since. None: not paused."""
    used_at: float = 0.0
    active_at: float
    """When a call last began or ended."""
    has_checkpoint: bool = False
    """There is a checkpoint of it, from which another holder may go on."""
    is_resumed: bool = False
    """Another holder resumed it."""
    waits: BusyClock = field(default_factory=BusyClock)
    """Questions that wait for an answer, at an engine or for a place at one."""
    running: set[asyncio.Task[object]] = field(default_factory=set[asyncio.Task[object]])
    """Calls that closing the rollout cancels."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt is worth, as far as it was decided here."""

    rewards: tuple[Reward, ...] = ()
    outcome: Outcome | None = None
    """None until the attempt is ended here."""
    is_accepted: bool = False


_UNJUDGED: Final = Judgement()
_NO_CALLS: Final = CallTotals()


@dataclass(kw_only=True, slots=True)
class LiveRollout:
    """One attempt at a rollout. Thousands of closed ones stay known, so what only calls need lies in its history."""

    started: AttemptStarted
    terms: Terms
    lease: Lease
    budget: Budget
    totals: CallTotals = _NO_CALLS
    judgement: Judgement = _UNJUDGED
    known_calls: CallHistory | None = field(default_factory=CallHistory)
    """None once it is closed."""
    bodies: BodyQuota = field(default_factory=BodyQuota)
    logs: set[str] = field(default_factory=set[str])
    """Names of the log files in which its records lie."""
    refusals: frozenset[str] = frozenset()
    """Codes with which requests of its agent were refused."""
    is_open: bool = True

    @property
    def trajectory_id(self) -> str:
        """Name of the attempt."""
        return self.started.trajectory_id

    @property
    def history(self) -> CallHistory:
        """Calls so far; of a closed rollout an empty history, which keeps nothing."""
        return CallHistory() if self.known_calls is None else self.known_calls

    @property
    def findings(self) -> list[str]:
        """What was noticed of the attempt as a whole."""
        return [f"{REFUSED}: {code}" for code in sorted(self.refusals)]

    def check_holder(self, key: str | None) -> None:
        """Raise RefusedError when this key does not hold the attempt, or no longer does."""
        if key is None or (
            self.lease.paused_at is None and hmac.compare_digest(key.encode(), self.lease.api_key.encode())
        ):
            return
        raise RefusedError(
            412,
            "rollout_handed_on",
            f"rollout {self.trajectory_id}: this key no longer owns the attempt (it was paused or resumed elsewhere);"
            " stop using it",
        )

    @property
    def quiet_seconds(self) -> float:
        """Time since the last call began or ended."""
        return self.budget.clock() - self.lease.active_at

    def check_is_open(self) -> None:
        """Raise RefusedError when the attempt is closed or paused."""
        if self.lease.paused_at is not None:
            raise RefusedError(
                410,
                "rollout_paused",
                f"rollout {self.trajectory_id}: it is paused and goes on elsewhere; end the agent",
            )
        if not self.is_open:
            raise RefusedError(
                410,
                "rollout_closed",
                f"rollout {self.trajectory_id}: it is closed and takes no more calls or rewards; end the agent",
            )

    def check_may_call(self, question_id: str | None = None, *, is_aux: bool = False) -> None:
        """Raise RefusedError when the attempt is closed or has used up its budget.

        Args:
            question_id: the question that is asked again, whose turn may be spent already; None: it is new.
            is_aux: a side call asks, which the turns and tokens of the policy do not limit.
        """
        self.check_is_open()
        turns = self.history.turns
        if is_aux:
            spent = self.budget.spent(None, None, self.totals.num_side_calls)
        else:
            spent = self.budget.spent(len(turns) - (question_id in turns), self.totals.num_sampled)
        if spent:
            raise RefusedError(
                429, "rollout_limit", f"rollout {self.trajectory_id}: its limit of {spent} is used up; end here"
            )

    def check_fits(self, num_prompt: int) -> None:
        """Raise RefusedError when a prompt leaves no room for an answer in the task's context."""
        most = self.budget.limits.context_tokens
        if most is not None and num_prompt >= most:
            self.totals = msgspec.structs.replace(self.totals, policy_fault="context_full")
            raise RefusedError(
                400,
                CONTEXT_FULL,
                f"rollout {self.trajectory_id}: its prompt has {num_prompt} tokens, its context is limited to {most};"
                " shorten the messages, or end here",
            )

    def fixed_sampling(self, request: ChatRequest, *, is_aux: bool = False) -> JsonObject:
        """Return what the task puts in place of the sampling of its policy, not of a judge (``is_aux``).

        Engines refuse a choice of tools where a request has none.
        """
        fixed = {} if is_aux else self.terms.sampling
        return fixed if request.has_tools else {name: fixed[name] for name in fixed if name not in _OF_TOOLS}

    def sampling_for(
        self, request: ChatRequest, call: Call, num_prompt: int | None = None, *, is_aux: bool = False
    ) -> JsonObject:
        """Return what takes the place of the sampling that a request asks for; see ``Budget.cap``.

        A side call (``is_aux``) gets its seed alone.
        """
        fixed = self.fixed_sampling(request, is_aux=is_aux)
        if (seed := self.terms.sampling_seed) is not None:
            fixed = {"seed": derive_seed(seed, call.agent or "", call.number)} | fixed
        if is_aux:
            return {} if request.endpoint == "embeddings" else fixed
        return fixed | self.budget.cap(request.sampling | fixed, self.totals.num_sampled, num_prompt)

    def record_start(self, question_id: str, stored: Iterable[str], *, is_aux: bool = False) -> None:
        """Count a call whose start is in the log.

        Args:
            question_id: see ``Call``; the question spends a turn.
            stored: hashes of the contents that are in the log with it.
            is_aux: it is a side call, and spends one of these instead of a turn.
        """
        totals, history = self.totals, self.history
        self.totals = msgspec.structs.replace(
            totals, num_started=totals.num_started + 1, num_side_calls=totals.num_side_calls + is_aux
        )
        if not is_aux:
            history.turns[question_id] += 1
        history.stored.update(stored)
        self.lease.active_at = self.budget.clock()

    def record_end(self, ended: EndedCall) -> None:
        """Count a call whose end is in the log."""
        self.totals = self.totals.plus_end(ended)
        history = self.history
        history.ended.append(ended)
        if not ended.spends_turn and not ended.is_side_call:
            history.take_back_turns([ended.question_id])
        self.lease.active_at = self.budget.clock()

    @contextmanager
    def running_task(self) -> Generator[None]:
        """Cancel scope: closing the rollout cancels the current task inside the block."""
        task = asyncio.current_task()
        running = self.lease.running
        if task:
            running.add(task)
        try:
            yield
        finally:
            if task:
                running.discard(task)

    def inspect_prompt(self, request: ChatRequest, *, with_reasoning: bool = False) -> PromptContents:
        """Name the request's messages and tools by hash, and find what it continues. Records nothing.

        Args:
            request: what the agent asks.
            with_reasoning: reasoning that the agent dropped is put back.
        """
        history = self.history
        restored = history.answers.restore(request, with_reasoning=with_reasoning)
        request, hashes, tools = restored.request, restored.hashes, restored.request.tool_facts
        num_asked = len(hashes) - request.is_prefilled
        sequence = "".join(hashes[:num_asked]).encode()
        match, earlier = history.prompts.find(sequence[:-_HASH_LENGTH])
        before = match.key if match else None
        tools_name = None if tools is None or request.tools is None else name_stored(tools, request.tools)
        return PromptContents(
            state=StepState(messages=hashes, tools=tools_name),
            contents=self._new_contents(request, hashes, tools_name),
            before=before,
            num_asked=num_asked,
            last_answer=_last_answer(request.roles[:num_asked]),
            messages=earlier.extended(sequence[-_HASH_LENGTH:]),
            digest=hash((*hashes, request.rest())),
            request=request,
            known_answers=history.answers,
        )

    def _new_contents(self, request: ChatRequest, hashes: list[str], tools: str | None) -> list[Content]:
        """What is not stored for this trajectory yet; where a part is stored, so are its images."""
        new: dict[str, bytes] = {}
        stored, texts = self.history.stored, zip(request.messages, request.facts, hashes, strict=True)
        wanted: list[tuple[msgspec.Raw, MessageFacts | ToolFacts, str]] = [one for one in texts if one[2] not in stored]
        if request.tools and request.tool_facts and tools and tools not in stored:
            wanted.append((request.tools, request.tool_facts, tools))
        for text, facts, name in wanted:
            part = stored_part(bytes(text)) if facts.has_files else Part(name, bytes(text), {})
            new |= {one: body for one, body in part.media.items() if one not in stored} | {name: part.body}
        return [Content(trajectory_id=self.trajectory_id, hash=name, body=body) for name, body in new.items()]


def _last_answer(roles: list[str]) -> int:
    return len(roles) - 1 - roles[::-1].index(ANSWERER) if ANSWERER in roles else -1


def new_key() -> str:
    """Mint a rollout's key."""
    return f"{KEY_PREFIX}{secrets.token_urlsafe(24)}"


def new_rollout(
    request: OpenRequest,
    run: str,
    mint: Callable[[], str] = new_id,
    clock: Callable[[], float] = time.monotonic,
    *,
    max_side_calls: int | None = None,
) -> LiveRollout:
    """Build the attempt that a client opens.

    Args:
        request: what the opener said.
        run: run of rollouts that name none.
        mint: makes ids of rollouts that have none.
        clock: seconds from any beginning; measures the budget.
        max_side_calls: see ``Budget``.

    Raises: BadInputError: a name cannot stand in addresses, or its sampling names what is none, or no engine can serve.
    """
    started = make_attempt_started(request, rollout_id=mint(), run=run, at=time.time())
    check_name(started.rollout_id, "rollout")
    check_name(started.run, "run")
    if started.attempt < 0:
        raise BadInputError(
            f"rollout {started.rollout_id}: attempts count from 0, found {started.attempt}; choose another"
        )
    if fixed := NOT_SAMPLING.intersection(request.sampling):
        raise BadInputError(
            f"rollout {started.rollout_id}: expected sampling to name what shapes an answer, found"
            f" {', '.join(sorted(fixed))}, which the agent or the gateway decides; leave it out"
        )
    check_counts(request.sampling, f"rollout {started.rollout_id}: its sampling")
    opened_at = clock()
    return LiveRollout(
        started=started,
        terms=Terms(
            sampling=request.sampling,
            sampling_seed=request.sampling_seed,
            side_calls=SideCalls(request.side_calls, f"rollout {started.rollout_id}"),
            scorer=request.scorer,
            records_lifecycle=request.owner != "worker",
            calls_optional=request.calls_optional,
        ),
        lease=Lease(api_key=new_key(), active_at=opened_at),
        budget=Budget(
            limits=request.limits or Limits(), max_side_calls=max_side_calls, clock=clock, opened_at=opened_at
        ),
    )
