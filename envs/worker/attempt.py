"""One attempt as a state machine: Preparing → Running → Closing → Scoring → Sealing → Done.

Each phase is a frozen record, and each step produces the next one. ``run`` goes on until the agent has ended and
occupies a slot of the worker; ``finish`` does the rest and occupies none. Failures are data: each becomes a report
with the cause that decides whether the attempt may teach the model anything.

    Preparing → Running → Closing → Scoring → Sealing → Done
    Preparing → Closing → Done                  refused by the scorer check, the gateway or the checkpoint
    Preparing | Running → HandingOver → Done    another holder may go on with the attempt
    Closing → Sealing                           the policy answered no call of a rollout that is to teach it
    Closing | Scoring | Sealing → Done          nothing to score, a failure, or not stored in time
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import assert_never

import msgspec
from redis.exceptions import RedisError

from agent_layer.dispatcher import Lease, LeaseEnding, Report
from agent_layer.errors import (
    AgentLayerError,
    BackPressureError,
    CaptureError,
    LeaseLostError,
    RedactionError,
    SandboxError,
    UnreachableError,
)
from agent_layer.schema import MISSED_FORM, NO_POLICY_CALL, SELF_INFLICTED, Outcome, PhaseTimes, Reward, rollout_reward
from agent_layer.schema.sandbox import EndOfBox, SandboxUsage
from agent_layer.state import explain_no_policy_call
from agent_layer.store import read_rewards
from envs.commands import CommandTarget
from envs.failures import (
    Ending,
    RefusedTaskError,
    TimeSpent,
    blame_for_time,
    blame_policy,
    end_with_box,
    is_out_of_time,
)
from envs.hosts import STOPPED, AgentRun, StopReason
from envs.sandbox import AttemptSandbox, CommandTime
from envs.scorers import AGENT, FAILED_STATUSES, declared_rewards, make_report, make_rewards, missing_scores
from envs.worker.context import WorkerContext
from envs.worker.gateway_attempts import close_attempt, open_attempt, withdraw_attempt
from envs.worker.heartbeat import LeasePhase
from envs.worker.phases import Closing, Done, HandingOver, Phase, Preparing, RunEnd, Running, Scoring, Sealing
from envs.worker.resumability import Resumability
from envs.worker.sandbox_stage import judge_files, make_content
from tracer.core import Rollout


class Attempt:
    """One attempt at the rollout of a lease.

    Args:
        lease: permission to make this attempt.
        context: the worker that makes it.
        on_phase: called when a phase begins that the worker shows to users.
    """

    def __init__(self, lease: Lease, context: WorkerContext, on_phase: Callable[[Lease, LeasePhase], None]) -> None:
        self.lease = lease
        self._context = context
        self._on_phase = on_phase
        scorer = lease.task.scorer or context.scorer
        self._scorer = None if scorer == AGENT else scorer
        """Name of the scorer; None: the agent reports its own scores."""
        self._resumability = Resumability(lease, context, self._end_paused)
        self._phase: Phase = Preparing(times=PhaseTimes(queued_seconds=lease.queued_seconds))
        self._stop: StopReason | None = None
        """First reason to end the attempt early; it may arrive in any phase."""
        self._outcome: Outcome | None = None
        """The recorded end; the first one stands, so there is never a second."""
        self._lost_box: Ending | None = None
        """How the attempt ends because its box did; None: it has not."""
        self._ending_boxes: asyncio.Task[SandboxUsage | None] | None = None

    async def run(self) -> None:
        """Open the attempt and run the agent to its end."""
        while isinstance(self._phase, Preparing | Running):
            await self._advance()

    async def finish(self) -> Report | None:
        """Close, score and seal the attempt; None when the lease is gone, because its report would be refused."""
        while not isinstance(self._phase, Done):
            await self._advance()
        if self._context.sandboxes.spec_for(self.lease.task) is not None:
            await self._context.sandboxes.end(self.lease)
        return report_attempt(self.lease, self._phase, self._stop)

    async def clear(self) -> None:
        """Remove the checkpoint once the report was accepted: until then another holder may resume from it."""
        is_handed_over = isinstance(self._phase, Done) and self._phase.is_handed_over
        if not is_handed_over and self._stop != "lost":
            await self._resumability.remove_checkpoint()

    @property
    def rollout(self) -> Rollout | None:
        """The attempt at the gateway; None before it is opened, and when it is done."""
        return None if isinstance(self._phase, Preparing | Done) else self._phase.rollout

    @property
    def is_turned_away(self) -> bool:
        """Whether the gateway did not open the attempt, and another worker may try it at once."""
        match self._phase:
            case Closing(rollout=None, end=end) | HandingOver(rollout=None, end=end):
                return end.lease_ending == "release"
            case _:
                return False

    def stop(self, why: StopReason, ending: Ending | None = None) -> None:
        """End the agent's run early; see AgentRun."""
        self._stop = self._stop or why
        if isinstance(self._phase, Running):
            self._phase.agent_run.stop(why, ending)
        is_ending = self._ending_boxes is not None and not self._ending_boxes.done()
        if why in ("cancel", "lost") and not is_ending:  # each heartbeat says so again
            self._ending_boxes = asyncio.create_task(self._context.sandboxes.end(self.lease))

    def request_pause(self) -> bool:
        """Ask the agent to pause at its next step boundary; False: it cannot, and goes on."""
        return self._resumability.request_pause()

    def record_activity(self, seconds_ago: float, waited_seconds: float, *, is_calling: bool) -> None:
        """Note what the gateway knows: its last record of the attempt, how long model calls were in flight, and now."""
        if isinstance(self._phase, Running):
            self._phase.progress.record_activity(seconds_ago)
            self._phase.progress.record_waits(waited_seconds, is_calling=is_calling)

    async def end_if_idle(self) -> None:
        """End the attempt if nothing was recorded, and no command of its own ran, for longer than its task allows."""
        limit, phase = self.lease.task.limits.idle_seconds, self._phase
        if limit is None or not isinstance(phase, Running) or phase.progress.quiet_seconds <= limit:
            return
        commands = await self._time_commands()
        if commands is not None and commands.quiet_seconds is not None:
            phase.progress.record_activity(commands.quiet_seconds)
            if phase.progress.quiet_seconds <= limit:
                return
        is_calling = phase.progress.is_calling
        spent = TimeSpent(
            seconds=limit,
            command_seconds=limit if commands is None and not is_calling else 0.0,
            waited_seconds=limit if is_calling else 0.0,
        )
        error = f"nothing was recorded for longer than idle_seconds ({limit:g})"
        self.stop("limit", blame_for_time(error, spent, self.lease.task.limits.wall_fault))

    async def _end_for_time(self) -> Ending:
        """Return how the attempt ends whose agent ran longer than it may."""
        limits, phase = self.lease.task.limits, self._phase
        error = (
            f"the agent ran longer than wall_seconds ({limits.wall_seconds or 0:g})"  # those of earlier holders, too
        )
        assert isinstance(phase, Running)
        seconds, waited_seconds = phase.progress.ran_seconds, phase.progress.waited_seconds
        commands = await self._time_commands()
        spent = TimeSpent(
            seconds=seconds,
            command_seconds=max(0.0, seconds - waited_seconds) if commands is None else commands.seconds,
            waited_seconds=waited_seconds,
            is_commanding=not phase.progress.is_calling if commands is None else commands.is_running,
        )
        return blame_for_time(error, spent, limits.wall_fault)

    async def _time_commands(self) -> CommandTime | None:
        """Return how commands in the attempt's box spend its time; None: the agent itself is one in a box."""
        target, supervisor = self._context.target, self._context.sandboxes.supervisor
        if isinstance(target, CommandTarget) and target.is_boxed:
            return None
        return await supervisor.command_time(self.lease.token) if supervisor.is_running else CommandTime()

    def abandon(self) -> None:
        """Record that the worker ends before a started attempt does; nothing where another holder goes on with it."""
        if self._resumability.is_resumed or self._resumability.continues_elsewhere("lost", "drain"):
            return
        match self._phase:
            case Running(times=times):
                end = RunEnd(ending=STOPPED["drain"], lease_ending="release", times=times)
            case HandingOver() | Closing() | Scoring() | Sealing() as phase if phase.rollout is not None:
                end = replace(phase.end, ending=STOPPED["drain"])
            case _:
                return
        with suppress(BackPressureError):
            self._record_outcome(end, None)

    async def _advance(self) -> None:
        """Take the step that leads from this phase to the next."""
        match self._phase:
            case Preparing() as phase:
                self._phase = await self._prepare(phase)
            case Running() as phase:
                self._phase = await self._run_agent(phase)
            case HandingOver(rollout=rollout, end=end):
                if rollout is not None:
                    await self._resumability.pause_at_gateway(rollout)
                self._phase = Done(end=end, is_handed_over=True)
            case Closing() | Scoring() | Sealing() as phase:
                self._phase = await self._conclude(phase)
            case Done():
                return
            case _:
                assert_never(self._phase)

    async def _prepare(self, preparing: Preparing) -> Running | Closing | HandingOver:
        """Check the scorer, wait for room to start, take a sandbox, and open the attempt at the gateway."""
        self._on_phase(self.lease, "running")
        began = time.monotonic()
        progress = opened = None
        context, task, times = self._context, self.lease.task, preparing.times
        try:
            if self._scorer is not None and (error := await context.scoring.check(self._scorer)) is not None:
                ending = Ending(status="failed", cause="verifier", error=error)
                return Closing(rollout=None, end=RunEnd(ending=ending, lease_ending="dead", times=times))
            progress = await context.start_limiter.acquire()
            rewards = declared_rewards(task, self._scorer)
            checkpoint = await self._resumability.read_checkpoint()
            box = await context.sandboxes.take(self.lease, self._lose_box)
            opened, started = await context.call(
                open_attempt, context, self.lease, rewards, checkpoint, scorer=self._scorer
            )
            opened.logs.add(context.recorder.append(started))  # no wait before the next phase: a start has an outcome
            rollout = dataclasses.replace(self._resumability.attach(opened, started, checkpoint), box=box)
        except AgentLayerError as error:
            if progress is not None:
                progress.mark_prepared()
            if opened is not None:
                await context.call(withdraw_attempt, context, opened)
            return await self._refuse(error, times)
        left_seconds = self._resumability.left_seconds
        agent_run = AgentRun(context.target, task, rollout, left_seconds, progress, self._end_for_time)
        progress.record_activity()
        if self._stop is not None:
            agent_run.stop(self._stop, self._lost_box)
        times = msgspec.structs.replace(times, prepare_seconds=time.monotonic() - began)
        return Running(rollout=rollout, agent_run=agent_run, progress=progress, times=times)

    async def _refuse(self, error: AgentLayerError, times: PhaseTimes) -> Closing | HandingOver:
        """Return what becomes of an attempt that could not begin, once its boxes have ended."""
        await self._context.sandboxes.end(self.lease)
        await self._context.call(self._context.access.note, self.lease.task.run, error)
        is_resumed, is_lost = self._resumability.is_resumed, isinstance(error, LeaseLostError)
        ending, lease_ending = classify_refusal(error, is_resumed=is_resumed)
        end = RunEnd(ending=ending, lease_ending=lease_ending, times=times)
        self._stop = "lost" if is_lost else self._stop
        goes_back = is_lost or (is_resumed and lease_ending == "release")  # another holder records how it ends
        return HandingOver(rollout=None, end=end) if goes_back else Closing(rollout=None, end=end)

    async def _run_agent(self, running: Running) -> Closing | HandingOver:
        ran = await running.agent_run.wait(self._context.settings.close_seconds)
        ending = await self._end_for_time() if is_out_of_time(ran.ending) else ran.ending
        end = RunEnd(
            ending=ending,
            lease_ending=_choose_lease_ending(ending, self._stop),
            result=ran.result,
            times=msgspec.structs.replace(running.times, run_seconds=ran.seconds),
        )
        end = await self._close_box(running.rollout, end)
        if self._resumability.continues_elsewhere(ending.status, self._stop):
            return HandingOver(rollout=running.rollout, end=end)
        return Closing(rollout=running.rollout, end=end)

    async def _close_box(self, rollout: Rollout, end: RunEnd) -> RunEnd:
        """Freeze the agent's box or directory, take the artifacts of an attempt that may count, and end the box.

        A box that the machine lost hides what the agent did in it, so the attempt is lost, whatever the agent returned.
        One that its own commands ended is the policy's: the attempt is scored without its files.
        """
        if isinstance(rollout.box, AttemptSandbox):
            await self._context.sandboxes.disconnect(self.lease, rollout.box)
        elif self._context.sandboxes.commands is None:
            return end
        if end.ending.status not in ("completed", "truncated", "failed"):  # a full context makes a failure count
            return replace(end, sandbox=await self._context.sandboxes.end(self.lease))
        try:
            files = await self._context.sandboxes.collect(self.lease)
        except (SandboxError, OSError) as error:
            ending = Ending(status="lost", cause="infra", error=str(error))
            usage = await self._context.sandboxes.end(self.lease)
            return replace(end, ending=ending, lease_ending=_choose_lease_ending(ending, self._stop), sandbox=usage)
        ending, findings = judge_files(end.ending, files)
        return replace(end, ending=ending, findings=findings, artifacts=files.archive, sandbox=files.usage)

    def _lose_box(self, end: EndOfBox) -> None:
        self._lost_box = end_with_box(end)
        self.stop("limit", self._lost_box)

    async def _conclude(self, phase: Closing | Scoring | Sealing) -> Scoring | Sealing | Done:
        """Take the next step of an attempt whose agent has ended; a failure ends the attempt."""
        try:
            match phase:
                case Closing():
                    return await self._close(phase)
                case Scoring():
                    return await self._score(phase)
                case Sealing():
                    return await self._seal(phase)
        except LeaseLostError:
            self._stop = "lost"
            return Done(end=phase.end, is_handed_over=True)
        except CaptureError as error:
            ending = Ending(status="failed", cause="infra", error=str(error))
            end = replace(phase.end, ending=ending, lease_ending="dead")
        except (AgentLayerError, RedisError, OSError) as error:
            ending = Ending(status="lost", cause="infra", error=f"{type(error).__name__}: {error}")
            end = replace(phase.end, ending=ending)
            if await self._context.call(self._context.access.note, self.lease.task.run, error):
                end = replace(end, lease_ending="release")
        with suppress(BackPressureError):  # on a full disk the report alone has to do
            self._record_outcome(end, None)
        return Done(end=end)

    async def _close(self, closing: Closing) -> Scoring | Sealing | Done:
        rollout, end, task = closing.rollout, closing.end, self.lease.task
        if rollout is None:
            if self._resumability.is_resumed:  # its first holder recorded a start
                self._record_outcome(end, None)
            return Done(end=end)
        is_cancelled = self._stop == "cancel"
        closed = await self._context.call(close_attempt, self._context, rollout, task.split, abort=is_cancelled)
        ending = blame_policy(end.ending, closed.policy_fault)
        missed = (MISSED_FORM,) if closed.policy_fault == MISSED_FORM and ending is not end.ending else ()
        end = replace(end, ending=ending, findings=(*end.findings, *missed, *closed.findings))
        if end.ending.status not in ("completed", "truncated"):
            self._record_outcome(end, closed.started)
            return Done(end=end)
        error = explain_no_policy_call(closed, task.split, calls_optional=task.calls_optional)
        if error is None:
            return Scoring(rollout=rollout, closed=closed, end=end)
        ending = msgspec.structs.replace(end.ending, cause="user", error=error)
        end = replace(end, ending=ending, findings=(NO_POLICY_CALL, *end.findings))
        return Sealing(rollout=rollout, closed=closed, rewards=(), end=end)

    async def _score(self, scoring: Scoring) -> Sealing:
        """Find the rewards, by the agent's own report or by a scorer that reads what is stored."""
        began = time.monotonic()
        task, trajectory_id, end = self.lease.task, scoring.rollout.trajectory_id, scoring.end
        ending, is_truncated = end.ending, end.ending.status == "truncated"
        if self._scorer is None and not is_truncated:
            rewards = make_report(task, trajectory_id, end.result)
            if any(reward.score is None for reward in rewards):  # unless the agent rewarded in another way
                await self._wait_stored(scoring)
                known = await self._context.call(self._read_rewards, trajectory_id)
                rewards = make_report(task, trajectory_id, end.result, known)
        else:
            self._on_phase(self.lease, "scoring")
            await self._wait_stored(scoring)
            rewards = []
            if self._scorer is not None:
                rewards, end = await self._run_scorer(self._scorer, end)
            if failed := [reward for reward in rewards if reward.status in FAILED_STATUSES]:
                ending = msgspec.structs.replace(ending, cause="verifier", error=failed[0].error)
            if is_truncated and ending.cause == "policy":
                known = rewards if self._scorer else await self._context.call(self._read_rewards, trajectory_id)
                rewards = rewards + make_rewards(task, trajectory_id, missing_scores(task, known), "rule")
        times = msgspec.structs.replace(end.times, score_seconds=time.monotonic() - began)
        end = replace(end, ending=ending, times=times)
        return Sealing(rollout=scoring.rollout, closed=scoring.closed, rewards=tuple(rewards), end=end)

    async def _run_scorer(self, scorer: str, end: RunEnd) -> tuple[list[Reward], RunEnd]:
        """Return the scorer's rewards, and the end with what its boxes have used; they end with it."""
        sandboxes = self._context.sandboxes
        takes_boxes = self._context.scoring.takes_boxes(scorer)
        address = await sandboxes.allow_scoring(self.lease) if takes_boxes else None
        try:
            rewards = await self._context.scoring.score(
                scorer, self.lease.task, self.lease.trajectory_id, end.result, sandbox=address, artifacts=end.artifacts
            )
        finally:
            usage = await sandboxes.end(self.lease)
        return rewards, replace(end, sandbox=usage or end.sandbox)

    async def _seal(self, sealing: Sealing) -> Done:
        """Record how the attempt ended, and wait until all of it is stored."""
        outcome = self._record_outcome(sealing.end, sealing.closed.started, *sealing.rewards)
        self._on_phase(self.lease, "sealing")
        await self._wait_stored(sealing)
        declared = declared_rewards(self.lease.task, self._scorer)
        stored = await self._context.call(self._read_rewards, sealing.rollout.trajectory_id)
        return Done(end=sealing.end, is_usable=rollout_reward(declared, stored, outcome) is not None)

    async def _wait_stored(self, phase: Scoring | Sealing) -> None:
        seconds = self._context.settings.seal_seconds
        rollout, num_calls = phase.rollout, phase.closed.started
        await self._context.stored_waiter.wait_stored(rollout.trajectory_id, num_calls, rollout.logs, seconds)

    def _read_rewards(self, trajectory_id: str) -> list[Reward]:
        store = self._context.store
        return read_rewards(store.redis, store.keys, trajectory_id)

    def _record_outcome(self, end: RunEnd, num_calls: int | None, *rewards: Reward) -> Outcome:
        """Record how the attempt ended, unless that is recorded; num_calls is None where it was not closed."""
        if self._outcome is not None:
            return self._outcome
        artifacts = None if end.artifacts is None else make_content(self.lease.trajectory_id, end.artifacts)
        outcome = self._outcome = Outcome(
            trajectory_id=self.lease.trajectory_id,
            run=self.lease.task.run,
            status=end.ending.status,
            ended_at=time.time(),
            cause=end.ending.cause,
            error=end.ending.error,
            traceback=end.ending.traceback,
            result=end.result,
            num_calls=num_calls,
            times=end.times,
            findings=[*([SELF_INFLICTED] if _is_self_inflicted(end) else []), *end.findings],
            sandbox=end.sandbox,
            artifacts=None if artifacts is None else artifacts.hash,
        )
        contents = [] if artifacts is None else [artifacts]
        log = self._context.recorder.append(*contents, *rewards, outcome)
        if self.rollout is not None:
            self.rollout.logs.add(log)
        return outcome

    def _end_paused(self) -> None:
        if isinstance(self._phase, Running):
            self._phase.agent_run.stop("pause")


