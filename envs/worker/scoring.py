"""This file holds how an attempt that may count is judged: by its agent, or by a scorer once it is stored.

This file holds the stage in which attempts are scored: with slots of its own, in a process of its own.

Neither the worker nor the process whose output is judged runs a scorer. One that fails, takes too long or takes
its
process with it is asked again, after a delay; when it has failed often enough, its reward is null and says why.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import msgspec

from agent_layer.dispatcher import retry_delay
from agent_layer.errors import UnreachableError
from agent_layer.schema import Reward, RewardStatus, Task
from agent_layer.settings import Settings
from envs.hosts import Check, Checked, HostDiedError, Judge, Judged, SharedHost
from envs.scorers import declared_rewards, null_rewards

_MARGIN_SECONDS = 2.0
"""A process of scorers that does not answer for so long after a scorer's time is up is stuck."""


class ScoringStage:
    """Has scorers judge stored trajectories.

    Args:
        settings: how often a scorer is asked, and after which delays.
        slots: judgements at the same time.
        make_host: makes a process of scorers; the first is for all, the second for what was in it when it died.
        jitter: a number from 0 to 1.
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
        self._host, self._other_host = make_host(), make_host()
        self._alone = asyncio.Lock()
        self._jitter = jitter
        self._tokens = count()
        self._found: dict[str, str | None] = {}
        """Scorers that were looked for, and what is wrong with them; None: nothing."""

    async def check(self, scorer: str) -> str | None:
        """Say what is wrong with a scorer; None: it is there. What is known of it is not looked for again.

        Whose process died or was stuck is looked for alone: then it is known who does that.
        """
        if scorer not in self._found:
            with suppress(HostDiedError, TimeoutError):
                return await self._find(self._host, scorer)
        async with self._alone:
            if scorer in self._found:
                return self._found[scorer]
            try:
                return await self._find(self._other_host, scorer)
            except HostDiedError as error:
                wrong = f"importing it ended its process: {error}"
            except TimeoutError:
                wrong = f"importing it took longer than score_seconds ({self._settings.score_seconds:g})"
            self._found[scorer] = f"scorer {scorer!r}: {wrong}"
            return self._found[scorer]

    async def judge(self, scorer: str, task: Task, trajectory_id: str, result: object) -> list[Reward]:
        """Give the scorer's rewards; null ones that say why, when it fails as often as it is asked.

        Args:
            scorer: name of who judges.
            task: with its grading.
            trajectory_id: stored.
            result: what the agent returned.

        Raises: UnreachableError: the trajectory cannot be read.
        """
        asked = Judge(
            token="",
            scorer=scorer,
            task=task,
            trajectory_id=trajectory_id,
            result=result,
            seconds=self._settings.score_seconds if (own := task.limits.score_seconds) is None else own,
        )
        judged = await self._judge(asked)
        for number in range(1, self._settings.score_attempts):
            if not _has_failed(judged):
                break
            await asyncio.sleep(retry_delay(self._settings.retry_base_seconds, number - 1, self._jitter()))
            judged = await self._judge(asked)
        if judged.error is not None:
            raise UnreachableError(judged.error)
        return judged.rewards

    async def close(self) -> None:
        """End the processes."""
        await self._host.close()
        await self._other_host.close()

    async def _find(self, process: SharedHost, scorer: str) -> str | None:
        host = await process.take()
        answer = host.ask(Check(token=self._token(), scorer=scorer))
        try:
            async with asyncio.timeout(self._settings.score_seconds):
                found = await answer
        except TimeoutError:
            host.kill()
            raise
        assert isinstance(found, Checked)
        if found.error is None:
            self._found[scorer] = None
        return found.error

    async def _judge(self, asked: Judge) -> Judged:
        """Ask once. Whose process died of somebody else is asked again, alone: then it is known who kills it."""
        async with self._slots:
            try:
                return await self._ask(self._host, asked)
            except HostDiedError as error:
                if not error.num_beside:
                    return _failed(asked, "verifier_error", str(error))
            async with self._alone:
                try:
                    return await self._ask(self._other_host, asked)
                except HostDiedError as error:
                    return _failed(asked, "verifier_error", str(error))

    async def _ask(self, process: SharedHost, asked: Judge) -> Judged:
        host = await process.take()
        loop, limit, has_begun = asyncio.get_running_loop(), asyncio.timeout(self._settings.start_seconds), False

        def begin(_: object) -> None:
            nonlocal has_begun
            if not answer.done() and not limit.expired():
                limit.reschedule(loop.time() + asked.seconds + _MARGIN_SECONDS)
                has_begun = True

        answer = host.ask(msgspec.structs.replace(asked, token=self._token()), begin)
        try:
            async with limit:
                judged = await answer
        except TimeoutError:
            host.kill()
            if has_begun:
                error = f"the scorer blocked its process for longer than score_seconds ({asked.seconds:g})"
                return _failed(asked, "timeout", error)
            limit_seconds = self._settings.start_seconds
            error = f"trajectory {asked.trajectory_id}: expected it to be read within start_seconds ({limit_seconds:g})"
            return Judged(token="", error=error)
        assert isinstance(judged, Judged)
        return judged

    def _token(self) -> str:
        return str(next(self._tokens))


def _has_failed(judged: Judged) -> bool:
    return judged.error is not None or any(one.status in ("verifier_error", "timeout") for one in judged.rewards)


def _failed(asked: Judge, status: RewardStatus, error: str) -> Judged:
    declared = declared_rewards(asked.task, asked.scorer)
    return Judged(token=asked.token, rewards=null_rewards(asked.task, asked.trajectory_id, declared, status, error))
