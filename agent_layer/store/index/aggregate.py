"""Counts and summaries of trajectories, grouped by task type, policy version and other fields."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, filterfalse
from math import fsum, inf, isnan
from operator import neg
from typing import Literal, TypeAlias, cast, get_args

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.store.index.blocks import Matches, read_blocks
from agent_layer.store.index.filters import Filters, name_bitmap
from agent_layer.store.index.index import Index
from agent_layer.store.index.members import find_matches
from agent_layer.store.index.plan import bucket_name
from agent_layer.store.index.search import scan_trajectories
from agent_layer.store.segments.fields import FIELDS

By: TypeAlias = Literal[
    "run", "split", "task_type", "env", "env_version", "status", "cause", "agent", "tool", "finding", "engine", "policy"
]
"""``policy`` is the newest version that a trajectory's tokens came from."""
SummaryField: TypeAlias = By | Literal["task"]
"""``task``: its id. No list has all tasks, so that each trajectory's row is read."""

_BITMAPS = {field.filter: field.bitmap for field in FIELDS if field.is_listed or field.filter == "task"}
_SEVERAL = frozenset(field.filter for field in FIELDS if field.is_listed and field.kind == "json")
"""Fields with several values in one trajectory."""
_REWARDED = "rewarded"
_MAX_LINES = 10_000

_Line: TypeAlias = tuple[tuple[str, ...], int | None]
"""Values of fields, and a policy version."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Count and rewards of the trajectories that share some values."""

    by: dict[str, str | int | None]
    """Their shared values. A trajectory of two agents counts once for each; one without agents counts for none."""
    count: int
    num_rewarded: int
    """Trajectories with a reward; the others failed for no fault of the policy, or have no reward yet."""
    mean_reward: float | None
    """Over those with a reward. The sum is exact and rounded once, so it does not depend on their order."""
    success_rate: float | None
    """Share of those with a reward whose reward is at least ``success``."""


def count_trajectories(index: Index, filters: Filters) -> int:
    """Count the trajectories that pass all filters."""
    return sum(found.members.bit_count() for found in find_matches(index, index.parse(filters)))


def count_by_fields(
    index: Index, fields: Sequence[By], filters: Filters
) -> tuple[int, dict[By, dict[str | int | None, int]]]:
    """Count the trajectories that pass all filters, and those with each value of each field.

    Returns: the count of all; field → value → count, without values that do not occur; a policy of None is not known.

    Raises: BadInputError: no such field or filter.
    """
    _check_fields(fields, get_args(By))
    listed: list[By] = [field for field in fields if field != "policy"]
    values = _find_values(index, listed, filters)
    names: dict[str, tuple[By, str]] = {
        name_bitmap(str(_BITMAPS[field]), value): (field, value) for field in listed for value in values[field]
    }
    counts: dict[By, Counter[str | int | None]] = {field: Counter() for field in fields}
    columns, num_all = (["policy_max"] if "policy" in fields else []), 0
    for found in find_matches(index, index.parse(filters), names, columns):
        num_all += found.members.bit_count()
        for name in names.keys() & found.bitmaps.keys():
            field, value = names[name]
            counts[field][value] += (found.members & found.bitmaps[name]).bit_count()
        for column in columns:
            known = Counter(filterfalse(isnan, found.numbers(column, found.members)))
            counts["policy"].update({int(number): num for number, num in known.items()})
            counts["policy"][None] += found.members.bit_count() - known.total()
    return num_all, {field: dict(+counted) for field, counted in counts.items()}


def count_by_bucket(index: Index, filters: Filters) -> tuple[int, dict[int, int]]:
    """Count the trajectories that pass all filters, and those with a reward in each bucket that occurs in the index.

    Returns: the count of all; bucket → count, lowest first. ``bucket_ends`` says which rewards a bucket holds.
    """
    counts = dict.fromkeys(index.read_map().buckets, 0)
    names, num_all = {bucket_name(bucket): bucket for bucket in counts}, 0
    for found in find_matches(index, index.parse(filters), names):
        num_all += found.members.bit_count()
        for name in names.keys() & found.bitmaps.keys():
            counts[names[name]] += (found.members & found.bitmaps[name]).bit_count()
    return num_all, counts


def find_newest_starts(index: Index, field: By) -> dict[str, float]:
    """Return when the newest trajectory with each value of a field started, in seconds since the epoch.

    Args:
        index: of the namespace.
        field: any but policy.
    """
    values = {name_bitmap(str(_BITMAPS[field]), value): value for value in _find_values(index, [field], {})[field]}
    scope, newest = index.read_map(besides=values), dict.fromkeys(values, -inf)
    latest = dict(zip(scope.blocks, scope.ends("started_at")[1], strict=True))
    for block in sorted(latest, key=lambda block: latest[block], reverse=True):
        if candidates := [name for name in values if block in scope.places[name] and newest[name] < latest[block]]:
            found = read_blocks(index, [block], candidates, ["started_at"])
            for name in candidates:
                newest[name] = max(newest[name], *found.numbers("started_at", found.bitmaps[name]), -inf)
    return {values[name]: start for name, start in newest.items() if start > -inf}


