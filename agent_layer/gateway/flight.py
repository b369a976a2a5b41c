"""This file holds a call in flight: begun with a record, ended with a record, each exactly once."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from agent_layer.gateway.capture import at_engine, end_part, remember, start_part
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.completions import Completions
from agent_layer.gateway.dialects.dialect import Dialect, Exchange
from agent_layer.gateway.policy_runs import runs_of
from agent_layer.gateway.provider import Provider
from agent_layer.gateway.retries import Call
from agent_layer.gateway.rollouts import Asked, EndedCall, LiveRollout
from agent_layer.schema.codec import LogRecord
from agent_layer.schema.step import Action, PolicyRun, StepPart, StepStatus
from agent_layer.store.engines import Engine

__all__ = ["Flight", "Log", "Question"]


class Log(Protocol):
    """Where records go: the recorder."""

    def append(self, *records: LogRecord) -> str:
        """Write records; give the name of the log file."""
        ...

    def has_room(self) -> bool:
        """Whether the log is below its quota."""
        ...


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A request and the rollout that asks it."""

    rollout: LiveRollout
    request: ChatRequest
    asked: Asked
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
        rollout.note_sign()
        call.is_started = True
        return cls(question=question, engine=engine, log=log, start=start)

    def move_to(self, engine: Engine) -> None:
        """Go on to another engine, as the same call."""
        self.start = at_engine(self.start, engine)
        self.arrive(engine)
        self.is_moved, self.runs = True, []

    def leave(self, num_tokens: int) -> None:
        """Give up the place in the middle of an answer, of which so many tokens are sampled."""
        self.runs = runs_of(self.runs, self.engine.version, num_tokens)
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
        rollout.note_sign()
        call.is_good = is_whole
        if is_whole and self.start.role != "aux" and part.capture_level != "tokens":
            rollout.untokened.append(call.call_id)

    def _continued(self, part: StepPart) -> StepPart:
        """Say which weights sampled what."""
        actions = [self._versioned(action) for action in part.actions or ()] or None
        return msgspec.structs.replace(part, actions=actions, findings=[*part.findings, "continued"])

    def _versioned(self, action: Action) -> Action:
        num_tokens = len(action.response_token_ids or ())
        return msgspec.structs.replace(action, policy_versions=runs_of(self.runs, self.engine.version, num_tokens))

    def _moved(self, part: StepPart) -> StepPart:
        """The start names an engine that failed; the end names the one that answered."""
        return msgspec.structs.replace(at_engine(part, self.engine), findings=[*part.findings, "engine_changed"])
