"""This file holds the rollouts whose calls come through this gateway: their keys, budgets and what they said so far."""

import asyncio
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.gateway.answers import RefusedError
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.prefix import Hashed, PrefixTable
from agent_layer.gateway.retries import CallTable
from agent_layer.schema.ids import content_hash, trajectory_id_of
from agent_layer.schema.record import JsonObject
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import AttemptStarted, Outcome
from agent_layer.schema.step import Content, StepState
from agent_layer.schema.task import Limits

__all__ = ["Asked", "LiveRollout", "Place", "Rollouts", "new_key"]

_MAX_CLOSED = 10_000
"""Closed rollouts that are still answered for; each is a few hundred bytes."""


class Place(msgspec.Struct, frozen=True):
    """Where an answer stands among the conversations of its rollout."""

    call_id: str
    choice: int
    conversation: str
    num_messages: int
    """Messages that were asked."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request, seen against what its rollout asked before."""

    state: StepState
    contents: list[Content]
    """Messages and tools that are not stored for this trajectory yet."""
    before: Place | None
    """The answered call whose messages these begin with."""
    is_continued: bool
    """After those messages comes an answer, so tokens should continue too."""
    messages: Hashed
    digest: int
    """Of everything that was asked."""


@dataclass(kw_only=True, slots=True)
class LiveRollout:
    """One attempt at a rollout."""

    started: AttemptStarted
    api_key: str
    limits: Limits = field(default_factory=Limits)
    sampling: JsonObject = field(default_factory=dict[str, object])
    is_ours: bool = True
    """The gateway writes its beginning and end; False: a worker does."""
    is_open: bool = True
    used_at: float = 0.0
    """By the clock of ``Rollouts``."""
    num_started: int = 0
    num_ended: int = 0
    num_sampled: int = 0
    rewards: list[Reward] = field(default_factory=list[Reward])
    outcome: Outcome | None = None
    """None until it is ended here."""
    logs: set[str] = field(default_factory=set[str])
    """Names of the log files in which its records lie."""
    calls: CallTable = field(default_factory=CallTable)
    sequences: PrefixTable[Place] = field(default_factory=PrefixTable[Place])
    """Token sequences, prompt and answer."""
    talks: PrefixTable[Place] = field(default_factory=PrefixTable[Place])
    """Message lists that were asked."""
    stored: set[str] = field(default_factory=set[str])
    """Hashes of contents that are stored."""
    running: set[asyncio.Task[object]] = field(default_factory=set[asyncio.Task[object]])

    @property
    def trajectory_id(self) -> str:
        """Name of the attempt."""
        return self.started.trajectory_id

    def check_is_open(self) -> None:
        """Raise RefusedError when the attempt is closed."""
        if not self.is_open:
            raise RefusedError(
                410,
                "rollout_closed",
                f"rollout {self.trajectory_id}: it is closed and takes no more calls or rewards; end the agent",
            )

    def check_may_call(self) -> None:
        """Raise RefusedError when the attempt is closed or has used up its budget."""
        self.check_is_open()
        for name, used, limit in (
            ("model calls", self.num_started, self.limits.turns),
            ("sampled tokens", self.num_sampled, self.limits.tokens),
        ):
            if limit is not None and used >= limit:
                raise RefusedError(
                    429,
                    "rollout_limit",
                    f"rollout {self.trajectory_id}: its limit of {limit} {name} is used up; end here",
                )

    def see(self, request: ChatRequest) -> Asked:
        """Name the request's messages and tools by hash, and find what it continues. Changes nothing."""
        bodies = [bytes(message) for message in request.messages]
        hashes = [content_hash(body) for body in bodies]
        tools = None if request.tools is None else content_hash(bytes(request.tools))
        sequence = "".join(hashes).encode()
        match, earlier = self.talks.find(sequence[:-_HASH_LENGTH])
        before = match.key if match else None
        return Asked(
            state=StepState(messages=hashes, tools=tools),
            contents=self._new_contents(hashes, bodies, tools, request),
            before=before,
            is_continued=before is not None and request.role_of(before.num_messages) == "assistant",
            messages=earlier.extended(sequence[-_HASH_LENGTH:]),
            digest=hash((sequence, request.rest())),
        )

    def forget_calls(self) -> None:
        """Let go of what only further calls would need."""
        self.calls, self.stored = CallTable(), set()
        self.sequences, self.talks = PrefixTable[Place](), PrefixTable[Place]()

    def _new_contents(
        self, hashes: list[str], bodies: list[bytes], tools: str | None, request: ChatRequest
    ) -> list[Content]:
        """What is not stored for this trajectory yet."""
        new = {name: body for name, body in zip(hashes, bodies, strict=True) if name not in self.stored}
        if tools is not None and request.tools is not None and tools not in self.stored:
            new[tools] = bytes(request.tools)
        return [Content(trajectory_id=self.trajectory_id, hash=name, body=body) for name, body in new.items()]


