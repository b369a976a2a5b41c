"""Delays of the dispatcher beside thousands of live leases and store queries.

Measured: until a waiting worker has a task, and until another worker has the rollouts of a killed one.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench_dispatch import shown_ms
from bench_table import Figure, print_figures
from dispatch_contenders import new_ours
from dispatch_crews import run_crew
from proxies import HERE
from store_fill import fill
from store_servers import run_servers

from agent_layer.dispatcher import connect
from agent_layer.schema.task import Task
from agent_layer.settings import Settings

__all__ = ["measure_dispatch_live"]

NUM_TRAJECTORIES = 4_000
NUM_HOLDERS, LEASES_EACH = 20, 100
NUM_ASKED, NUM_CALM = 800, 200
QUERIES_PER_SECOND = 50
NUM_KILLED = 8


def measure_dispatch_live(directory: Path) -> list[Figure]:
    """Ask for single tasks while nothing else happens, then amid leases and queries; then kill workers."""
    with run_servers(directory) as servers:
        settings = servers.settings(directory / "store")
        fill(settings, 0, NUM_TRAJECTORIES)
        return [_live_figure(directory, settings), _hand_on_figure(settings)]


def _live_figure(directory: Path, settings: Settings) -> Figure:
    with run_crew(new_ours(settings, 1, 1), directory / "crew") as crew:
        calm = crew.waits(NUM_CALM)
        with ExitStack() as cleanup:
            cleanup.enter_context(_leases(settings))
            cleanup.enter_context(_queries(settings))
            live = crew.waits(NUM_ASKED)
    what = (
        f"dispatch, {NUM_HOLDERS * LEASES_EACH:,} live leases with heartbeats, {QUERIES_PER_SECOND} queries/s of"
        f" {NUM_TRAJECTORIES:,} trajectories: from submit to a waiting worker, p50/p99 ms of {len(live)} (floor: idle)"
    )
    return Figure(what, shown_ms(live), shown_ms(calm), f"{median(live) / median(calm):.2f}", "p99 ≤ 20")


@contextmanager
def _leases(settings: Settings) -> Iterator[None]:
    """Keep leases while the block lasts; all of them must last, too."""
    num = NUM_HOLDERS * LEASES_EACH
    connect(settings).submit([Task(id=f"held-{one}", run="held", group_size=8) for one in range(num // 8)])
    with _started(settings, "dispatch_holders.py", "keep", str(NUM_HOLDERS), str(LEASES_EACH)) as holders:
        _expect(holders.stdout.readline(), f"{num}\n")
        yield
        holders.stdin.close()
        _expect(holders.stdout.readline(), "0\n")


@contextmanager
def _queries(settings: Settings) -> Iterator[None]:
    """Ask the store, so often in a second, while the block lasts."""
    with _started(settings, "dispatch_asker.py", str(NUM_TRAJECTORIES), str(QUERIES_PER_SECOND)) as asker:
        _expect(asker.stdout.readline(), "asking\n")
        yield
        asker.stdin.close()
        print(f"  live: {asker.stdout.readline().strip()} queries", file=sys.stderr)


@contextmanager
def _started(settings: Settings, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    program, *rest = arguments
    process = subprocess.Popen(
        [sys.executable, str(HERE / program), *rest],
        env={**os.environ, **settings.environment()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def _hand_on_figure(settings: Settings) -> Figure:
    """Kill workers, each at some time between two of its beats, while another one waits."""
    heartbeat, lease = settings.heartbeat_seconds, settings.lease_seconds
    beats = [seconds / heartbeat for seconds in _kill_all(settings)]
    what = (
        f"dispatch, kill -9 of a worker until another has its lease, median/longest of {len(beats)}, in heartbeats of"
        f" {heartbeat:g} s (leases of {lease:g} s)"
    )
    return Figure(what, f"{median(beats):.2f}/{max(beats):.2f}", "", "", "≤ 2")


def _kill_all(settings: Settings) -> list[float]:
    """Seconds from each kill to the next lease of its rollout."""
    heartbeat = settings.heartbeat_seconds
    connect(settings).submit([Task(id="mortal", run="held", group_size=NUM_KILLED)])
    with ExitStack() as cleanup:
        mortals = [cleanup.enter_context(_started(settings, "dispatch_holders.py", "lease")) for _ in range(NUM_KILLED)]
        rollouts = [mortal.stdout.readline().split()[1] for mortal in mortals]
        taker = cleanup.enter_context(_started(settings, "dispatch_holders.py", "take", str(NUM_KILLED)))
        began, killed = time.monotonic(), dict[str, float]()
        dues = sorted(heartbeat * (1 + random.random()) for _ in mortals)
        for mortal, rollout, due in zip(mortals, rollouts, dues, strict=True):
            time.sleep(max(0.0, began + due - time.monotonic()))
            mortal.send_signal(signal.SIGKILL)
            killed[rollout] = time.monotonic()
        taken = (taker.stdout.readline().split() for _ in mortals)
        return [float(at) - killed[rollout] for at, rollout in taken]


def _expect(found: str, expected: str) -> None:
    if found != expected:
        raise RuntimeError(f"expected {expected!r}, found {found!r}")


if __name__ == "__main__":
    with TemporaryDirectory(prefix="al-bench-", ignore_cleanup_errors=True) as home:
        print_figures(measure_dispatch_live(Path(home)))