def report_attempt(lease: Lease, done: Done, stop: StopReason | None) -> Report | None:
    """Return what the dispatcher needs to know; None where the lease is no longer this worker's."""
    if stop in ("cancel", "lost"):
        return None
    ending = done.end.ending
    match ending.status:
        case "paused":
            return Report(lease=lease, ending="pause")
        case "completed" | "truncated" as counts:
            error = "" if ending.cause in (None, "policy") else ending.error or ""
            return Report(lease=lease, ending=counts, usable=done.is_usable, cause=ending.cause, error=error)
        case _:
            error = f"{ending.cause}: {ending.error}" + (f"\n{ending.traceback}" if ending.traceback else "")
            return Report(lease=lease, ending=done.end.lease_ending, cause=ending.cause, error=error)


def classify_refusal(error: AgentLayerError, *, is_resumed: bool) -> tuple[Ending, LeaseEnding]:
    """Return how an attempt ends that could not begin.

    A task that no gateway accepts is dead. A sandbox that could not be made counts as a failure. Otherwise the rollout
    goes back to the queue unharmed, unless a resumed attempt was refused for good: it would return to its place and
    come first again.
    """
    if isinstance(error, RefusedTaskError | RedactionError):
        return Ending(status="failed", cause="user", error=str(error)), "dead"
    if isinstance(error, SandboxError):  # this host may never make it, so that it counts
        return Ending(status="lost", cause="infra", error=str(error)), "retry"
    is_over = is_resumed and not isinstance(error, UnreachableError)
    return Ending(status="lost", cause="infra", error=str(error)), "retry" if is_over else "release"


def _is_self_inflicted(end: RunEnd) -> bool:
    """Whether commands of the attempt ended it, or a sandbox that it or its scorer had."""
    ends = [] if end.sandbox is None else end.sandbox.ends
    return end.ending.is_self_inflicted or any(one.cause == "policy" for one in ends)


def _choose_lease_ending(ending: Ending, stop: StopReason | None) -> LeaseEnding:
    if ending.status == "paused":
        return "pause"
    return "release" if stop == "drain" or not ending.is_own else "retry"