_HASH_LENGTH = 32


class Rollouts:
    """All rollouts that this process knows. A restarted gateway knows none: their attempts are lost."""

    def __init__(self, operator_key: str, idle_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._operator_key = operator_key.encode()
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._live: OrderedDict[str, LiveRollout] = OrderedDict()
        """In the order of their last use."""
        self._closed: OrderedDict[str, LiveRollout] = OrderedDict()
        self._newest: dict[str, int] = {}
        """By rollout the highest attempt."""

    def is_operator(self, key: str) -> bool:
        """Whether this is the operator's key, compared in constant time."""
        return hmac.compare_digest(key.encode(), self._operator_key)

    def add(self, rollout: LiveRollout) -> LiveRollout:
        """Take a rollout in; the same attempt opened again is the one that is there.

        Raises: BadInputError: the attempt was closed before.
        """
        self._close_idle()
        if rollout.trajectory_id in self._closed:
            raise BadInputError(
                f"rollout {rollout.trajectory_id}: it is closed and cannot be opened again; open another attempt"
            )
        found = self._live.setdefault(rollout.trajectory_id, rollout)
        self._note_use(found)
        rollout_id, attempt = rollout.started.rollout_id, rollout.started.attempt
        self._newest[rollout_id] = max(attempt, self._newest.get(rollout_id, attempt))
        return found

    def find_overtaken(self, rollout: LiveRollout) -> LiveRollout | None:
        """The open attempt whose place a later one takes: whoever made it is gone."""
        rollout_id, newest = rollout.started.rollout_id, self._newest.get(rollout.started.rollout_id)
        if newest is None or newest >= rollout.started.attempt:
            return None
        return self._live.get(trajectory_id_of(rollout_id, newest))

    def forget(self, rollout: LiveRollout) -> None:
        """Undo ``add``."""
        self._live.pop(rollout.trajectory_id, None)

    def find(self, trajectory_id: str) -> LiveRollout:
        """Find an attempt, closed ones included.

        Raises: NotFoundError: this process never opened it.
        """
        self._close_idle()
        found = self._live.get(trajectory_id) or self._closed.get(trajectory_id)
        if found is None:
            raise NotFoundError(
                f"rollout {trajectory_id}: this gateway does not know it; it was never opened here, or the gateway was"
                " started anew since: count the attempt as lost and open another"
            )
        self._note_use(found)
        return found

    def find_attempt(self, rollout_id: str, attempt: int | None) -> LiveRollout:
        """Find one attempt at a rollout; None: the newest.

        Raises: NotFoundError: this process never opened it.
        """
        return self.find(trajectory_id_of(rollout_id, self._newest.get(rollout_id, 0) if attempt is None else attempt))

    def enter(self, trajectory_id: str, key: str) -> LiveRollout:
        """Find an attempt for whoever holds its key, or the operator's.

        Raises: RefusedError: the key opens neither. NotFoundError: the operator named an unknown attempt.
        """
        if not self.is_operator(key):
            found = self._live.get(trajectory_id) or self._closed.get(trajectory_id)
            if found is None or not hmac.compare_digest(key.encode(), found.api_key.encode()):
                raise RefusedError(
                    401, "invalid_api_key", "gateway: this key is not the rollout's; use the one it was given"
                )
        return self.find(trajectory_id)

    def close(self, rollout: LiveRollout) -> None:
        """Take no more calls for it."""
        rollout.is_open = False
        if self._live.pop(rollout.trajectory_id, None):
            self._closed[rollout.trajectory_id] = rollout
        while len(self._closed) > _MAX_CLOSED:
            _, oldest = self._closed.popitem(last=False)
            if self._newest.get(oldest.started.rollout_id) == oldest.started.attempt:
                del self._newest[oldest.started.rollout_id]

    def _note_use(self, rollout: LiveRollout) -> None:
        rollout.used_at = self._clock()
        if rollout.trajectory_id in self._live:
            self._live.move_to_end(rollout.trajectory_id)

    def _close_idle(self) -> None:
        """Close what was not used for too long, unless a call of it still runs."""
        used_before = self._clock() - self._idle_seconds
        while self._live and (oldest := next(iter(self._live.values()))).used_at < used_before:
            if oldest.running:
                self._note_use(oldest)
            else:
                self.close(oldest)
                oldest.forget_calls()


def new_key() -> str:
    """Mint a rollout's key."""
    return f"rk-{secrets.token_urlsafe(24)}"
