"""This file holds one attempt: prepared, run, closed, judged, sealed, and what is reported of it.

``run`` takes up a slot of the worker; ``finish`` does not. Whatever goes wrong becomes a report, with the cause
that
decides whether it may teach the model anything.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from redis.exceptions import RedisError

from agent_layer.dispatcher import Lease, LeaseEnding, Report
from agent_layer.errors import (
    AgentLayerError,
    BackPressureError,
    CaptureError,
    LeaseLostError,
    RedactionError,
    UnreachableError,
)
from agent_layer.schema import Outcome, PhaseTimes, Reward, Task, rollout_reward
from agent_layer.store.reading import read_rewards
from envs.failures import Ending, RefusedTaskError
from envs.hosts import STOPPED, AgentRun, StopReason
from envs.progress import Progress
from envs.scorers import AGENT, declared_rewards, make_rewards, missing_scores, reported_scores
from envs.worker.context import WorkerContext
from envs.worker.heartbeat import Phase
from envs.worker.resumability import Resumability
from envs.worker.rollouts import close_attempt, open_attempt
from tracer.core import Rollout


@dataclass(frozen=True, kw_only=True)
class ClosedAttempt:
    """An attempt whose agent has ended, and of which the gateway takes no more calls."""

    place: WorkerContext
    task: Task
    rollout: Rollout
    num_calls: int
    """That the gateway took."""
    scorer: str | None
    """Name of who judges; None: the agent itself."""
    result: object
    """What the agent returned."""

    async def judge(self, ending: Ending, on_scoring: Callable[[], None]) -> tuple[list[Reward], Ending]:
        """Judge it.

        Args:
            ending: how the run of the agent ended.
            on_scoring: told before more than the agent's own word is asked for.

        Returns: its rewards, and how it ended in the light of them: a scorer that failed is a cause.

        Raises:
            NotWholeError: it is not stored in time.
            UnreachableError: it cannot be read.
        """
        task, is_truncated = self.task, ending.status == "truncated"
        if self.scorer is None and not is_truncated:
            return make_rewards(task, self.rollout.trajectory_id, reported_scores(task, self.result), "agent"), ending
        on_scoring()
        await self.wait_stored()
        rewards = await self._score()
        ending = _judged(ending, rewards)
        if is_truncated and ending.cause == "policy":
            known = rewards if self.scorer else await self.place.call(self._read_rewards)
            rewards += make_rewards(task, self.rollout.trajectory_id, missing_scores(task, known), "rule")
        return rewards, ending

    async def wait_stored(self) -> None:
        """Wait until everything that it left is stored; raises NotWholeError when that takes too long."""
        seconds = self.place.settings.seal_seconds
        await self.place.sealing.wait_stored(self.rollout.trajectory_id, self.num_calls, self.rollout.logs, seconds)

    async def has_reward(self, outcome: Outcome) -> bool:
        """Whether what is stored by now makes a reward; not what a reader of another moment would find."""
        declared = declared_rewards(self.task, self.scorer)
        return rollout_reward(declared, await self.place.call(self._read_rewards), outcome) is not None

    async def _score(self) -> list[Reward]:
        if self.scorer is None:
            return []
        return await self.place.scoring.judge(self.scorer, self.task, self.rollout.trajectory_id, self.result)

    def _read_rewards(self) -> list[Reward]:
        store = self.place.store
        return read_rewards(store.redis, store.keys, self.rollout.trajectory_id)


def _judged(ending: Ending, rewards: list[Reward]) -> Ending:
    failed = [reward for reward in rewards if reward.status in ("verifier_error", "timeout")]
    return msgspec.structs.replace(ending, cause="verifier", error=failed[0].error) if failed else ending


class Attempt:
    """One attempt at the rollout of a lease.

    Args:
        lease: whose attempt it is.
        place: where it is done.
        on_phase: told when the attempt goes on to another phase.
    """

    def __init__(self, lease: Lease, place: WorkerContext, on_phase: Callable[[Lease, Phase], None]) -> None:
        self.lease = lease
        self.rollout: Rollout | None = None
        """None while the gateway has not opened it."""
        self._task = lease.task
        self._place = place
        self._on_phase = on_phase
        scorer = lease.task.scorer or place.scorer
        self._scorer = None if scorer == AGENT else scorer
        """Name of who judges; None: the agent itself."""
        self._progress: Progress | None = None
        self._agent_run: AgentRun | None = None
        self._holding = Resumability(lease, place, self._end_paused)
        self._stop: StopReason | None = None
        self._ending = Ending()
        self._if_refused: LeaseEnding = "retry"
        """How the lease ends when the attempt does not count."""
        self._result: object = None
        self._outcome: Outcome | None = None
        self._goes_on = False
        """Whether another holder may go on with it."""
        self._is_usable = True
        """Whether an attempt that counts has a reward."""
        self._times = PhaseTimes(queued_seconds=lease.queued_seconds)

    @property
    def is_turned_away(self) -> bool:
        """Whether the gateway did not open it."""
        return self.rollout is None and self._if_refused == "release"

    def stop(self, why: StopReason, ending: Ending | None = None) -> None:
        """End the run of the agent early; see AgentRun."""
        self._stop = self._stop or why
        if self._agent_run is not None:
            self._agent_run.stop(why, ending)

    def pause(self) -> bool:
        """Ask the agent to pause at its next step boundary; False: it cannot, and goes on."""
        return self._holding.pause()

    def record_activity(self, seconds_ago: float, *, is_calling: bool) -> None:
        """The gateway recorded something of it so long ago, or has a call of it in flight."""
        if self._progress is not None:
            self._progress.record_activity(seconds_ago)
            self._progress.is_calling = is_calling

    def end_if_idle(self) -> None:
        """End an attempt of which nothing was recorded for longer than its task allows."""
        limit, progress = self._task.limits.idle_seconds, self._progress
        if limit is None or progress is None or progress.quiet_seconds <= limit:
            return
        error = f"nothing was recorded for longer than idle_seconds ({limit:g})"
        if progress.is_calling:
            ending = Ending(status="lost", cause="infra", error=f"{error} while a model call was in flight")
        else:
            ending = Ending(status="failed", cause="user", error=error)
        self.stop("limit", ending)

    def give_up(self) -> None:
        """Write down that the worker ends before the attempt has; of one that goes on elsewhere nothing."""
        if not (self._holding.is_taken_on or self._holding.goes_on("lost", "drain")):
            self._ending = STOPPED["drain"]
            with suppress(BackPressureError):
                self._write_outcome(None)

    async def run(self) -> None:
        """Open the attempt and let the agent run."""
        self._on_phase(self.lease, "running")
        began = time.monotonic()
        progress = None
        try:
            if self._scorer is not None and (error := await self._place.scoring.check(self._scorer)) is not None:
                self._refuse(Ending(status="failed", cause="verifier", error=error), "dead")
                return
            progress = await self._place.gate.enter()
            rewards = declared_rewards(self._task, self._scorer)
            checkpoint = await self._holding.read()
            opened = await self._place.call(open_attempt, self._place, self.lease, rewards, checkpoint)
            self.rollout = self._holding.attach(opened, checkpoint)
        except AgentLayerError as error:
            if progress is not None:
                progress.start()
            self._refuse_unopened(error)
            return
        self._note(prepare_seconds=time.monotonic() - began)
        await self._run_agent(self.rollout, progress)

    async def finish(self) -> Report | None:
        """Close, score and seal the attempt; None when the lease is gone, so that there is nobody to tell.

        Of an attempt that goes on elsewhere no end is recorded.
        """
        if self.rollout is None and self._holding.is_taken_on and self._if_refused == "release":
            self._goes_on = True
            return self._report()
        if self.rollout and self._holding.goes_on(self._ending.status, self._stop):
            self._goes_on = True
            await self._holding.leave(self.rollout)
            return self._report()
        try:
            await self._end()
        except LeaseLostError:
            self._goes_on = True
            return None
        return self._report()

    async def clear(self) -> None:
        """Remove what was kept for another holder, now that its end was taken: until then another may go on from it."""
        if not self._goes_on and self._stop != "lost":
            await self._holding.clear()

    async def _end(self) -> None:
        try:
            num_calls = await self._close(self.rollout) if self.rollout else None
            if self.rollout and num_calls is not None and self._ending.status in ("completed", "truncated"):
                await self._accept(self.rollout, num_calls)
            else:
                self._write_outcome(num_calls)
        except CaptureError as error:
            self._refuse(Ending(status="failed", cause="infra", error=str(error)), "dead")
            self._write_outcome(None)
        except LeaseLostError:
            raise
        except (AgentLayerError, RedisError, OSError) as error:
            self._ending = Ending(status="lost", cause="infra", error=f"{type(error).__name__}: {error}")
            with suppress(BackPressureError):  # where the disk is full, the report alone has to do
                self._write_outcome(None)

    async def _close(self, rollout: Rollout) -> int:
        is_cancelled = self._stop == "cancel"
        return await self._place.call(close_attempt, self._place, rollout, self._task.split, abort=is_cancelled)

    def _end_paused(self) -> None:
        if self._agent_run is not None:
            self._agent_run.stop("pause")

    async def _run_agent(self, rollout: Rollout, progress: Progress) -> None:
        limit = self._task.limits.wall_seconds
        if limit is not None:
            limit = max(0.0, limit - self._holding.used_seconds)
        self._agent_run = AgentRun(self._place.target, self._task, rollout, limit, progress)
        progress.record_activity()
        self._progress = progress
        if self._stop is not None:
            self._agent_run.stop(self._stop)
        ran = await self._agent_run.wait(self._place.settings.close_seconds)
        self._ending, self._result = ran.ending, ran.result
        self._progress = None
        self._if_refused = _lease_ending(self._ending, self._stop)
        self._note(run_seconds=ran.seconds)

    async def _accept(self, rollout: Rollout, num_calls: int) -> None:
        """Judge the attempt, write down how it ended, and wait until all of it is stored."""
        began = time.monotonic()
        closed = ClosedAttempt(
            place=self._place,
            task=self._task,
            rollout=rollout,
            num_calls=num_calls,
            scorer=self._scorer,
            result=self._result,
        )
        rewards, self._ending = await closed.judge(self._ending, lambda: self._on_phase(self.lease, "scoring"))
        self._note(score_seconds=time.monotonic() - began)
        outcome = self._write_outcome(num_calls, *rewards)
        self._on_phase(self.lease, "sealing")
        await closed.wait_stored()
        self._is_usable = await closed.has_reward(outcome)

    def _write_outcome(self, num_calls: int | None, *rewards: Reward) -> Outcome:
        """Record the end; the first record of it stands, so no second is written."""
        if self._outcome is not None:
            return self._outcome
        outcome = self._outcome = Outcome(
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
        return outcome

    def _report(self) -> Report | None:
        if self._stop in ("cancel", "lost"):
            return None
        match self._ending.status:
            case "paused":
                return Report(lease=self.lease, ending="pause")
            case "completed" | "truncated" as counts:
                cause = self._ending.cause
                error = (self._ending.error or "") if cause == "verifier" else ""
                return Report(lease=self.lease, ending=counts, usable=self._is_usable, cause=cause, error=error)
            case _:
                error = f"{self._ending.cause}: {self._ending.error}"
                return Report(lease=self.lease, ending=self._if_refused, cause=self._ending.cause, error=error)

    def _refuse_unopened(self, error: AgentLayerError) -> None:
        """What cannot begin anywhere is over; else it would go back to its place, and be the first to come again."""
        if isinstance(error, RefusedTaskError | RedactionError):
            self._refuse(Ending(status="failed", cause="user", error=str(error)), "dead")
            return
        is_over = self._holding.is_taken_on and not isinstance(error, UnreachableError)
        self._refuse(Ending(status="lost", cause="infra", error=str(error)), "retry" if is_over else "release")

    def _refuse(self, ending: Ending, lease_ending: LeaseEnding) -> None:
        self._ending, self._if_refused = ending, lease_ending

    def _note(self, **seconds: float) -> None:
        self._times = msgspec.structs.replace(self._times, **seconds)


def _lease_ending(ending: Ending, stop: StopReason | None) -> LeaseEnding:
    """How the lease ends of an attempt that does not count."""
    if ending.status == "paused":
        return "pause"
    return "release" if stop == "drain" or not ending.is_own else "retry"
