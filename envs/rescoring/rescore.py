"""Rescoring: a scorer scores stored trajectories again, long after their agents have ended.

New rewards supersede current ones. If the scorer fails or returns nothing, the current reward is kept and the failure
recorded as void. Human rewards always stay. A repeated run continues where it stopped: it skips what this version of
the scorer has scored, as long as that is current.
"""

import asyncio
import base64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
from contextlib import AsyncExitStack
from fractions import Fraction
from typing import Literal, TypeAlias, cast

import msgspec

from agent_layer.errors import AgentFailedError, BadInputError, CorruptRecordError, NotFoundError
from agent_layer.schema import (
    AttemptStarted,
    Group,
    Reward,
    RewardSpec,
    Task,
    Trajectory,
    content_hash,
    current_rewards,
    decode,
    plain_number,
    reward_topic,
)
from agent_layer.schema.sandbox import Snapshot
from agent_layer.store import Store, TrajectoryRow, commit_reward, find_current_reward, read_rewards
from envs.grading import (
    AnyScorer,
    GroupScorer,
    JudgeCalls,
    Judgement,
    ScoringContext,
    ScoringRun,
    TakeBox,
    call_function,
)
from envs.scorers import FAILED_STATUSES, declared_rewards, run_scorer
from tracer.transport import GatewayClient

VerdictKind: TypeAlias = Literal["judged", "known", "failed", "open"]
"""``known``: scored by this scorer before. ``open``: it did not end in a way that is scored, or its start is lost."""
_NUM_SHOWN = 10
"""Changed rewards to list one by one."""


class RescoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Scorer to run, and what to store of its rewards."""

    scorer: AnyScorer | GroupScorer
    verifier_hash: str
    """Version of the scorer."""
    seconds: float
    """Longest time for one trajectory."""
    scorer_name: str | None = None
    """Name under which the scorer was found, for its rewards."""
    name: str | None = None
    """The only reward to score; None: all that the scorer returns."""
    is_dry_run: bool = False
    """Nothing is stored."""
    take_box: TakeBox | None = None
    """Returns fresh boxes for scorers; None: there are none."""
    gateway: GatewayClient | None = None
    """Where scorers ask judges; None: nowhere."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Result for one trajectory."""

    trajectory_id: str
    kind: VerdictKind
    before: float | None = None
    """Reward of the rollout before."""
    after: float | None = None
    error: str | None = None
    """Why the scorer failed."""


async def rescore(
    store: Store, rows: Iterator[TrajectoryRow], options: RescoreOptions, slots: int, report: Callable[[Verdict], None]
) -> None:
    """Score trajectories, ``slots`` at a time. Each is scored completely or not at all, however this ends.

    A scorer of groups judges the whole group of each trajectory that is found.

    Raises: AgentLayerError: the store cannot be reached or its log is full; the first such error of any slot.
    """
    lock = asyncio.Lock()
    seen: set[str] = set()

    async def score_some() -> None:
        while True:
            async with lock:
                row = await asyncio.to_thread(next, rows, None)
            if row is None:
                return
            for verdict in await _rescore_row(store, row, options, seen):
                report(verdict)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(slots):
                group.create_task(score_some())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors


async def _rescore_row(store: Store, row: TrajectoryRow, options: RescoreOptions, seen: set[str]) -> list[Verdict]:
    """Score a trajectory, or the group that it belongs to unless that was ``seen``."""
    if not isinstance(options.scorer, GroupScorer):
        return [await _rescore_one(store, row, options)]
    closed: object = row.group_id and await asyncio.to_thread(store.redis.get, store.keys.group(row.group_id))
    if row.group_id is None or not isinstance(closed, bytes):
        return [Verdict(trajectory_id=row.trajectory_id, kind="open", before=row.reward, after=row.reward)]
    if row.group_id in seen:  # nothing is awaited between this and the next line: slots share ``seen``
        return []
    seen.add(row.group_id)
    group = decode(closed)
    assert isinstance(group, Group)
    return await _rescore_group(store, group, options, options.scorer)


