"""This file holds one attempt: prepared, run, closed, scored, sealed, and what is reported of it.

``run`` takes up a slot of the worker; ``finish`` does not. Whatever goes wrong becomes a report, with the cause that
decides whether it may teach the model anything.
"""

import time
from collections.abc import Callable
from contextlib import suppress

import msgspec
from redis.exceptions import RedisError

from agent_layer.dispatcher import Lease, Report
from agent_layer.dispatcher.records import Ending as LeaseEnding
from agent_layer.errors import AgentLayerError, BackPressureError, BadInputError, CaptureError
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Outcome, PhaseTimes
from agent_layer.schema.trajectory import Trajectory
from envs.failures import Ending
from envs.heartbeat import Phase
from envs.running import AgentRun, Stop
from envs.scoring import Scorer, declared_rewards, judge, load_scorer, missing_scores, reported_scores, rewards_of
from envs.workplace import Workplace, close_attempt, open_attempt
from tracer import Rollout

__all__ = ["Attempt"]


class Attempt:
    """One attempt at the rollout of a lease.

    Args:
        lease: whose attempt it is.
        place: where it is done.
        on_phase: told when the attempt goes on to another phase.
    """

    def __init__(self, lease: Lease, place: Workplace, on_phase: Callable[[Lease, Phase], None]) -> None:
        self.lease = lease
        self.rollout: Rollout | None = None
        """None while the gateway has not opened it."""
        self._task = lease.task
        self._place = place
        self._on_phase = on_phase
        self._scorer: Scorer | None = None
        self._agent_run: AgentRun | None = None
        self._stop: Stop | None = None
        self._ending = Ending()
        self._if_refused: LeaseEnding = "retry"
        """How the lease ends when the attempt does not count."""
        self._result: object = None
        self._has_outcome = False
        self._times = PhaseTimes(queued_seconds=lease.queued_seconds)

    @property
    def is_turned_away(self) -> bool:
        """Whether the gateway did not open it."""
        return self.rollout is None and self._if_refused == "release"

    def stop(self, why: Stop) -> None:
        """End the run of the agent early."""
        self._stop = self._stop or why
        if self._agent_run is not None:
            self._agent_run.stop(why)

    async def run(self) -> None:
        """Open the attempt and let the agent run."""
        self._on_phase(self.lease, "running")
        try:
            self._scorer = load_scorer(self._task.scorer or self._place.scorer)
        except BadInputError as error:
            self._refuse(Ending(status="failed", cause="verifier", error=str(error)), "dead")
            return
        began = time.monotonic()
        try:
            rewards = declared_rewards(self._task, self._scorer)
            self.rollout = await self._place.call(open_attempt, self._place, self.lease, rewards)
        except AgentLayerError as error:
            self._refuse(Ending(status="lost", cause="infra", error=str(error)), "release")
            return
        self._note(prepare_seconds=time.monotonic() - began)
        await self._run_agent(self.rollout)

    async def finish(self) -> Report | None:
        """Close, score and seal the attempt; None when the lease is gone, so that there is nobody to tell."""
        try:
            num_calls = await self._close(self.rollout) if self.rollout else None
            if self.rollout and num_calls is not None and self._ending.status in ("completed", "truncated"):
                await self._accept(self.rollout, num_calls)
            else:
                self._write_outcome(num_calls)
        except CaptureError as error:
            self._refuse(Ending(status="failed", cause="infra", error=str(error)), "dead")
            self._write_outcome(None)
        except (AgentLayerError, RedisError, OSError) as error:
            self._ending = Ending(status="lost", cause="infra", error=f"{type(error).__name__}: {error}")
            with suppress(BackPressureError):  # where the disk is full, the report alone has to do
                self._write_outcome(None)
        return self._report()

    async def _close(self, rollout: Rollout) -> int:
        return await self._place.call(close_attempt, self._place, rollout, self._task.split)

    async def _run_agent(self, rollout: Rollout) -> None:
        self._agent_run = AgentRun(self._place.target, self._task, rollout)
        if self._stop is not None:
            self._agent_run.stop(self._stop)
        ran = await self._agent_run.wait(self._place.settings.close_seconds)
        self._ending, self._result = ran.ending, ran.result
        self._if_refused = "release" if self._stop == "drain" else "retry"
        self._note(run_seconds=ran.seconds)

    async def _accept(self, rollout: Rollout, num_calls: int) -> None:
        """Judge the attempt, write down how it ended, and wait until all of it is stored."""
        began = time.monotonic()
        rewards = await self._judge(rollout, num_calls)
        self._note(score_seconds=time.monotonic() - began)
        self._write_outcome(num_calls, *rewards)
        self._on_phase(self.lease, "sealing")
        await self._wait_stored(rollout, num_calls)

    async def _judge(self, rollout: Rollout, num_calls: int) -> list[Reward]:
        task, trajectory_id = self._task, rollout.trajectory_id
        is_truncated = self._ending.status == "truncated"
        if self._scorer is None and not is_truncated:
            return rewards_of(task, trajectory_id, reported_scores(task, self._result), "agent")
        self._on_phase(self.lease, "scoring")
        await self._wait_stored(rollout, num_calls)
        trajectory = await self._place.call(self._place.store.get, trajectory_id)
        rewards = await self._score(self._scorer, trajectory) if self._scorer else []
        if is_truncated and self._ending.cause == "policy":
            known = rewards if self._scorer else trajectory.rewards
            rewards += rewards_of(task, trajectory_id, missing_scores(task, known), "rule")
        return rewards

    async def _score(self, scorer: Scorer, trajectory: Trajectory) -> list[Reward]:
        async with self._place.scoring:
            rewards = await judge(scorer, self._task, trajectory, self._result, self._place.settings.score_seconds)
        if failed := [reward for reward in rewards if reward.status in ("verifier_error", "timeout")]:
            self._ending = msgspec.structs.replace(self._ending, cause="verifier", error=failed[0].error)
        return rewards

    async def _wait_stored(self, rollout: Rollout, num_calls: int) -> None:
        seconds = self._place.settings.seal_seconds
        await self._place.sealing.wait_stored(rollout.trajectory_id, num_calls, rollout.logs, seconds)

    def _write_outcome(self, num_calls: int | None, *rewards: Reward) -> None:
        """Record the end; the first record of it stands, so no second is written."""
        if self._has_outcome:
            return
        self._has_outcome = True
        outcome = Outcome(
            trajectory_id=self.lease.trajectory_id,
            run=self._task.run,
            status=self._ending.status,
            ended_at=time.time(),
            cause=self._ending.cause,
            error=self._ending.error,
            result=self._result,
            num_calls=num_calls,
            times=self._times,
        )
        log = self._place.recorder.append(*rewards, outcome)
        if self.rollout is not None:
            self.rollout.logs.add(log)

    def _report(self) -> Report | None:
        if self._stop in ("cancel", "lost"):
            return None
        match self._ending.status:
            case "completed" | "truncated" as counts:
                return Report(lease=self.lease, ending=counts)
            case _:
                error = f"{self._ending.cause}: {self._ending.error}"
                return Report(lease=self.lease, ending=self._if_refused, error=error)

    def _refuse(self, ending: Ending, lease_ending: LeaseEnding) -> None:
        self._ending, self._if_refused = ending, lease_ending

    def _note(self, **seconds: float) -> None:
        self._times = msgspec.structs.replace(self._times, **seconds)
