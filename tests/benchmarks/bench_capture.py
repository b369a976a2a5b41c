"""Cost of capturing a call for the agent that makes it, beside other libraries that capture the same calls."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench_peers import PEERS_PYTHON
from bench_table import Figure

__all__ = ["measure_capture"]

NUM_CALLS = {2048: 1000, 65536: 400}
AIMS = {2048: 60, 65536: 150}
NUM_ROUNDS = 3
OURS = {"ours": "tracer alone", "ours_routed": "tracer before a gateway"}
PEERS = {
    "otel_json": "OTel span + JSON",
    "openinference": "openinference",
    "openllmetry": "openllmetry",
    "langfuse": "langfuse",
}


def measure_capture(directory: Path) -> list[Figure]:
    """Ask every variant in turns, several rounds; the median of each is compared."""
    with ExitStack() as cleanup:
        children = {name: cleanup.enter_context(_start("capture_ours", name, directory)) for name in OURS}
        children |= {name: cleanup.enter_context(_start("capture_peers", name, directory)) for name in PEERS}
        for child in children.values():
            _ask(child, 2048, 100)  # whatever a first call sets up
        return [figure for num_bytes in NUM_CALLS for figure in _measure_size(children, num_bytes)]


def _measure_size(children: dict[str, subprocess.Popen[str]], num_bytes: int) -> list[Figure]:
    rounds = [
        {name: _ask(child, num_bytes, NUM_CALLS[num_bytes]) for name, child in children.items()}
        for _ in range(NUM_ROUNDS)
    ]
    cost = {name: median(found[name]["added"] for found in rounds) for name in children}
    plain = median(found[name]["plain"] for found in rounds for name in children)
    others = {name: median(found[name]["others"] for found in rounds) for name in children}
    size = f"{num_bytes >> 10} KB"
    figures = [
        Figure(
            f"capture in the agent's thread, {size}, {OURS[name]} (beside: the bare client's call)",
            f"{cost[name]:.0f} µs (+ {others[name]:.0f} in its other threads)",
            f"{plain:.0f} µs",
            f"{cost[name] / plain:.2f}",
            f"≤ {AIMS[num_bytes]} µs",
        )
        for name in OURS
    ]
    return figures + [
        Figure(
            f"capture in the agent's thread, {size}, {label}",
            f"{cost['ours']:.0f} µs",
            f"{cost[name]:.0f} µs (+ {others[name]:.0f} in its other threads)",
            f"{cost['ours'] / cost[name]:.2f}",
            "≤ 0.2" if name == "openinference" else "",
        )
        for name, label in PEERS.items()
    ]


def _start(module: str, variant: str, directory: Path) -> subprocess.Popen[str]:
    python = sys.executable if module == "capture_ours" else str(PEERS_PYTHON)
    command = [python, str(Path(__file__).with_name("capture_child.py")), module, variant, str(directory / variant)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ask(child: subprocess.Popen[str], num_bytes: int, num_calls: int) -> dict[str, float]:
    assert child.stdin
    assert child.stdout
    child.stdin.write(f"{num_bytes} {num_calls}\n")
    child.stdin.flush()
    return json.loads(child.stdout.readline())