async def _rescore_group(store: Store, group: Group, options: RescoreOptions, scorer: GroupScorer) -> list[Verdict]:
    """Score all attempts of a closed group, unless this scorer has scored all of them."""
    try:
        unscored = [await asyncio.to_thread(_read_unscored, store, one, options) for one in group.trajectory_ids]
        trajectories = [await asyncio.to_thread(store.get, one) for one in group.trajectory_ids]
        found = [(one, await asyncio.to_thread(_read_artifacts, store, one)) for one in trajectories]
    except (CorruptRecordError, NotFoundError) as error:
        return [Verdict(trajectory_id=one, kind="failed", error=str(error)) for one in group.trajectory_ids]
    if all(one is None for one in unscored):
        return [
            Verdict(trajectory_id=one.trajectory_id, kind="known", before=one.reward, after=one.reward)
            for one in trajectories
        ]
    if any(one.started is None for one in trajectories):
        return [Verdict(trajectory_id=one.trajectory_id, kind="open") for one in trajectories]
    judgements = await _judge_group(scorer, found, options)
    return [
        await _store_judgement(
            store, trajectory, artifacts, msgspec.structs.replace(options, scorer=_GroupScorer(given))
        )
        for (trajectory, artifacts), given in zip(found, judgements, strict=True)
    ]


class _GroupScorer:
    """Scorer that answers what a group's scorer found of one attempt. Contract: ``Scorer``."""

    def __init__(self, given: Judgement | Exception) -> None:
        self._given = given

    async def score(self, context: ScoringContext) -> Judgement:  # noqa: ARG002  # the protocol's own signature
        if isinstance(self._given, Exception):
            raise self._given
        return self._given


async def _judge_group(
    scorer: GroupScorer, found: Sequence[tuple[Trajectory, Snapshot | None]], options: RescoreOptions
) -> Sequence[Judgement | Exception]:
    async with AsyncExitStack() as ended_with_it:
        runs = [await _open_run(one, options, artifacts, ended_with_it) for one, artifacts in found]
        try:
            async with asyncio.timeout(options.seconds):
                judgements = _list_judgements(await call_function(scorer.score_group, runs))
        except Exception as error:  # noqa: BLE001  # a scorer may raise anything
            return [error] * len(runs)
    if len(judgements) != len(runs):
        wrong = f"score_group: expected {len(runs)} judgements, one for each attempt, in order, found {len(judgements)}"
        return [BadInputError(f"{wrong}; return None for what it cannot judge")] * len(runs)
    return judgements


def _list_judgements(given: object) -> list[Judgement]:  # kept: tests hold it
    is_one = isinstance(given, str | bytes | Mapping | AbstractSet) or plain_number(given) is not None
    if is_one or not isinstance(given, Iterable):
        kind = type(cast("object", given)).__name__
        raise BadInputError(
            f"score_group: expected a judgement for each attempt, in order, found one {kind}; return a list"
        )
    return list(cast("Iterable[Judgement]", given))


async def _rescore_one(store: Store, row: TrajectoryRow, options: RescoreOptions) -> Verdict:
    try:
        trajectory = await asyncio.to_thread(_read_unscored, store, row.trajectory_id, options)
        if trajectory is None:
            return Verdict(trajectory_id=row.trajectory_id, kind="known", before=row.reward, after=row.reward)
        artifacts = await asyncio.to_thread(_read_artifacts, store, trajectory)
    except (CorruptRecordError, NotFoundError) as error:  # damaged, or deleted in between: the others go on
        return Verdict(trajectory_id=row.trajectory_id, kind="failed", error=str(error))
    return await _store_judgement(store, trajectory, artifacts, options)


async def _store_judgement(
    store: Store, trajectory: Trajectory, artifacts: Snapshot | None, options: RescoreOptions
) -> Verdict:
    verdict, rewards = await rescore_trajectory(trajectory, options, artifacts)
    if rewards and not options.is_dry_run:
        await asyncio.to_thread(_store_rewards, store, rewards)
    return verdict


