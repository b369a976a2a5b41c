"""This file holds how an attempt that may count is judged: by its agent, or by a scorer once it is stored."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from agent_layer.schema.reward import Reward, rollout_reward
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.task import Task
from agent_layer.store.judging import read_rewards
from envs.failures import Ending
from envs.scoring import declared_rewards, missing_scores, reported_scores, rewards_of
from envs.workplace import Workplace
from tracer import Rollout

__all__ = ["ClosedAttempt"]


@dataclass(frozen=True, kw_only=True)
class ClosedAttempt:
    """An attempt whose agent has ended, and of which the gateway takes no more calls."""

    place: Workplace
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
            return rewards_of(task, self.rollout.trajectory_id, reported_scores(task, self.result), "agent"), ending
        on_scoring()
        await self.wait_stored()
        rewards = await self._score()
        ending = _judged(ending, rewards)
        if is_truncated and ending.cause == "policy":
            known = rewards if self.scorer else await self.place.call(self._read_rewards)
            rewards += rewards_of(task, self.rollout.trajectory_id, missing_scores(task, known), "rule")
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
