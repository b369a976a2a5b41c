"""500 sessions at a time on one machine: ten execs each, none is lost, and together they take at most 4 GiB."""

import asyncio
import os
import resource
import time
from pathlib import Path

import pytest

from agent_layer.schema.sandbox import Resources, SandboxSpec
from envs.sandbox import PoolOptions, make_kind, open_pool

from ..waiting import scaled

NUM_SESSIONS = int(os.environ.get("AGENT_LAYER_TEST_SESSIONS", "500"))
NUM_EXECS = 10
MAX_MB = 4096 * NUM_SESSIONS / 500
AT_ONCE = 8
"""Execs that run at the same time; the others of the sessions wait, as they do for a model."""
SECONDS = 36_000
"""Longest life of a box: longer than the test takes on any machine."""


def list_descendants(pid):
    found, waiting = set(), [pid]
    while waiting:
        for children in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            pids = [int(one) for one in children.read_text().split()]
            found.update(pids)
            waiting += pids
    return found


def measure_mb(pids):
    """Memory of processes, with what they share counted once (PSS)."""
    total_kb = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended
            continue
        total_kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kb / 1024


@pytest.mark.serial
@pytest.mark.timeout(1800)
async def test_500_sessions_live_at_a_time_and_none_is_lost():
    kind = make_kind("session")
    if not (support := await kind.probe()).works:
        await kind.close()
        pytest.skip(f"kind session: {support.reason}")
    most_open = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_open, most_open))  # a box takes two
    spec = SandboxSpec(kind="session", resources=Resources(memory_mb=256, disk_mb=32))
    gate, seconds = asyncio.Semaphore(AT_ONCE), []

    async def step(box, number):
        async with gate:
            began = time.monotonic()
            result = await box.exec(["sh", "-c", f"echo {number} >> log; wc -l < log"], seconds=scaled(60))
            seconds.append(time.monotonic() - began)
            return result.status, result.stdout.strip()

    async with open_pool(PoolOptions(max_running=NUM_SESSIONS, ready_per_spec=0), kinds=[kind]) as pool:
        boxes = await asyncio.gather(
            *(pool.take(spec, owner=f"session-{number}", seconds=SECONDS) for number in range(NUM_SESSIONS))
        )
        for number in range(NUM_EXECS):
            found = await asyncio.gather(*(step(box, number) for box in boxes))
            assert set(found) == {("exited", str(number + 1).encode())}
        used_mb = await asyncio.to_thread(lambda: measure_mb(list_descendants(os.getpid())))
        stats = pool.stats()
        await asyncio.gather(*(box.close() for box in boxes))

    seconds.sort()
    print(  # noqa: T201  # the figures, for who looks
        f"{NUM_SESSIONS} sessions: {used_mb:.0f} MB, {used_mb / NUM_SESSIONS:.1f} MB each; exec p50"
        f" {seconds[len(seconds) // 2] * 1000:.1f} ms, p99 {seconds[len(seconds) * 99 // 100] * 1000:.1f} ms; start p50"
        f" {(stats.start_seconds_p50 or 0) * 1000:.0f} ms"
    )
    assert used_mb <= MAX_MB
    assert (stats.failed_starts, stats.dead_at_hand_out) == (0, 0)