def _read_unscored(store: Store, trajectory_id: str, options: RescoreOptions) -> Trajectory | None:
    """Read a trajectory; None when this scorer has scored it."""
    known = read_rewards(store.redis, store.keys, trajectory_id)
    return None if _is_known(known, options) else store.get(trajectory_id)


def _read_artifacts(store: Store, trajectory: Trajectory) -> Snapshot | None:
    """Return the files that the agent left; None: none were taken.

    Raises: CorruptRecordError, NotFoundError: they are damaged or deleted.
    """
    name = trajectory.outcome and trajectory.outcome.artifacts
    if name is None:
        return None
    contents = store.contents(trajectory)
    if name not in contents:
        raise NotFoundError(
            f"trajectory {trajectory.trajectory_id}: its artifacts {name} are not stored; it cannot be judged again"
        )
    try:
        return Snapshot(archive=base64.b64decode(msgspec.json.decode(contents[name], type=str), validate=True))
    except ValueError as error:  # a DecodeError of msgspec is one
        raise CorruptRecordError(
            f"trajectory {trajectory.trajectory_id}: its artifacts {name} are no archive, {error}; run its task again"
        ) from error


def _is_known(known: Sequence[Reward], options: RescoreOptions) -> bool:
    standing = current_rewards(known)
    return any(
        reward.verifier_hash == options.verifier_hash
        and reward.status not in FAILED_STATUSES
        and options.name in (None, reward.name)
        and (reward.void or reward in standing)
        for reward in known
    )


def _store_rewards(store: Store, rewards: Sequence[Reward]) -> None:
    store.append(*(commit_reward(store.redis, store.keys, reward) for reward in rewards))


async def rescore_trajectory(
    trajectory: Trajectory, options: RescoreOptions, artifacts: Snapshot | None = None
) -> tuple[Verdict, list[Reward]]:
    """Score a trajectory; return the verdict and the rewards to store.

    Args:
        trajectory: as stored.
        options: scorer to run.
        artifacts: files that its agent left; None: none were taken.
    """
    started, outcome, before = trajectory.started, trajectory.outcome, trajectory.reward
    if started is None or outcome is None or outcome.status not in ("completed", "truncated"):
        return Verdict(trajectory_id=trajectory.trajectory_id, kind="open", before=before, after=before), []
    task = _rebuild_task(started, options.name)
    assert not isinstance(options.scorer, GroupScorer)
    async with AsyncExitStack() as ended_with_it:
        run = await _open_run(trajectory, options, artifacts, ended_with_it)
        given = await run_scorer(options.scorer, run, options.seconds, options.scorer_name)
    wanted = declared_rewards(task, options.scorer)
    # rewards that were not requested are dropped; if none are declared every reward counts, so only their sum is kept
    is_narrow = options.name is not None or not started.rewards
    selected = [
        reward
        for reward in given
        if reward.name in wanted or not is_narrow or (reward.scope != "rollout" and options.name is None)
    ]
    standing = [find_current_reward(trajectory.rewards, reward_topic(reward)) for reward in selected]
    rewards = [  # each supersedes the current one; null rewards supersede nothing, and human rewards stay
        _with_history(reward, current, options)
        for reward, current in zip(selected, standing, strict=True)
        if current is None or current.source != "human"
    ]
    error = next((reward.error for reward in rewards if reward.status in FAILED_STATUSES), None)
    judged = msgspec.structs.replace(trajectory, rewards=[*trajectory.rewards, *rewards])
    kind = "judged" if error is None else "failed"
    return Verdict(
        trajectory_id=trajectory.trajectory_id, kind=kind, before=before, after=judged.reward, error=error
    ), rewards