def summarise_trajectories(
    index: Index, by: Sequence[SummaryField], filters: Filters, success: float = 1.0
) -> list[Summary]:
    """Count trajectories and average their rewards, one line for each combination of values that occurs.

    Args:
        index: of the namespace.
        by: fields; without any, there is one line for all.
        filters: of trajectories.
        success: least reward of a success.

    Returns: lines in order of their values.

    Raises: BadInputError: no such field or filter, a value out of range, or too many lines.
    """
    _check_fields(by, (*get_args(By), "task"))
    fields: list[SummaryField] = [field for field in by if field != "policy"]
    values = _find_values(index, fields, filters)
    if "task" in fields and filters.get("task") is None:
        values["task"] = sorted({row.task_id for row in scan_trajectories(index, filters) if row.task_id})
    names = {field: {value: name_bitmap(str(_BITMAPS[field]), value) for value in values[field]} for field in fields}
    wanted = [_REWARDED, *(name for named in names.values() for name in named.values())]
    columns = ["reward", "policy_max"] if "policy" in by else ["reward"]
    tallies: defaultdict[_Line, _Tally] = defaultdict(_Tally)
    for found in find_matches(index, index.parse(filters), wanted, columns):
        for shared, members in _split(found, found.members, [names[field] for field in fields]):
            if "policy" in by:
                for version, rewards in _by_version(found, members).items():
                    tallies[shared, version].add(len(rewards), [*filterfalse(isnan, rewards)], success)
            else:
                rewarded = members & found.bitmaps.get(_REWARDED, 0)
                tallies[shared, None].add(members.bit_count(), [*found.numbers("reward", rewarded)], success)
        if len(tallies) > _MAX_LINES:
            raise BadInputError(
                f"summary by {', '.join(by)}: expected at most {_MAX_LINES} lines, found more; add filters"
            )
    lines = sorted(tallies, key=lambda line: (line[0], line[1] is None, line[1] or 0))
    return [_make_summary(tallies[line], _named(by, fields, line)) for line in lines]


class _Tally:
    """Count and rewards of some trajectories; the sum is exact, whatever the order in which they come."""

    def __init__(self) -> None:
        self.count = self.num_rewarded = self.num_successes = 0
        self.reward_sum = Fraction()

    def add(self, count: int, rewards: Sequence[float], success: float) -> None:
        """Add trajectories, and the rewards of those that have one."""
        self.count += count
        self.num_rewarded += len(rewards)
        self.num_successes += sum(reward >= success for reward in rewards)
        self.reward_sum += _exact_sum(rewards)


def _exact_sum(numbers: Sequence[float]) -> Fraction:  # kept: an algorithm of its own
    """Return the exact sum: what the rounded sum leaves is summed up again, until nothing is left."""
    parts = list[float]()
    try:
        while part := fsum(chain(numbers, map(neg, parts))):
            parts.append(part)
    except OverflowError:  # beyond 1e308
        return sum(map(Fraction, numbers), Fraction())
    return sum(map(Fraction, parts), Fraction())


def _split(
    found: Matches, members: int, fields: Sequence[Mapping[str, str]], shared: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield each combination of values that occurs, one of each field, with the members that have all of them."""
    if not members:
        return
    if not fields:
        yield shared, members
        return
    for value, name in fields[0].items():
        yield from _split(found, members & found.bitmaps.get(name, 0), fields[1:], (*shared, value))


def _by_version(found: Matches, members: int) -> dict[int | None, list[float]]:
    """Return the rewards of some members by policy version; NaN: there is none."""
    rewards: defaultdict[int | None, list[float]] = defaultdict(list)
    for version, reward in zip(found.numbers("policy_max", members), found.numbers("reward", members), strict=True):
        rewards[None if isnan(version) else int(version)].append(reward)
    return rewards


def _named(by: Sequence[SummaryField], fields: Sequence[SummaryField], line: _Line) -> dict[str, str | int | None]:
    values, version = dict(zip(fields, line[0], strict=True)), line[1]
    return {field: values.get(field, version) for field in by}


def _make_summary(tally: _Tally, by: dict[str, str | int | None]) -> Summary:
    num = tally.num_rewarded
    return Summary(
        by=by,
        count=tally.count,
        num_rewarded=num,
        mean_reward=float(tally.reward_sum / num) if num else None,
        success_rate=tally.num_successes / num if num else None,
    )


def _find_values(index: Index, fields: Sequence[SummaryField], filters: Filters) -> dict[SummaryField, list[str]]:
    """Return the values that fields can have; one where a filter names it, unless trajectories have several."""
    pipeline = index.pipeline()
    for field in fields:
        pipeline.smembers(index.keys.values(str(_BITMAPS[field])))
    conditions = cast("Mapping[str, object]", filters)
    return {
        field: sorted(value.decode() for value in stored)
        if conditions.get(field) is None or field in _SEVERAL
        else [str(conditions[field])]
        for field, stored in zip(fields, cast("list[set[bytes]]", pipeline.execute()), strict=True)
    }


def _check_fields(by: Sequence[str], known: Sequence[str]) -> None:
    for field in by:
        if field not in known:
            raise BadInputError(f"summary by {field!r}: expected fields among {', '.join(known)}; choose of these")
