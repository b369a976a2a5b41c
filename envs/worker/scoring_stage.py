"""Scores attempts in slots and processes of their own, so that no scorer runs in the worker or beside an agent.

A scorer that fails, takes too long or ends its process is retried after a delay. After ``score_attempts`` failures its
reward is null and says why.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import msgspec

from agent_layer.dispatcher import retry_delay
from agent_layer.errors import UnreachableError
from agent_layer.schema import TAMPERING, Reward, RewardStatus, Task
from agent_layer.settings import Settings
from envs.hosts import Check, Checked, HostDiedError, Judge, ScoredAttempt, SharedHost
from envs.scorers import FAILED_STATUSES, declared_rewards, null_rewards

_log = logging.getLogger(__name__)

_MARGIN_SECONDS = 2.0
"""A process that has not answered this long after its scorer's time is up is stuck."""


class ScoringStage:
    """Runs scorers on stored trajectories.

    Args:
        settings: number of tries and the delays between them.
        slots: scorers that run at the same time.
        make_host: makes a scorer process. The first serves all requests, the second repeats alone those that were in
            the first when it died or hung.
        jitter: returns a number from 0 to 1.
    """

    def __init__(
        self,
        settings: Settings,
        slots: int,
        make_host: Callable[[], SharedHost],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(slots)
        self._shared_host, self._spare_host = make_host(), make_host()
        self._alone = asyncio.Lock()
        self._jitter = jitter
        self._tokens = count()
        self._checked: dict[str, str | None] = {}
        """Scorers by name, with what is wrong with them; None: nothing."""
        self._with_boxes: set[str] = set()

    async def check(self, scorer: str) -> str | None:
        """Return what is wrong with a scorer; None: it can be loaded. Known answers are kept.

        If the process dies or hangs, the scorer is loaded again alone, which shows whether it is the cause.
        """
        if scorer not in self._checked:
            with suppress(HostDiedError, TimeoutError):
                return await self._load(self._shared_host, scorer)
        async with self._alone:
            if scorer in self._checked:
                return self._checked[scorer]
            try:
                return await self._load(self._spare_host, scorer)
            except HostDiedError as error:
                wrong = f"importing it ended its process: {error}"
            except TimeoutError:
                wrong = f"importing it took longer than score_seconds ({self._settings.score_seconds:g})"
            self._checked[scorer] = f"scorer {scorer!r}: {wrong}"
            return self._checked[scorer]

    def takes_boxes(self, scorer: str) -> bool:
        """Whether a scorer that passed the check may ask for sandboxes."""
        return scorer in self._with_boxes

    async def score(
        self,
        scorer: str,
        task: Task,
        trajectory_id: str,
        result: object,
        *,
        sandbox: str | None = None,
        artifacts: bytes | None = None,
    ) -> list[Reward]:
        """Return the scorer's rewards; null rewards with the reason when every try fails.

        Args:
            scorer: its name.
            task: the task, with its grading.
            trajectory_id: the attempt, which must be stored.
            result: what the agent returned.
            sandbox: address and capability for fresh sandboxes; None: there are none.
            artifacts: archive of the files that the agent left; None: the task declares none.

        Raises: UnreachableError: the trajectory cannot be read.
        """
        request = Judge(
            token="",
            scorer=scorer,
            task=task,
            trajectory_id=trajectory_id,
            result=result,
            seconds=self._settings.score_seconds if (own := task.limits.score_seconds) is None else own,
            sandbox=sandbox,
            artifacts=artifacts,
        )
        judged, is_alone = await self._score_once(request)
        for number in range(1, self._settings.score_attempts):
            if not _has_failed(judged):
                break
            await asyncio.sleep(retry_delay(self._settings.retry_base_seconds, number - 1, self._jitter()))
            judged, is_alone = await self._score_once(request, is_alone=is_alone)
        if judged.error is not None:
            raise UnreachableError(judged.error)
        if forged := next((one for one in judged.rewards if one.status == TAMPERING), None):
            _log.warning("tampering trajectory=%s scorer=%s found=%s", trajectory_id, scorer, forged.error)
        return judged.rewards

    async def close(self) -> None:
        """End the processes."""
        await self._shared_host.close()
        await self._spare_host.close()

    async def _load(self, process: SharedHost, scorer: str) -> str | None:
        host = await process.acquire_host()
        answer = host.ask(Check(token=self._next_token(), scorer=scorer))
        try:
            async with asyncio.timeout(self._settings.score_seconds):
                found = await answer
        except TimeoutError:
            host.kill()
            raise
        assert isinstance(found, Checked)
        if found.error is None:
            self._checked[scorer] = None
        if found.takes_boxes:
            self._with_boxes.add(scorer)
        return found.error

    async def _score_once(self, request: Judge, *, is_alone: bool = False) -> tuple[ScoredAttempt, bool]:
        """Run the scorer once; if its process dies or hangs with others in it, run it alone to see which is the cause.

        Returns: the judgement, and whether this request is a cause, so that it runs alone from then on.
        """
        async with self._slots:
            if not is_alone:
                try:
                    return await self._send(self._shared_host, request), False
                except _LostJudgementError as lost:
                    if not lost.num_beside:
                        return lost.judged, True
            async with self._alone:
                try:
                    return await self._send(self._spare_host, request), False
                except _LostJudgementError as lost:
                    return lost.judged, True

    async def _send(self, process: SharedHost, request: Judge) -> ScoredAttempt:
        """Send a request to a process; raise _LostJudgementError when that dies or does not answer in time."""
        host = await process.acquire_host()
        loop, limit, has_started = asyncio.get_running_loop(), asyncio.timeout(self._settings.start_seconds), False

        def start_clock(_: object) -> None:
            nonlocal has_started
            if not answer.done() and not limit.expired():
                limit.reschedule(loop.time() + request.seconds + _MARGIN_SECONDS)
                has_started = True

        token = self._next_token()
        answer = host.ask(msgspec.structs.replace(request, token=token), start_clock)
        try:
            async with limit:
                judged = await answer
        except HostDiedError as error:
            raise _LostJudgementError(
                _null_judgement(request, "verifier_error", str(error)), error.num_beside
            ) from error
        except TimeoutError as error:
            if has_started:
                why = f"the scorer blocked its process for longer than score_seconds ({request.seconds:g})"
                lost = _null_judgement(request, "timeout", why)
            else:
                limit_seconds = self._settings.start_seconds
                why = f"trajectory {request.trajectory_id}: it was not read within start_seconds ({limit_seconds:g})"
                lost = ScoredAttempt(token="", error=why)
            raise _LostJudgementError(lost, host.give_up(token)) from error
        assert isinstance(judged, ScoredAttempt)
        return judged

    def _next_token(self) -> str:
        return str(next(self._tokens))


class _LostJudgementError(Exception):
    """The process gave no judgement: what it is without one, and how many requests were lost beside it."""

    def __init__(self, judged: ScoredAttempt, num_beside: int) -> None:
        super().__init__(judged, num_beside)
        self.judged = judged
        self.num_beside = num_beside


def _has_failed(judged: ScoredAttempt) -> bool:
    return judged.error is not None or any(one.status in FAILED_STATUSES for one in judged.rewards)


def _null_judgement(request: Judge, status: RewardStatus, error: str) -> ScoredAttempt:
    declared = declared_rewards(request.task, request.scorer)
    rewards = null_rewards(request.task, request.trajectory_id, declared, status, error)
    return ScoredAttempt(token=request.token, rewards=rewards)