async def _open_run(
    trajectory: Trajectory, options: RescoreOptions, artifacts: Snapshot | None, ended_with_it: AsyncExitStack
) -> ScoringRun:
    """Return what a scorer sees of a trajectory whose start is stored."""
    assert trajectory.started is not None
    task = _rebuild_task(trajectory.started, options.name)
    judge = None
    if options.gateway is not None:
        judge = JudgeCalls(
            options.gateway,
            run=task.run,
            trajectory_id=trajectory.trajectory_id,
            task_id=task.id,
            seconds=options.seconds,
        )
        ended_with_it.push_async_callback(judge.close)
    run = ScoringRun(
        task,
        trajectory,
        trajectory.outcome and trajectory.outcome.result,
        artifacts=artifacts,
        take_box=options.take_box,
        ask_judge=judge and judge.ask,
    )
    ended_with_it.push_async_callback(run.close)
    return run


def _rebuild_task(started: AttemptStarted, name: str | None) -> Task:
    """Return the task with its grading, or as much of it as the start recorded."""
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


def _with_history(reward: Reward, standing: Reward | None, options: RescoreOptions) -> Reward:
    """Derive the id from scorer, reward and history, so that a repeated run adds nothing."""
    before = standing.reward_id if standing else None
    place = f"{reward.trajectory_id}\n{reward.name}\n{options.verifier_hash}\n{before}"
    if reward.step is not None:
        place += f"\n{reward.step}"
    is_void, is_failure = reward.score is None, reward.status in FAILED_STATUSES
    return msgspec.structs.replace(
        reward,
        reward_id=reward.reward_id if is_failure else content_hash(place.encode()),
        verifier_hash=options.verifier_hash,
        supersedes=None if is_void else before,
        void=is_void,
    )


class Tally:
    """Counts verdicts in constant memory."""

    def __init__(self) -> None:
        self._kinds = Counter[VerdictKind]()
        self._changed: list[str] = []
        """Lines of the first changes."""
        self._num_changed = 0
        self._sums = {"before": Fraction(), "after": Fraction()}
        """Exact: the sum of huge rewards is beyond what a float holds, their mean is not."""
        self._nums = {"before": 0, "after": 0}
        self._error: str | None = None

    def add(self, verdict: Verdict) -> None:
        """Count a verdict."""
        self._kinds[verdict.kind] += 1
        self._error = self._error or verdict.error
        if verdict.kind != "judged":
            return
        for side, reward in (("before", verdict.before), ("after", verdict.after)):
            if reward is not None:
                self._sums[side] += Fraction(reward)
                self._nums[side] += 1
        if verdict.before != verdict.after:
            self._num_changed += 1
            if len(self._changed) < _NUM_SHOWN:
                self._changed.append(f"{verdict.trajectory_id}  {_shown(verdict.before)} → {_shown(verdict.after)}")

    def lines(self, options: RescoreOptions, *, is_stopped: bool) -> Iterator[str]:
        """Yield the lines of the summary."""
        yield from self._changed
        if self._num_changed > len(self._changed):
            yield f"... and {self._num_changed - len(self._changed)} more"
        would = " (nothing was kept)" if options.is_dry_run else ""
        yield f"judged {self._kinds['judged']}, changed {self._num_changed}{would}"
        yield f"mean reward {self._mean('before')} → {self._mean('after')}"
        if known := self._kinds["known"]:
            yield f"{known} were judged by this version of the scorer before ({options.verifier_hash})"
        if unended := self._kinds["open"]:
            yield f"{unended} have not ended in a way that is scored"
        if is_stopped:
            yield "stopped; the same command goes on from here"

    def raise_failures(self) -> None:
        """Fail the command if the scorer failed.

        Raises: AgentFailedError: it failed at least once.
        """
        if failed := self._kinds["failed"]:
            raise AgentFailedError(
                f"rescore: {failed} of the trajectories could not be scored and kept their rewards; the first failed"
                f" with {self._error}; the same command tries again"
            )

    def _mean(self, side: str) -> str:
        num = self._nums[side]
        return f"{float(self._sums[side] / num):.4g} (of {num})" if num else "null"


def _shown(reward: float | None) -> str:
    return "null" if reward is None else f"{reward:g}"
