"""This file holds how stored trajectories are judged anew: by a scorer, long after their agents have ended.

What a scorer gives supersedes what stood; where it fails, or gives nothing, what stood goes on to stand and its
failure
is recorded as void. People's judgements are left to people. Doing it again goes on where it was left: what this
very
version of the scorer has judged, and still stands, is not judged again.

This file holds what is told of a rescoring at its end: how many were judged, and what it did to the rewards.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from agent_layer.errors import AgentFailedError, CorruptRecordError, NotFoundError
from agent_layer.schema import (
    AttemptStarted,
    Reward,
    RewardSpec,
    Task,
    Trajectory,
    content_hash,
    current_rewards,
    reward_topic,
)
from agent_layer.store import Store
from agent_layer.store.index import TrajectoryRow
from agent_layer.store.reading import commit_reward, find_current_reward, read_rewards
from envs.scorers import Scorer, declared_rewards, judge

VerdictKind: TypeAlias = Literal["judged", "known", "failed", "open"]
"""``known``: by this scorer before. ``open``: it has not ended in a way that is scored, or its beginning is lost."""


class RescoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Who judges, and what of it is kept."""

    scorer: Scorer
    verifier_hash: str
    """Version of the scorer."""
    seconds: float
    """Longest time that one judgement may take."""
    name: str | None = None
    """The only reward that is judged; None: all that the scorer gives."""
    is_rehearsal: bool = False
    """Nothing is kept."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one trajectory."""

    trajectory_id: str
    kind: VerdictKind
    before: float | None = None
    """Reward of the rollout as it stood."""
    after: float | None = None
    error: str | None = None
    """Why the scorer failed."""


async def rescore(
    store: Store, rows: Iterator[TrajectoryRow], judging: RescoreOptions, slots: int, report: Callable[[Verdict], None]
) -> None:
    """Judge trajectories, ``slots`` at a time. Whatever ends it, each is judged wholly or not at all.

    Raises: AgentLayerError: the first that one of the slots met, when the store cannot be reached or its log is full.
    """
    taking = asyncio.Lock()

    async def judge_some() -> None:
        while True:
            async with taking:
                row = await asyncio.to_thread(next, rows, None)
            if row is None:
                return
            report(await _rescore_one(store, row, judging))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(slots):
                group.create_task(judge_some())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors


async def _rescore_one(store: Store, row: TrajectoryRow, judging: RescoreOptions) -> Verdict:
    try:
        trajectory = await asyncio.to_thread(_read_unknown, store, row.trajectory_id, judging)
    except (CorruptRecordError, NotFoundError) as error:  # damaged, or deleted meanwhile: no reason to stop here
        return Verdict(trajectory_id=row.trajectory_id, kind="failed", error=str(error))
    if trajectory is None:
        return Verdict(trajectory_id=row.trajectory_id, kind="known", before=row.reward, after=row.reward)
    verdict, rewards = await rescore_trajectory(trajectory, judging)
    if rewards and not judging.is_rehearsal:
        await asyncio.to_thread(_keep, store, rewards)
    return verdict


def _read_unknown(store: Store, trajectory_id: str, judging: RescoreOptions) -> Trajectory | None:
    """Read a trajectory; None when the scorer has judged it."""
    known = read_rewards(store.redis, store.keys, trajectory_id)
    return None if _is_known(known, judging) else store.get(trajectory_id)


def _is_known(known: Sequence[Reward], judging: RescoreOptions) -> bool:
    standing = current_rewards(known)
    return any(
        reward.verifier_hash == judging.verifier_hash
        and reward.status in ("ok", "missing")
        and judging.name in (None, reward.name)
        and (reward.void or reward in standing)
        for reward in known
    )


def _keep(store: Store, rewards: Sequence[Reward]) -> None:
    store.append(*(commit_reward(store.redis, store.keys, reward) for reward in rewards))


async def rescore_trajectory(trajectory: Trajectory, judging: RescoreOptions) -> tuple[Verdict, list[Reward]]:
    """Give the verdict on a trajectory, and the rewards that say so."""
    started, outcome, before = trajectory.started, trajectory.outcome, trajectory.reward
    if started is None or outcome is None or outcome.status not in ("completed", "truncated"):
        return Verdict(trajectory_id=trajectory.trajectory_id, kind="open", before=before, after=before), []
    task = _task_of(started, judging.name)
    given = await judge(judging.scorer, task, trajectory, outcome.result, judging.seconds)
    rewards = _superseding(_counted(given, started, task, judging), trajectory.rewards, judging)
    error = next((reward.error for reward in rewards if reward.status not in ("ok", "missing")), None)
    judged = msgspec.structs.replace(trajectory, rewards=[*trajectory.rewards, *rewards])
    kind = "judged" if error is None else "failed"
    return Verdict(
        trajectory_id=trajectory.trajectory_id, kind=kind, before=before, after=judged.reward, error=error
    ), rewards


