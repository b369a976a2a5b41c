"""Finalizer: closes attempts, and seals, judges and accepts those that no worker ends.

A sealed attempt is stored whole. Another process ships its log files, so the finalizer polls until they are settled.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import msgspec
from redis import Redis

from agent_layer.errors import BackPressureError, CaptureError, NotWholeError
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.rollouts.counters import SettlingLog
from agent_layer.gateway.rollouts.registry import RolloutRegistry
from agent_layer.gateway.rollouts.retries import ResponseCache
from agent_layer.gateway.rollouts.rollout import LiveRollout
from agent_layer.infra import Keys
from agent_layer.schema import (
    MISSED_FORM,
    NO_POLICY_CALL,
    Accepted,
    Cause,
    ClosedRollout,
    EndedRollout,
    EndRequest,
    LogRecord,
    Outcome,
    PolicyFault,
    Record,
    Reward,
    RewardRequest,
    RolloutStatus,
    decode,
    new_id,
    rollout_reward,
)
from agent_layer.settings import Settings
from agent_layer.state import check_trainable, count_calls, explain_no_policy_call

_POLL_SECONDS = 0.02
_ACCEPTABLE: frozenset[str] = frozenset({"completed", "truncated"})


async def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds; False when it does not within this time."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  # the condition lies in the file system, no event tells of it
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Finalizer:
    """Ends rollouts."""

    settings: Settings
    rollouts: RolloutRegistry
    log: SettlingLog
    redis: Redis
    keys: Keys
    cache: ResponseCache
    """Cache of answers, for retries."""

    def record_start(self, rollout: LiveRollout) -> None:
        """Record the beginning, unless a worker does.

        Raises: BackPressureError: the log is full.
        """
        self.check_room(rollout)
        if rollout.terms.records_lifecycle:
            rollout.logs.add(self.log.append(rollout.started))

    def check_room(self, rollout: LiveRollout) -> None:
        """Raise BackPressureError when the log is full."""
        if not self.log.has_room():
            raise BackPressureError(
                f"rollout {rollout.trajectory_id}: expected room in the gateway's log to begin, found it over"
                f" {self.settings.log_quota_bytes} bytes; open it again later, and see shipper.log in"
                f" {self.settings.log_dir}"
            )

    async def abort(self, rollout: LiveRollout, why: str) -> None:
        """End an attempt that lost its holder: its outcome is lost, unless a worker records another.

        Raises: BackPressureError: the log is full.
        """
        await self.cut_off(rollout)
        if rollout.terms.records_lifecycle and rollout.judgement.outcome is None:
            self._record_fault(rollout, "lost", why)

    async def close(self, rollout: LiveRollout, *, abort: bool = False) -> ClosedRollout:
        """Refuse new calls, let the running ones end, cut off those that take longer than ``close_seconds``.

        Calls are counted wherever they are stored; rewards that came through here and resumes are not, so they are
        waited for.

        Args:
            rollout: which one.
            abort: cut off all of them at once.

        Raises: NotWholeError: a reward or resume is not stored within ``seal_seconds``.
        """
        self.rollouts.close(rollout)
        if not abort and (running := set(rollout.lease.running)):
            await asyncio.wait(running, timeout=self.settings.close_seconds)
        await self.cut_off(rollout)
        if rollout.judgement.rewards or rollout.lease.is_resumed:
            await self._wait_stored(rollout)
        totals = rollout.totals
        return ClosedRollout(
            trajectory_id=rollout.trajectory_id,
            started=totals.num_started,
            ended=totals.num_ended,
            untokened=[call_id for call_id in totals.untokened if call_id not in totals.abandoned],
            policy_calls=totals.num_policy_calls,
            findings=rollout.findings,
            policy_fault=totals.policy_fault,
        )

    async def cut_off(self, rollout: LiveRollout) -> None:
        """Refuse new calls, and let the running ones end at once."""
        self.rollouts.close(rollout)
        await self.stop_calls(rollout)
        self.cache.clear(rollout.history.calls.all())
        rollout.known_calls = None

    async def stop_calls(self, rollout: LiveRollout) -> None:
        """Let the running calls end at once, down to the engine."""
        if running := set(rollout.lease.running):
            for task in running:
                task.cancel()
            await asyncio.wait(running)

    async def end(self, rollout: LiveRollout, request: EndRequest) -> EndedRollout:
        """Close the attempt, wait until every call of it is stored, then judge and accept it.

        Raises:
            NotWholeError: a call is missing after ``seal_seconds``; nothing is accepted.
            CaptureError: it is to be trained on and holds answers without tokens; it has failed.
            RefusedError: a later attempt has taken the place of this one.
        """
        newest = self.rollouts.find_newest(rollout)
        if rollout.judgement.outcome is None and newest and newest.started.attempt > rollout.started.attempt:
            raise RefusedError(
                409,
                "rollout_overtaken",
                f"rollout {rollout.trajectory_id}: {newest.trajectory_id} took its place, so this attempt cannot count;"
                " end the newer one",
            )
        closed = await self.close(rollout)
        fault = closed.policy_fault if request.status == "failed" else None
        if fault is not None:
            request = msgspec.structs.replace(request, status="truncated")
        await self._wait_stored(rollout)
        stored = await asyncio.to_thread(count_calls, self.redis, self.keys, closed.trajectory_id)
        if not closed.started == closed.ended <= stored.ended == stored.started:
            raise NotWholeError(
                f"rollout {closed.trajectory_id}: expected each of its {closed.started} calls to be stored whole,"
                f" found {closed.ended} ended here and {stored.ended} of {stored.started} stored; open another attempt"
            )
        if request.status in _ACCEPTABLE:
            try:
                check_trainable(closed, rollout.started.split)
            except CaptureError as error:
                if rollout.judgement.outcome is None:
                    self._record_fault(rollout, "failed", str(error))
                raise
        if rollout.judgement.outcome is None:
            self._judge(rollout, request, closed, fault)
            await wait_until(lambda: self._are_settled(rollout.logs), self.settings.flush_seconds)
        outcome, is_accepted = rollout.judgement.outcome, rollout.judgement.is_accepted
        return EndedRollout(
            trajectory_id=rollout.trajectory_id,
            accepted=is_accepted,
            reward=await asyncio.to_thread(self._compute_reward, rollout),
            started=closed.started,
            ended=closed.ended,
            error=outcome.error if outcome and is_accepted else None,
        )

    def _judge(
        self, rollout: LiveRollout, request: EndRequest, closed: ClosedRollout, fault: PolicyFault | None
    ) -> None:
        """Record reward, outcome and acceptance together: they are seen together."""
        started = rollout.started
        records: list[LogRecord] = []
        if request.reward is not None:
            records.append(record_reward(rollout, RewardRequest(score=request.reward)))
        outcome = _make_outcome(rollout, request.status, _find_cause(request.status))
        if fault == MISSED_FORM:
            outcome = msgspec.structs.replace(outcome, findings=[MISSED_FORM, *outcome.findings])
        if request.status == "failed" or fault is not None:
            error, where = request.error and request.error[:2_000], request.traceback and request.traceback[:8_000]
            outcome = msgspec.structs.replace(outcome, error=error, traceback=where)
        is_acceptable = request.status in _ACCEPTABLE
        error = explain_no_policy_call(closed, started.split, calls_optional=rollout.terms.calls_optional)
        if is_acceptable and error:
            findings = [NO_POLICY_CALL, *outcome.findings]
            outcome = msgspec.structs.replace(outcome, cause="user", error=error, findings=findings)
        rollout.judgement = msgspec.structs.replace(rollout.judgement, outcome=outcome)
        records.append(outcome)
        if is_acceptable:
            accepted = Accepted(
                trajectory_id=started.trajectory_id,
                rollout_id=started.rollout_id,
                run=started.run,
                accepted_at=outcome.ended_at,
                group_id=started.group_id,
            )
            records.append(accepted)
        rollout.logs.add(self.log.append(*records))
        rollout.judgement = msgspec.structs.replace(rollout.judgement, is_accepted=is_acceptable)

    def _record_fault(self, rollout: LiveRollout, status: RolloutStatus, why: str) -> None:
        """Record that an attempt ended by a fault that is neither the policy's nor its user's."""
        outcome = _make_outcome(rollout, status, "infra", why)
        rollout.judgement = msgspec.structs.replace(rollout.judgement, outcome=outcome)
        rollout.logs.add(self.log.append(outcome))

    async def _wait_stored(self, rollout: LiveRollout) -> None:
        limit = self.settings.seal_seconds
        if not await wait_until(lambda: self._are_settled(rollout.logs), limit):
            raise NotWholeError(
                f"rollout {rollout.trajectory_id}: expected its log to be stored within {limit:.0f} s, but it is not;"
                f" look at {self.settings.log_dir}/shipper.log and end it again"
            )

    def _are_settled(self, logs: set[str]) -> bool:
        logs -= {name for name in logs if self.log.is_settled(name)}
        return not logs

    def _compute_reward(self, rollout: LiveRollout) -> float | None:
        """Reward by everything that is known: what came through here, and what others stored."""
        values = cast("list[bytes]", self.redis.hvals(self.keys.rewards(rollout.trajectory_id)))
        stored: list[Record] = [decode(value) for value in values]
        judged = rollout.judgement
        known = {reward.reward_id: reward for reward in [*stored, *judged.rewards] if isinstance(reward, Reward)}
        return rollout_reward(rollout.started.rewards, list(known.values()), judged.outcome)


def record_reward(rollout: LiveRollout, request: RewardRequest) -> Reward:
    """Keep a reward that came through this gateway."""
    score = request.score if request.score is not None else request.reward
    reward = Reward(
        trajectory_id=rollout.trajectory_id,
        reward_id=new_id(),
        run=rollout.started.run,
        at=time.time(),
        name=request.name,
        score=None if score is None else float(score),
        scope="step" if request.step is not None else "agent" if request.agent is not None else "rollout",
        step=request.step,
        agent=request.agent,
        status="missing" if score is None else "ok",
    )
    judged = rollout.judgement
    rollout.judgement = msgspec.structs.replace(judged, rewards=(*judged.rewards, reward))
    return reward


def _make_outcome(
    rollout: LiveRollout, status: RolloutStatus, cause: Cause | None, error: str | None = None
) -> Outcome:
    return Outcome(
        trajectory_id=rollout.trajectory_id,
        run=rollout.started.run,
        status=status,
        ended_at=time.time(),
        cause=cause,
        error=error,
        num_calls=rollout.totals.num_started,
        findings=rollout.findings,
    )


def _find_cause(status: RolloutStatus) -> Cause | None:
    """A truncated rollout ran out of budget; one that failed did so in its agent's code."""
    if status == "truncated":
        return "policy"
    return None if status == "completed" else "user"
