"""Direct fill of an index without objects: it commits summaries as a shipper would.

Only this benchmark file knows internals of the store.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import msgspec
from redis import Redis
from store_facts import Facts, make_facts
from store_workload import make_call_id, make_ending, make_opening

from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.keys import Keys
from agent_layer.schema.ids import new_id
from agent_layer.schema.segment import ENDED, STARTED, Chunk, SegmentFooter, TrajectorySummary
from agent_layer.settings import Settings
from agent_layer.store.index.restore import enter_segments
from agent_layer.store.segments.format import SealedSegment
from agent_layer.store.segments.summary import describe_owner

__all__ = ["commit_facts", "fill", "seal_facts"]

_PER_SEGMENT = 100
_NUM_PROCESSES = 2
_CHUNK_BYTES = 19_000


def fill(settings: Settings, begin: int, end: int, num_steps: int | None = None) -> None:
    """Commit the trajectories of these numbers to the index; None: the number of steps follows from the facts."""
    jobs = [(settings, first, min(first + 5_000, end), num_steps) for first in range(begin, end, 5_000)]
    with ProcessPoolExecutor(_NUM_PROCESSES, get_context("spawn")) as processes:
        for num_done, _ in enumerate(processes.map(_fill_part, jobs), start=1):
            print(f"\r  index: {begin + (end - begin) * num_done // len(jobs):,} trajectories", end="", file=sys.stderr)
    print(file=sys.stderr)


def commit_facts(redis: Redis, keys: Keys, facts: Sequence[Facts]) -> None:
    """Commit one segment of such trajectories."""
    enter_segments(redis, keys, [seal_facts(facts)])


def seal_facts(facts: Sequence[Facts]) -> SealedSegment:
    """Return what a commit has to know of a segment of such trajectories."""
    chunks = [
        Chunk(owner=one.trajectory_id, offset=number * _CHUNK_BYTES, size_bytes=_CHUNK_BYTES)
        for number, one in enumerate(facts)
    ]
    summaries = [_make_summary(one) for one in facts]
    footer = SegmentFooter(name=new_id(), created_at=facts[0].started_at, chunks=chunks, trajectories=summaries)
    return SealedSegment(footer, len(facts) * _CHUNK_BYTES)


def _fill_part(job: tuple[Settings, int, int, int | None]) -> None:
    settings, begin, end, num_steps = job
    redis, keys = open_redis(settings), Keys(settings.namespace)
    for first in range(begin, end, _PER_SEGMENT):
        last = min(first + _PER_SEGMENT, end)
        commit_facts(redis, keys, [make_facts(number, num_steps) for number in range(first, last)])


def _make_summary(facts: Facts) -> TrajectorySummary:
    """What the shipper makes of all its records; those of its steps would take longer to make than to sum up."""
    [summary] = describe_owner([make_opening(facts), *make_ending(facts)])
    return msgspec.structs.replace(
        summary,
        calls={make_call_id(facts, step): (STARTED | ENDED, 1) for step in range(facts.num_steps)},
        agents=sorted(facts.agents),
        tools=sorted(facts.tools),
        policy_min=facts.oldest_version,
        policy_max=facts.newest_version,
    )
