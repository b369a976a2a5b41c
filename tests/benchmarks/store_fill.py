"""This file holds how an index is filled without objects: facts become records, and those are committed as a shipper
commits those of a segment. It alone knows the inside of the store.
"""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context

from store_facts import Facts, facts_of
from store_workload import call_id_of, ending_of, opening_of

from agent_layer.schema.codec import LogRecord
from agent_layer.schema.ids import new_id
from agent_layer.schema.observation import Observation
from agent_layer.schema.segment import Chunk, SegmentFooter
from agent_layer.schema.step import Action, StepPart
from agent_layer.settings import Settings
from agent_layer.store.clients import open_redis
from agent_layer.store.commit import commit_segment
from agent_layer.store.keys import Keys
from agent_layer.store.segments import segment_key

__all__ = ["commit_facts", "fill"]

_PER_SEGMENT = 100
_NUM_PROCESSES = 2
_CHUNK_BYTES = 19_000


def fill(settings: Settings, begin: int, end: int, num_steps: int | None = None) -> None:
    """Enter the trajectories of these numbers into the index; None: each has the steps that its facts say."""
    jobs = [(settings, first, min(first + 5_000, end), num_steps) for first in range(begin, end, 5_000)]
    with ProcessPoolExecutor(_NUM_PROCESSES, get_context("spawn")) as processes:
        for num_done, _ in enumerate(processes.map(_fill_part, jobs), start=1):
            print(f"\r  index: {begin + (end - begin) * num_done // len(jobs):,} trajectories", end="", file=sys.stderr)
    print(file=sys.stderr)


def commit_facts(redis, keys: Keys, facts: Sequence[Facts]) -> None:
    """Commit one segment of such trajectories."""
    records = {one.trajectory_id: _records_of(one) for one in facts}
    name = new_id()
    chunks = [
        Chunk(owner=owner, offset=number * _CHUNK_BYTES, size_bytes=_CHUNK_BYTES)
        for number, owner in enumerate(records)
    ]
    footer = SegmentFooter(name=name, created_at=facts[0].started_at, chunks=chunks)
    key = segment_key(keys, name, facts[0].started_at)
    commit_segment(redis, keys, key, len(facts) * _CHUNK_BYTES, footer, records)


def _fill_part(job: tuple[Settings, int, int, int | None]) -> None:
    settings, begin, end, num_steps = job
    redis, keys = open_redis(settings), Keys(settings.namespace)
    facts = (facts_of(number, num_steps) for number in range(begin, end))
    while segment := list(islice(facts, _PER_SEGMENT)):
        commit_facts(redis, keys, segment)


def _records_of(facts: Facts) -> list[LogRecord]:
    """What of a trajectory's records the index takes notice of."""
    return [opening_of(facts), *_calls_of(facts), *ending_of(facts)]


def _calls_of(facts: Facts) -> Iterator[LogRecord]:
    whose = {"trajectory_id": facts.trajectory_id, "run": facts.run}
    for step in range(facts.num_steps):
        call_id, at = call_id_of(facts, step), facts.started_at + 5.0 * step
        version = facts.newest_version if step else facts.oldest_version
        agent, tool = facts.agents[step % len(facts.agents)], facts.tools[step % len(facts.tools)]
        actions = [Action(policy_versions=[(version, 134)])]
        part = {**whose, "call_id": call_id, "source": "gateway"}
        yield StepPart(**part, phase="start", at=at, agent=agent)
        yield StepPart(**part, phase="end", at=at + 3.0, actions=actions, status="ok")
        yield Observation(**whose, observation_id=call_id, name=tool, at=at + 4.0, call_id=call_id)
