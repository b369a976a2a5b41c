"""Counts and summaries of trajectories, grouped by task type, policy version and other fields."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Literal, TypeAlias, cast, get_args

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.infra import batched
from agent_layer.store.index.filters import Conditions, Filters, parse_filters
from agent_layer.store.index.index import Aggregate, BlockMap, Index, ScanRequest, scan_requests
from agent_layer.store.index.planner import Ordering, choose_buckets, plan_blocks
from agent_layer.store.segments import FIELDS

By: TypeAlias = Literal[
    "run", "split", "task_type", "env", "env_version", "status", "cause", "agent", "tool", "finding", "engine", "policy"
]
"""``policy`` is the newest version that a trajectory's tokens came from."""

_BITMAPS = {field.filter: field.bitmap for field in FIELDS if field.is_listed}
_SEVERAL = frozenset(field.filter for field in FIELDS if field.is_listed and field.kind == "json")
"""Fields with several values in one trajectory."""
_ORDERING = Ordering("started_at", descending=False)
"""Any ordering works: all blocks are scanned."""
_MOST_LINES = 10_000
_LINES_AT_ONCE = 64
"""Lines whose blocks are looked up in one read."""


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
    conditions = parse_filters(filters)
    scans = _scans(index, conditions, index.read_map(conditions.names))
    return sum(index.count_in_blocks(sought) for sought in scans)


def summarise_trajectories(index: Index, by: Sequence[By], filters: Filters, success: float = 1.0) -> list[Summary]:
    """Count trajectories and average their rewards, one line for each combination of values that occurs.

    Args:
        index: of the namespace.
        by: fields; without any, there is one line for all.
        filters: of trajectories.
        success: least reward of a success.

    Returns: lines in order of their values.

    Raises: BadInputError: no such field or filter, a value out of range, or too many lines.
    """
    _check_fields(by)
    conditions, fields = parse_filters(filters), [field for field in by if field != "policy"]
    wanted = [_values_of(index, field, filters) for field in fields]
    found: list[Summary] = []
    for page in batched(product(*wanted), _LINES_AT_ONCE):
        several = [dict(zip(fields, values, strict=True)) for values in page]
        narrowed = [_narrowed(conditions, shared) for shared in several]
        scopes = index.read_maps(one.names for one in narrowed)
        for shared, within, scope in zip(several, narrowed, scopes, strict=True):
            found += _summarise(index, within, scope, shared, by, success)
            if len(found) > _MOST_LINES:
                raise BadInputError(
                    f"summary by {', '.join(by)}: expected at most {_MOST_LINES} lines, found more; add filters"
                )
    return found


def _summarise(
    index: Index, conditions: Conditions, scope: BlockMap, shared: Mapping[str, str], by: Sequence[By], success: float
) -> Iterator[Summary]:
    lines: dict[float | None, list[Aggregate]] = {}
    for sought in _scans(index, conditions, scope):
        asked = msgspec.structs.replace(sought, by="policy_max" if "policy" in by else None, success=success)
        for tally in index.aggregate_blocks(asked):
            lines.setdefault(tally.value, []).append(tally)
    for value in sorted(lines, key=lambda value: (value is None, value or 0)):
        version = None if value is None else int(value)
        yield _summary_of(lines[value], {field: shared.get(field, version) for field in by})


def _summary_of(tallies: Sequence[Aggregate], by: dict[str, str | int | None]) -> Summary:
    num_rewarded = sum(one.num_rewarded for one in tallies)
    reward_sum = sum((one.reward_sum for one in tallies), Fraction())
    return Summary(
        by=by,
        count=sum(one.num_trajectories for one in tallies),
        num_rewarded=num_rewarded,
        mean_reward=float(reward_sum / num_rewarded) if num_rewarded else None,
        success_rate=sum(one.num_successes for one in tallies) / num_rewarded if num_rewarded else None,
    )


def _scans(index: Index, conditions: Conditions, scope: BlockMap) -> Iterator[ScanRequest]:
    """Scans that together cover all trajectories that meet the conditions, in the blocks that have their names."""
    for buckets in choose_buckets(scope.buckets, conditions.ranges, _ORDERING):
        any_of = None if buckets is None else [f"bucket={bucket}" for bucket in buckets]
        zones = index.zones_with_any(scope, any_of)
        planned = [zone.block for zone in plan_blocks(zones, conditions.ranges, _ORDERING)]
        yield from scan_requests(conditions, planned, any_of)


def _narrowed(conditions: Conditions, shared: Mapping[str, str]) -> Conditions:
    named = parse_filters(cast("Filters", dict(shared))).names if shared else ()
    return conditions._replace(names=tuple(dict.fromkeys((*conditions.names, *named))))


def _values_of(index: Index, field: str, filters: Filters) -> list[str]:
    """Values that a field can have; one where a filter names it, unless trajectories have several."""
    asked = cast("dict[str, object]", filters).get(field)
    if asked is not None and field not in _SEVERAL:
        return [str(asked)]
    stored = cast("set[bytes]", index.redis.smembers(index.keys.values(str(_BITMAPS[field]))))
    return sorted(value.decode() for value in stored)


def _check_fields(by: Sequence[str]) -> None:
    for field in by:
        if field not in get_args(By):
            raise BadInputError(
                f"summary by {field!r}: expected fields among {', '.join(get_args(By))}; choose of these"
            )
