"""Retention: deletes trajectories that have been kept long enough, by rules that must all hold.

Three kinds always stay: attempts without an end, members of groups that are not closed, and members of closed groups
that a consumer of the run has not acknowledged.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.infra import ObjectStore, batched
from agent_layer.schema import FINAL_STATUSES, Group, decode
from agent_layer.store.index.filters import Filters
from agent_layer.store.index.index import Index
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.index.search import scan_trajectories
from agent_layer.store.maintenance.deletion import DeletionReport, execute_deletion, plan_deletion, summarise_deletion
from agent_layer.store.maintenance.lock import check_index_complete
from agent_layer.times import parse_time

_TaskKey: TypeAlias = tuple[str | None, ...]
"""Run, split, task type, environment and hash of the input: equal for equal tasks."""
ConsumerState: TypeAlias = Literal["open", "unread"]
_PAGE = 256


class TaskKey(NamedTuple):
    """One submission of a task."""

    task: _TaskKey
    name: str
    """Its group, or its rollout if that is in no group."""


def find_duplicates(rows: Iterable[TrajectoryRow]) -> frozenset[TaskKey]:
    """Return the submissions of each task that are older than its newest one with an accepted attempt.

    A submission is as old as the start of its first attempt. One without an accepted attempt supersedes no other.
    """
    started_at: dict[TaskKey, str] = {}
    answered: set[TaskKey] = set()
    for row in rows:
        if (asking := task_key(row)) is None or row.started_at is None:
            continue
        started_at[asking] = min(started_at.get(asking, row.started_at), row.started_at)
        if row.accepted:
            answered.add(asking)
    newest: dict[_TaskKey, tuple[str, str]] = {}
    for asking in answered:
        age = started_at[asking], asking.name
        newest[asking.task] = max(newest.get(asking.task, age), age)
    return frozenset(
        asking for asking, at in started_at.items() if asking.task in newest and (at, asking.name) < newest[asking.task]
    )


def task_key(row: TrajectoryRow) -> TaskKey | None:
    """Return the submission that a trajectory belongs to; None if the hash of its input is not known."""
    if row.input_hash is None:
        return None
    task = row.run, row.split, row.task_type, row.env, row.input_hash
    return TaskKey(task, row.group_id or row.rollout_id or row.trajectory_id)


class _Reader(NamedTuple):
    consumer: str
    splits: frozenset[str] | None
    """None: not known, so any."""


class PendingConsumers:
    """Consumers that ever acknowledged a group of a run, or that have a position in it."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._by_run: dict[str, list[_Reader]] = {}

    def group_states(self, group_ids: Iterable[str]) -> dict[str, ConsumerState]:
        """Return which of these groups are not closed, and which a consumer has not acknowledged."""
        ids = sorted(set(group_ids))
        pipeline = self._index.pipeline()
        for group_id in ids:
            pipeline.get(self._index.keys.group(group_id))
            pipeline.exists(self._index.keys.queue("g", group_id))
        replies = pipeline.execute()
        groups: list[Group] = []
        states: dict[str, ConsumerState] = {}
        for group_id, stored, is_queued in zip(ids, replies[::2], replies[1::2], strict=True):
            if isinstance(stored, bytes) and isinstance(group := decode(stored), Group):
                groups.append(group)
            elif is_queued:  # open, or just closed, with its record on its way
                states[group_id] = "open"
        for group_id in self._unread(groups):
            states[group_id] = "unread"
        return states

    def _unread(self, groups: Iterable[Group]) -> Iterator[str]:
        questions = [
            (group, self._index.keys.acked(group.run, reader.consumer))
            for group in groups
            for reader in self._readers(group.run)
            if reader.splits is None or group.split in reader.splits
        ]
        pipeline = self._index.pipeline()
        for group, acked in questions:
            pipeline.sismember(acked, group.group_id)
        for (group, _), is_acked in zip(questions, cast("list[int]", pipeline.execute()), strict=True):
            if not is_acked:
                yield group.group_id

    def _readers(self, run: str) -> list[_Reader]:
        if run not in self._by_run:
            self._by_run[run] = list(self._find_readers(run))
        return self._by_run[run]

    def _find_readers(self, run: str) -> Iterator[_Reader]:
        feeds = cast("dict[bytes, bytes]", self._index.redis.hgetall(self._index.keys.feeds(run)))
        splits: dict[str, set[str]] = {}
        for feed in feeds:
            consumer, _, split = feed.decode().rpartition(":")
            splits.setdefault(consumer, set()).add(split)
        for consumer in sorted(self._acknowledging.get(run, set()) | splits.keys()):
            yield _Reader(consumer, frozenset(splits[consumer]) if consumer in splits else None)

    @cached_property
    def _acknowledging(self) -> Mapping[str, set[str]]:
        """Consumers that acknowledged a group, by run: from one scan, because it passes all keys of the server."""
        prefix, consumers = self._index.keys.name("acked", ""), defaultdict[str, set[str]](set)
        found = self._index.redis.scan_iter(match=f"{prefix}*", count=1_000)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped in redis-py
        for key in cast("Iterator[bytes]", found):
            run, _, consumer = key.decode().removeprefix(prefix).rpartition(":")  # only the run may have a ':'
            consumers[run].add(consumer)
        return consumers


class ExpiryRules(Filters, total=False):
    """Conditions under which a trajectory expires; filters are rules, too."""

    older_than: float | str | None
    """Ended (started, if no end is known) before then: seconds since the epoch, RFC 3339, or a span such as
    ``30d``."""
    policy_below: int | None
    """All of its tokens are of versions below this one. (The filter ``policy`` asks for any token in a range.)"""
    duplicates: Literal["newest"] | None
    """Its task was submitted again later, in the same run and split, with an accepted attempt. Tasks are equal if type,
    environment and hash of the input are."""
    stale_env: str | tuple[str, str] | None
    """It is of this environment, but not of the newest stored version, or not of the version given with it."""
    unread: bool
    """Members of unacknowledged groups expire, too."""


class ExpiryReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an expiry, or of its dry run."""

    deletion: DeletionReport
    counts: dict[tuple[str, str, str], int]
    """(run, status, task type) → trajectories."""
    num_running: int
    """Kept although the rules hold: they, or their groups, still run."""
    num_unread: int
    """Kept although the rules hold: a consumer has not acknowledged their groups."""


class _Verdict(NamedTuple):
    row: TrajectoryRow
    kept_because: Literal["running", "unread"] | None


def expire_trajectories(
    index: Index, objects: ObjectStore, rules: ExpiryRules, *, dry_run: bool, purge: Callable[[], object] | None
) -> ExpiryReport:
    """Delete the trajectories for which all rules hold; with ``dry_run`` only report them.

    Raises: BadInputError: there is no rule, or an invalid one; or the index is being rebuilt.
    """
    check_index_complete(index.redis, index.keys)
    kept: Counter[str] = Counter()
    counts: Counter[tuple[str, str, str]] = Counter()

    def expired() -> Iterator[TrajectoryRow]:
        for row, kept_because in _judge(index, rules):
            if kept_because:
                kept[kept_because] += 1
            else:
                counts[row.run or "", row.status or "", row.task_type or ""] += 1
                yield row

    deletion = plan_deletion(index, expired())
    if not dry_run:
        execute_deletion(index, objects, deletion, "expired", purge)
    return ExpiryReport(
        deletion=summarise_deletion(index, deletion, dry_run=dry_run),
        counts=dict(sorted(counts.items())),
        num_running=kept["running"],
        num_unread=kept["unread"],
    )


def _judge(index: Index, rules: ExpiryRules) -> Iterator[_Verdict]:
    """Yield all trajectories for which the rules hold, and why some of them are kept."""
    filters, tests = _read_rules(index, rules)
    consumers = PendingConsumers(index)
    found = (row for row in scan_trajectories(index, filters) if all(holds(row) for holds in tests))
    for page in batched(found, _PAGE):
        states = consumers.group_states(row.group_id for row in page if row.group_id)
        for row in page:
            yield _Verdict(row, _reason_to_keep(row, states, unread=rules.get("unread", False)))


def _reason_to_keep(
    row: TrajectoryRow, states: dict[str, ConsumerState], *, unread: bool
) -> Literal["running", "unread"] | None:
    group_is = states.get(row.group_id or "")
    if row.status not in FINAL_STATUSES or group_is == "open":
        return "running"
    return "unread" if group_is == "unread" and not unread else None


def _read_rules(index: Index, rules: ExpiryRules) -> tuple[Filters, list[Callable[[TrajectoryRow], bool]]]:
    """Split rules into filters, which the index applies, and tests of each row.

    Raises: BadInputError: there is no rule.
    """
    filter_rules = {name: value for name, value in rules.items() if name not in _OWN_RULES and value not in (None, {})}
    filters = cast("Filters", filter_rules)
    tests = list(_make_tests(index, filters, rules))
    if not tests and not filters:
        raise BadInputError(
            "expire: expected at least one rule, found none, which would delete everything; say for example how old"
            " what expires must be"
        )
    return cast("Filters", _narrowed(rules) | filter_rules), tests


def _narrowed(rules: ExpiryRules) -> dict[str, object]:
    """What a search can know of the rules that it does not apply itself."""
    env, older_than = _stale_env(rules), rules.get("older_than")
    names: dict[str, object] = {"env": env[0]} if env else {}
    return names if older_than is None else names | {"until": older_than}  # it started before it ended


_OWN_RULES = ExpiryRules.__annotations__.keys() - Filters.__annotations__.keys()


def _make_tests(index: Index, filters: Filters, rules: ExpiryRules) -> Iterator[Callable[[TrajectoryRow], bool]]:
    if (older_than := rules.get("older_than")) is not None:
        yield _ended_before(older_than)
    if (policy_below := rules.get("policy_below")) is not None:
        yield lambda row: row.policy_max is not None and row.policy_max < policy_below
    if env := _stale_env(rules):
        current = env[1] or _newest_version(index, env[0])
        yield lambda row: row.env == env[0] and row.env_version not in (None, current)
    if rules.get("duplicates") is not None:
        superseded = find_duplicates(scan_trajectories(index, filters))
        yield lambda row: task_key(row) in superseded


def _ended_before(moment: float | str) -> Callable[[TrajectoryRow], bool]:
    latest = parse_time(moment, "older_than", time.time()) if isinstance(moment, str) else moment

    def holds(row: TrajectoryRow) -> bool:
        known = row.ended_at or row.started_at
        return known is not None and parse_time(known, "time", 0.0) < latest

    return holds


def _stale_env(rules: ExpiryRules) -> tuple[str, str | None] | None:
    match rules.get("stale_env"):
        case str(name):
            return name, None
        case (name, version):
            return name, version
        case _:
            return None


def _newest_version(index: Index, env: str) -> str:
    """Version of the environment that the newest trajectory names which names one.

    Raises: BadInputError: none does.
    """
    for row in scan_trajectories(index, {"env": env}, "newest"):
        if row.env_version is not None:
            return row.env_version
    raise BadInputError(
        f"environment {env!r}: expected a stored trajectory that names a version of it, found none; name the version"
        " that is not stale"
    )