def _task_of(started: AttemptStarted, name: str | None) -> Task:
    """The task with its grading; where its opener did not know it whole, what is known of it."""
    task = started.task or Task(
        id=started.task_id,
        run=started.run,
        split=started.split,
        task_type=started.task_type,
        labels=started.labels,
        agent=started.agent,
    )
    rewards = started.rewards or task.rewards
    return msgspec.structs.replace(task, rewards=rewards if name is None else {name: rewards.get(name, RewardSpec())})


def _counted(given: Sequence[Reward], started: AttemptStarted, task: Task, judging: RescoreOptions) -> list[Reward]:
    """Leave out what was not asked for. Where nothing is declared every reward counts: so only their sum is kept."""
    wanted = declared_rewards(task, judging.scorer)
    is_narrow = judging.name is not None or not started.rewards
    return [reward for reward in given if reward.name in wanted or not is_narrow]


def _superseding(given: Sequence[Reward], known: Sequence[Reward], judging: RescoreOptions) -> list[Reward]:
    """Let each judgement take the place of what stands; one that is null takes no place, one of a person keeps its."""
    replaced = [(reward, find_current_reward(known, reward_topic(reward))) for reward in given]
    return [
        _placed(reward, standing, judging)
        for reward, standing in replaced
        if standing is None or standing.source != "human"
    ]


def _placed(reward: Reward, standing: Reward | None, judging: RescoreOptions) -> Reward:
    """The same scorer in the same place of the same history gives the same id, so that repeating adds nothing."""
    before = standing.reward_id if standing else None
    place = f"{reward.trajectory_id}\n{reward.name}\n{judging.verifier_hash}\n{before}"
    is_void, is_failure = reward.score is None, reward.status not in ("ok", "missing")
    return msgspec.structs.replace(
        reward,
        reward_id=reward.reward_id if is_failure else content_hash(place.encode()),
        verifier_hash=judging.verifier_hash,
        supersedes=None if is_void else before,
        void=is_void,
    )


_NUM_SHOWN = 10
"""Changed rewards that are listed one by one."""


class Tally:
    """Counts verdicts; what it keeps does not grow with their number."""

    def __init__(self) -> None:
        self._kinds = Counter[VerdictKind]()
        self._changed: list[str] = []
        """The first that changed, as they are shown."""
        self._num_changed = 0
        self._sums = {"before": 0.0, "after": 0.0}
        self._nums = {"before": 0, "after": 0}
        self._error: str | None = None

    def add(self, verdict: Verdict) -> None:
        """Count one."""
        self._kinds[verdict.kind] += 1
        self._error = self._error or verdict.error
        if verdict.kind != "judged":
            return
        for side, reward in (("before", verdict.before), ("after", verdict.after)):
            if reward is not None:
                self._sums[side] += reward
                self._nums[side] += 1
        if verdict.before != verdict.after:
            self._num_changed += 1
            if len(self._changed) < _NUM_SHOWN:
                self._changed.append(f"{verdict.trajectory_id}  {_shown(verdict.before)} → {_shown(verdict.after)}")

    def lines(self, judging: RescoreOptions, *, is_stopped: bool) -> Iterator[str]:
        """What a person reads at the end."""
        yield from self._changed
        if self._num_changed > len(self._changed):
            yield f"... and {self._num_changed - len(self._changed)} more"
        would = " (nothing was kept)" if judging.is_rehearsal else ""
        yield f"judged {self._kinds['judged']}, changed {self._num_changed}{would}"
        yield f"mean reward {self._mean('before')} → {self._mean('after')}"
        if known := self._kinds["known"]:
            yield f"{known} were judged by this version of the scorer before ({judging.verifier_hash})"
        if unended := self._kinds["open"]:
            yield f"{unended} have not ended in a way that is scored"
        if is_stopped:
            yield "stopped; the same command goes on from here"

    def raise_failures(self) -> None:
        """Let the command fail where the scorer did.

        Raises: AgentFailedError: it failed at least once.
        """
        if failed := self._kinds["failed"]:
            raise AgentFailedError(
                f"rescore: expected a judgement of every trajectory, but {failed} could not be judged and keep what"
                f" they had; the first failed with {self._error}; the same command tries them again"
            )

    def _mean(self, side: str) -> str:
        num = self._nums[side]
        return f"{self._sums[side] / num:.4g} (of {num})" if num else "null"


def _shown(reward: float | None) -> str:
    return "null" if reward is None else f"{reward:g}"
