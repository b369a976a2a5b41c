"""Plans which small segments of a day are merged (pure)."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate

import msgspec

from agent_layer.schema import id_timestamp, new_id

_DAY_SECONDS = 86_400


_DAY_MS = 1_000 * _DAY_SECONDS


_MERGED = "-merged-"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Which segments are merged, and how far."""

    small_bytes: int = 8 << 20
    """Segments below this size are merged with others."""
    target_bytes: int = 64 << 20
    """Largest total size of the sources of one segment. A larger segment may only be rewritten alone."""
    max_bytes: int | None = None
    """Largest total size of the sources of one run, which merges at least one pack; None: no limit."""
    least_age_seconds: float = 60.0
    """Younger segments stay, unless they hold deleted bytes."""
    live_share: float = 0.5
    """Segments with at most this share of live bytes are rewritten in every run."""
    dead_seconds: float = 86_400.0
    """Longest time that deleted bytes stay in any other readable segment."""
    wait_seconds: float = 60.0
    """Longest wait for another process that holds the lock."""
    turn_seconds: float = 30.0
    """Time after which the lock of a stopped process expires."""


def plan_packs(sizes: Mapping[str, int], due: Collection[str], limits: Limits, now: float) -> list[list[str]]:
    """Choose the sources of each new segment: segments of one UTC day, neighbours in time.

    A merge without need at least doubles the smaller segments, so that bytes are rewritten only a few times.

    Args:
        sizes: in bytes, of all segments that may change, by name.
        due: names of those that must be rewritten, regardless of size and age.
        limits: see ``Limits``.
        now: seconds since the epoch.
    """
    days: defaultdict[int, list[str]] = defaultdict(list)
    for name, size in sorted(sizes.items()):
        at = id_timestamp(name)
        if name in due or (size < limits.small_bytes and now - at >= limits.least_age_seconds):
            days[find_day(name)].append(name)
    packs = (pack for day in sorted(days) for pack in _fill(days[day], sizes, limits.target_bytes))
    return [worth for pack in packs if (worth := _worth_merging(pack, sizes, due))]


def limit_packs(packs: Sequence[list[str]], sizes: Mapping[str, int], max_bytes: int | None) -> list[list[str]]:
    """Return the first packs, up to a total size; at least one, so that every run gets on."""
    if max_bytes is None:
        return list(packs)
    totals = accumulate(sum(sizes[name] for name in pack) for pack in packs)
    return [pack for at, (pack, total) in enumerate(zip(packs, totals, strict=True)) if at == 0 or total <= max_bytes]


def needs_rewrite(sizes: Mapping[str, int], deaths: Mapping[str, float], limits: Limits, now: float) -> bool:
    """Whether a segment has enough deleted bytes, or has had them long enough, to be rewritten.

    Args:
        sizes: in bytes, by owner.
        deaths: times of deletion, by owner.
        limits: see ``Limits``.
        now: seconds since the epoch.
    """
    dead = sum(size for owner, size in sizes.items() if owner in deaths)
    is_half_dead = sum(sizes.values()) - dead <= limits.live_share * sum(sizes.values())
    return bool(deaths) and (is_half_dead or now - min(deaths.values()) >= limits.dead_seconds)


def merged_name(names: Collection[str], digest: bytes) -> str:
    """Return the name of a merged segment: of its sources' day, sorted after them, equal for equal content only.

    Args:
        names: of the sources; they enter the name, so that no segment ever replaces itself.
        digest: of the merged content.
    """
    newest = round(1_000 * max(id_timestamp(name) for name in names))
    at = min(newest + 1, newest - newest % _DAY_MS + _DAY_MS - 1)
    identity_text = "\n".join([*sorted(names), digest.hex()]).encode()
    identity = new_id(lambda: at * 1_000_000, lambda size: blake2b(identity_text, digest_size=size).digest())
    return f"{identity}{_MERGED}{len(names)}"


def find_day(name: str) -> int:
    """Return the UTC day of a segment, counted from the epoch."""
    return int(id_timestamp(name) // _DAY_SECONDS)


def may_replace(name: str) -> bool:
    """Whether a segment of this name may be a merged one."""
    return _MERGED in name


def _fill(names: Iterable[str], sizes: Mapping[str, int], target_bytes: int) -> Iterator[list[str]]:
    pack, total = list[str](), 0
    for name in names:
        size = sizes[name]
        if pack and total + size > target_bytes:
            yield pack
            pack, total = [], 0
        pack.append(name)
        total += size
    if pack:
        yield pack


def _worth_merging(pack: Sequence[str], sizes: Mapping[str, int], due: Collection[str]) -> list[str]:
    """Leave out what is larger than all others together; empty if a single segment remains that is not due."""
    of_pack = {name: sizes[name] for name in pack}
    total, too_large = sum(of_pack.values()), set[str]()
    for name in sorted((one for one in pack if one not in due), key=of_pack.__getitem__, reverse=True):
        if 2 * of_pack[name] <= total:
            break
        too_large.add(name)
        total -= of_pack[name]
    left = [name for name in pack if name not in too_large]
    return left if len(left) > 1 or any(name in due for name in left) else []
