"""A rebuild of the index that is killed at any moment goes on where it was; those who write meanwhile lose nothing."""

import os
import random
import signal
import subprocess
import sys
import threading
from functools import partial

import pytest

from agent_layer.infra import batched
from agent_layer.recorder import Recorder
from agent_layer.store import enter_segments, open_store
from agent_layer.store.index.index import BLOCK, Index
from agent_layer.store.maintenance.index_audit import count_orphan_bits, find_inconsistent_rows
from agent_layer.store.maintenance.rebuild import drop_index, index_segment
from agent_layer.store.segments.format import read_footer, segment_key

from ...builders import attempt
from ...stored import mark_deleted, write_segment
from ...waiting import communicate, join, wait_for_exit

NUM_SEGMENTS = 160
REINDEX = [sys.executable, "-m", "agent_layer.cli", "store", "reindex", "--drop"]
IN_STEPS = """
import sys
from agent_layer.store import open_store

open_store().admin.reindex(drop=True, progress=lambda *_: sys.stdin.readline())
"""


def make_attempt(number: int):
    return attempt(f"r.{number}-0", at=float(number), score=number / 100)


def collect_answers(store):
    return (
        list(store.scan()),
        [store.count(**one) for one in ({}, {"status": "running"}, {"reward": (0.5, None)}, {"run": "r"})],
        store.summarise(["run", "status"]),
    )


