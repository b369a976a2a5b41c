"""This file holds which segments are left over: others hold all that lives of them. Bytes decide that, not names."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from redis import Redis

from agent_layer.schema.segment import Chunk
from agent_layer.store.keys import Keys
from agent_layer.store.living import deaths_of, owners_in
from agent_layer.store.merging import BrokenSegmentError, Source, open_source, read_living
from agent_layer.store.packing import day_of, may_replace
from agent_layer.store.protocols import ObjectStore

__all__ = ["find_successors", "is_left_over"]

_NUM_AT_ONCE = 16


def find_successors(
    keys: Keys, objects: ObjectStore, committed: Iterable[str], names: Collection[str]
) -> Mapping[str, list[Source]]:
    """Find the committed segments that say they replace these, by name; those that cannot be read are left out."""
    days = {day_of(name) for name in names}
    candidates = [one for one in committed if may_replace(one) and day_of(one) in days]

    def read(name: str) -> Source | None:
        try:
            return open_source(keys, objects, name, whole=False)
        except BrokenSegmentError:
            return None

    found: defaultdict[str, list[Source]] = defaultdict(list)
    with ThreadPoolExecutor(_NUM_AT_ONCE) as threads:
        for source in filter(None, threads.map(read, candidates)):
            for name in set(names).intersection(source.footer.replaces):
                found[name].append(source)
    return found


def is_left_over(redis: Redis, keys: Keys, segment: Source, others: Sequence[Source]) -> bool:
    """Whether each living record of a segment is in one of the others.

    Raises: BrokenSegmentError: one of them cannot be read.
    """
    deaths = deaths_of(redis, keys, owners_in(segment.footer))
    places: defaultdict[str, list[tuple[Source, Chunk]]] = defaultdict(list)
    for other in others:
        for chunk in other.footer.chunks:
            places[chunk.owner].append((other, chunk))
    for chunk in segment.footer.chunks:
        needed = {one.content for one in read_living(segment, chunk, deaths)}
        for other, place in places[chunk.owner]:
            needed -= {one.content for one in read_living(other, place, deaths)}
        if needed:
            return False
    return True
