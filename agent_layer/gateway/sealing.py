"""This file holds how an attempt is closed, and how one without a worker is sealed, judged and accepted."""

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol, cast

from redis import Redis

from agent_layer.errors import NotWholeError
from agent_layer.gateway.flight import Log
from agent_layer.gateway.rollouts import LiveRollout, Rollouts
from agent_layer.gateway.waiting import wait_until
from agent_layer.schema.codec import LogRecord, decode
from agent_layer.schema.gateway import ClosedRollout, EndedRollout, EndRequest
from agent_layer.schema.ids import new_id
from agent_layer.schema.record import Record
from agent_layer.schema.reward import Reward, rollout_reward
from agent_layer.schema.rollout import Accepted, Cause, Outcome, RolloutStatus
from agent_layer.settings import Settings
from agent_layer.store.keys import Keys
from agent_layer.store.sealing import count_calls

__all__ = ["Sealer", "SettlingLog", "reward_of"]

_ACCEPTABLE: frozenset[str] = frozenset({"completed", "truncated"})


class SettlingLog(Log, Protocol):
    """A log that knows what became of its files."""

    def is_settled(self, log_name: str) -> bool:
        """Whether everything in this file is stored and indexed."""
        ...


@dataclass(frozen=True, kw_only=True)
class Sealer:
    """Closes and seals rollouts."""

    settings: Settings
    rollouts: Rollouts
    log: SettlingLog
    redis: Redis
    keys: Keys

    async def close(self, rollout: LiveRollout) -> ClosedRollout:
        """Refuse new calls, let the running ones end, cut off those that take longer than ``close_seconds``.

        Calls are counted wherever they are stored; rewards that came through here are not, so they are waited for.

        Raises: NotWholeError: a reward is not stored within ``seal_seconds``.
        """
        self.rollouts.close(rollout)
        if running := set(rollout.running):
            await asyncio.wait(running, timeout=self.settings.close_seconds)
        await self.cut_off(rollout)
        if rollout.rewards:
            await self._wait_stored(rollout)
        return ClosedRollout(trajectory_id=rollout.trajectory_id, started=rollout.num_started, ended=rollout.num_ended)

    async def cut_off(self, rollout: LiveRollout) -> None:
        """Refuse new calls, and let the running ones end at once."""
        self.rollouts.close(rollout)
        if running := set(rollout.running):
            for task in running:
                task.cancel()
            await asyncio.wait(running)
        rollout.forget_calls()

    async def end(self, rollout: LiveRollout, request: EndRequest) -> EndedRollout:
        """Close the attempt, wait until every call of it is stored, then judge and accept it.

        Raises: NotWholeError: a call is missing after ``seal_seconds``; nothing is accepted.
        """
        closed = await self.close(rollout)
        await self._wait_stored(rollout)
        await self._check_whole(closed)
        if rollout.outcome is None:
            self._judge(rollout, request)
            await wait_until(lambda: self._are_settled(rollout.logs), self.settings.flush_seconds)
        return EndedRollout(
            trajectory_id=rollout.trajectory_id,
            accepted=rollout.outcome is not None and rollout.outcome.status in _ACCEPTABLE,
            reward=await asyncio.to_thread(self._reward_of, rollout),
            started=closed.started,
            ended=closed.ended,
        )

    def _judge(self, rollout: LiveRollout, request: EndRequest) -> None:
        """Record reward, outcome and acceptance together: they are seen together."""
        started, now = rollout.started, time.time()
        records: list[LogRecord] = []
        if request.reward is not None:
            records.append(reward_of(rollout, request.reward))
        rollout.outcome = Outcome(
            trajectory_id=started.trajectory_id,
            run=started.run,
            status=request.status,
            ended_at=now,
            cause=_cause_of(request.status),
            num_calls=rollout.num_started,
        )
        records.append(rollout.outcome)
        if request.status in _ACCEPTABLE:
            accepted = Accepted(
                trajectory_id=started.trajectory_id,
                rollout_id=started.rollout_id,
                run=started.run,
                accepted_at=now,
                group_id=started.group_id,
            )
            records.append(accepted)
        rollout.logs.add(self.log.append(*records))

    async def _wait_stored(self, rollout: LiveRollout) -> None:
        limit = self.settings.seal_seconds
        if not await wait_until(lambda: self._are_settled(rollout.logs), limit):
            raise NotWholeError(
                f"rollout {rollout.trajectory_id}: expected its log to be stored within {limit:.0f} s, but it is not;"
                f" look at {self.settings.log_dir}/shipper.log and end it again"
            )

    async def _check_whole(self, closed: ClosedRollout) -> None:
        stored = await asyncio.to_thread(count_calls, self.redis, self.keys, closed.trajectory_id)
        if not closed.started == closed.ended <= stored.ended == stored.started:
            raise NotWholeError(
                f"rollout {closed.trajectory_id}: expected each of its {closed.started} calls to be stored whole,"
                f" found {closed.ended} ended here and {stored.ended} of {stored.started} stored; open another attempt"
            )

    def _are_settled(self, logs: set[str]) -> bool:
        logs -= {name for name in logs if self.log.is_settled(name)}
        return not logs

    def _reward_of(self, rollout: LiveRollout) -> float | None:
        """Reward by everything that is known: what came through here, and what others stored."""
        values = cast("list[bytes]", self.redis.hvals(self.keys.rewards(rollout.trajectory_id)))
        stored: list[Record] = [decode(value) for value in values]
        known = {reward.reward_id: reward for reward in [*stored, *rollout.rewards] if isinstance(reward, Reward)}
        return rollout_reward(rollout.started.rewards, list(known.values()), rollout.outcome)


def reward_of(rollout: LiveRollout, score: float | None, name: str = "reward", step: int | None = None) -> Reward:
    """Note a judgement that came through this gateway."""
    reward = Reward(
        trajectory_id=rollout.trajectory_id,
        reward_id=new_id(),
        run=rollout.started.run,
        at=time.time(),
        name=name,
        score=score,
        scope="rollout" if step is None else "step",
        step=step,
        status="missing" if score is None else "ok",
    )
    rollout.rewards.append(reward)
    return reward


def _cause_of(status: RolloutStatus) -> Cause | None:
    """A truncated rollout ran out of budget; one that failed did so in its agent's code."""
    if status == "truncated":
        return "policy"
    return None if status == "completed" else "user"