@pytest.fixture
def store(settings, ship_here):
    """A store of many segments; each trajectory lies in two of them, so that the order of entering counts."""
    for number in range(NUM_SEGMENTS // 2):
        first, *rest = make_attempt(number)
        for records in ([first], rest):
            recorder = Recorder(settings)
            recorder.append(*records)
            recorder.close()
    ship_here()
    store = open_store(settings)
    assert len(store.redis.hkeys(store.keys.segments)) == NUM_SEGMENTS
    return store


@pytest.fixture
def start(settings):
    """``start(command)``: a process that rebuilds the index; returns it."""
    running = []

    def start(command: list[str]) -> subprocess.Popen:
        own, pipe = os.environ | settings.environment(), subprocess.PIPE
        running.append(subprocess.Popen(command, env=own, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def moments(store):
    """Conditions to kill a rebuild at, and after how many batches of 32 it may go on until then: it has begun to empty
    the index, has entered little, has entered much."""
    redis, keys = store.redis, store.keys

    def num_entered():
        done_to = redis.hget(keys.reindexing, "done_to")
        return -1 if done_to is None else redis.hlen(keys.segments)

    return [
        (lambda: redis.hexists(keys.reindexing, "drop"), 0),
        (lambda: num_entered() >= 32, 0),
        (lambda: num_entered() >= 96, 2),
    ]


def test_a_killed_rebuild_is_taken_up_and_all_answers_come_back(store, start, wait_until):
    before, num_resumed = collect_answers(store), []
    for moment, num_batches in moments(store):
        process = start([sys.executable, "-c", IN_STEPS])
        process.stdin.write("\n" * num_batches)
        wait_until(moment)
        process.stdin.write("\n")  # so that it dies in the middle of the next batch
        process.send_signal(signal.SIGKILL)
        wait_for_exit(process)
        assert store.redis.exists(store.keys.reindexing)

        report = store.admin.reindex(drop=True)

        num_resumed.append(report.num_resumed)
        assert report.corrupt == []
        assert report.num_segments == NUM_SEGMENTS
        assert collect_answers(store) == before
        assert not store.redis.exists(store.keys.reindexing)
    assert max(num_resumed) > 0, num_resumed
    assert store.admin.check().findings == []


def test_the_command_takes_a_rebuild_up_too(store, start):
    before = collect_answers(store)
    calls = []

    class InterruptedRebuildError(Exception):
        pass

    def stop(num_done, num_all):
        calls.append((num_done, num_all))
        if num_done > NUM_SEGMENTS // 2:
            raise InterruptedRebuildError

    with pytest.raises(InterruptedRebuildError):
        store.admin.reindex(drop=True, progress=stop)
    assert store.count() < len(before[0])

    process = start(REINDEX)
    output, _ = communicate(process, 90)

    assert process.returncode == 0
    assert f"{NUM_SEGMENTS} of {NUM_SEGMENTS}" in output
    assert collect_answers(store) == before
    assert calls == sorted(calls)
    assert {num_all for _, num_all in calls} == {NUM_SEGMENTS}


def test_what_is_shipped_during_a_rebuild_is_there_after_it(settings, store, ship_here):
    before, written = {row.trajectory_id for row in store.scan()}, set()

    def write_on(num_done, _):
        number = 1_000 + num_done
        recorder = Recorder(settings)
        recorder.append(*make_attempt(number))
        recorder.close()
        thread = threading.Thread(target=ship_here)
        thread.start()
        join(thread)
        written.add(f"r.{number}-0")

    for _ in range(2):
        store.admin.reindex(drop=True, progress=write_on)

    assert {row.trajectory_id for row in store.scan()} == before | written
    assert len(written) > 3
    assert store.count(status="completed") == len(before | written)
    assert store.admin.check().findings == []


@pytest.fixture
def names(settings):
    """Segments of 100 trajectories, each in three of them, all indexed."""
    store = open_store(settings)
    attempts = map(make_attempt, range(100))
    parts = [part for records in attempts for part in (records[:1], records[1:3], records[3:])]
    return [write_segment(store, *part) for part in parts]


def test_commits_and_deletions_beside_a_rebuild_lose_nothing_and_double_nothing(settings, names):
    store, deleted = open_store(settings), ["r.0-0", "r.1-0", "r.2-0"]
    left = [row for row in store.scan() if row.trajectory_id not in deleted]

    def ship(seed):
        for name in random.Random(seed).sample(names, 150):
            index_segment(store.redis, store.keys, store.objects, name)

    def ship_together(seed):
        for some in batched(random.Random(seed).sample(names, 150), 75):
            segments = [read_footer(store.objects, segment_key(store.keys, name)) for name in some]
            enter_segments(store.redis, store.keys, segments)

    ships = [partial(ship, 1), partial(ship, 2), partial(ship_together, 3), partial(ship_together, 4)]
    moves = [*ships, *(partial(mark_deleted, store, one) for one in deleted)]
    threads = [threading.Thread(target=move) for move in moves]
    drop_index(store.redis, store.keys)
    for thread in threads:
        thread.start()
    store.admin.reindex()
    for thread in threads:
        join(thread)

    index = Index(store.redis, store.keys)
    assert list(store.scan()) == left
    assert (store.count(), store.count(reward=(0.5, None))) == (97, sum(row.reward >= 0.5 for row in left))
    ids = [row.trajectory_id for row in left]
    assert len({store.redis.hget(store.keys.trajectory(one), "ordinal") for one in ids}) == len(ids)
    assert count_orphan_bits(store.redis, store.keys) == {}
    assert list(find_inconsistent_rows(index, ids)) == []


def test_numbers_of_empty_blocks_are_used_again(settings):
    """So that the bitmaps of blocks do not grow with all that ever was."""
    store = open_store(settings)
    for number in range(4):
        write_segment(store, *make_attempt(number))
    for next_block in (15, 16, 17, 400):
        store.redis.set(store.keys.ordinals, next_block * BLOCK)
        for number in (0, 1):
            write_segment(store, *make_attempt(1_000 * next_block + number))

    rows = [row.trajectory_id for row in store.scan()]
    blocks = [int(store.redis.hget(store.keys.trajectory(name), "ordinal")) // BLOCK for name in rows]
    assert blocks == [0] * 4 + [15] * 2 + [16] * 2 + [17] * 2 + [1] * 2
    assert store.count(reward=(0.0, None)) == len(rows) == 12
    assert list(find_inconsistent_rows(Index(store.redis, store.keys), rows)) == []


def test_a_rebuild_clears_bits_that_were_left_when_the_map_of_blocks_was_lost(settings):
    store = open_store(settings)
    for number in range(4):
        write_segment(store, *make_attempt(number))
    rows = [row.trajectory_id for row in store.scan()]
    lost = [*map(store.keys.trajectory, rows), store.keys.zones, store.keys.blocks_with("all")]
    store.redis.delete(*lost)

    store.admin.reindex()

    assert [row.trajectory_id for row in store.scan()] == rows
    assert count_orphan_bits(store.redis, store.keys) == {}
    assert store.admin.check().findings == []
