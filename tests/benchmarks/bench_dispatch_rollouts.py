"""Toy rollouts per second from task to accepted trajectory, with three calls each.

Everything is real but the model: queue, gateway, shipper, store, worker; the scripted engine is a process of its own.
A peer runs the same agent before the same engine.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench_peers import LIGHTNING_PYTHON
from bench_table import Figure, print_figures
from dispatch_lightning import run_lightning
from proxies import HERE, start_process

from agent_layer.dispatcher import connect
from agent_layer.infra.processes.addresses import free_port
from agent_layer.infra.processes.supervised import start_supervised
from agent_layer.local.stack import Stack, run_stack
from agent_layer.schema.task import Task
from agent_layer.settings import Settings

__all__ = ["measure_dispatch_rollouts"]

NUM_ROUNDS = 3
GROUP_SIZE = 8
WAIT_SECONDS = 60.0
PEER_SLOTS, PEER_ROLLOUTS = 8, 16
WORK = [sys.executable, "-m", "agent_layer.cli", "work"]
TARGET = "dispatch_toy:play"
COMMAND = [sys.executable, "-S", str(HERE / "dispatch_toy_process.py")]
"""It needs no packages, and does not look for any."""


def measure_dispatch_rollouts(directory: Path) -> list[Figure]:
    """Measure each way to run agents, then the peer."""
    port = free_port()
    engine = [sys.executable, "-m", "agent_layer.local.scripted", f"--port={port}"]
    with start_process(engine, port, directory / "engine.log"):
        engine_url = f"http://127.0.0.1:{port}"
        with run_stack(Settings(dir=directory / "ours", run="bench"), engine_url) as stack:
            inside = _rate(stack, 320, [TARGET, "--slots=32"])
            isolated = _rate(stack, 80, [TARGET, "--slots=8", "--isolate"]) if _can_isolate() else None
            fresh = _rate(stack, 40, ["--slots=8", "--", *COMMAND])
        peer = _peer_rate(directory, engine_url)
    return [
        _figure("agents side by side in one process", inside, peer, "≥ 50"),
        _figure("--isolate, a warm process for each rollout", isolated, peer, "≥ 15"),
        _figure("a command, a new process for each rollout", fresh, peer, "≥ 15"),
    ]


def _rate(stack: Stack, num_rollouts: int, arguments: Sequence[str]) -> float:
    """Rollouts per second, from submit until the last group is closed."""
    worker = start_supervised(
        [*WORK, *arguments],
        {**stack.settings.environment(), "PYTHONPATH": f"{HERE}:{HERE.parents[1]}"},
        stack.settings.dir / "worker.log",
    )
    with ExitStack() as cleanup:
        cleanup.callback(worker.stop)
        rates = [_round(stack, num_rollouts) for _ in range(NUM_ROUNDS + 1)][1:]
    return median(rates)


def _round(stack: Stack, num_rollouts: int) -> float:
    stamp = time.monotonic_ns()
    tasks = [
        Task(id=f"toy-{stamp}-{one}", run="bench", scorer="agent", group_size=GROUP_SIZE)
        for one in range(num_rollouts // GROUP_SIZE)
    ]
    dispatcher = connect(stack.settings)
    began = time.monotonic()
    groups = dispatcher.wait(dispatcher.submit(tasks), timeout=WAIT_SECONDS)
    seconds = time.monotonic() - began
    if (num := sum(group.num_accepted or 0 for group in groups)) != num_rollouts:
        raise RuntimeError(f"expected {num_rollouts} accepted rollouts within {WAIT_SECONDS:.0f} s, found {num}")
    return num_rollouts / seconds


def _can_isolate() -> bool:
    output = subprocess.run([*WORK, "--help"], capture_output=True, text=True, check=True).stdout
    return "--isolate" in output


def _peer_rate(directory: Path, engine_url: str) -> float | None:
    """None where it is not installed."""
    if not LIGHTNING_PYTHON.exists():
        return None
    with run_lightning(directory, engine_url, PEER_SLOTS) as lightning:
        return median([lightning.rate(PEER_ROLLOUTS) for _ in range(NUM_ROUNDS + 1)][1:])


def _figure(how: str, ours: float | None, peer: float | None, aim: str) -> Figure:
    what = f"dispatch, toy rollouts/s, {how} (Agent Lightning 1.0's local controller: a new process for each)"
    ratio = f"{ours / peer:.1f}" if ours and peer else ""
    return Figure(what, _shown(ours, "no such option yet"), _shown(peer, "needs Python 3.12"), ratio, aim)


def _shown(rate: float | None, lacking: str) -> str:
    return lacking if rate is None else f"{rate:.1f}"


if __name__ == "__main__":
    with TemporaryDirectory(prefix="al-bench-", ignore_cleanup_errors=True) as home:
        print_figures(measure_dispatch_rollouts(Path(home)))
